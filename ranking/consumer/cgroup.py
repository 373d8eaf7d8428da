"""CPU weight of a replica's control group, where the group is its own: a container, or a unit of its host.

Nice levels weigh processes against those of the same group. Against what runs in other groups only the group's weight
counts, and that is a matter of whoever made the group: a pod's CPU request, a unit's CPUWeight. Where this process is
alone in its group and may write to it, it lowers the weight itself; otherwise it says why it did not.
"""

import os
from pathlib import Path
from typing import Final

# A third of a group of default weight, as nice 5 is a third of nice 0 (`ranking.consumer.priority`).
DEFAULT_CPU_WEIGHT: Final = 33
# Control group v2, `cpu.weight`.
MAX_CPU_WEIGHT: Final = 10_000

_ROOT: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


def lower_weight(weight: int, *, root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> str:
    """Lower the weight of this process's group to ``weight``; returns what was done, or why nothing was."""
    try:
        group = root / _path_of_group(membership.read_text(encoding="utf-8")).lstrip("/")
        file = group / "cpu.weight"
        if not file.exists():
            return "left alone: no control group v2 with a CPU weight"
        current = int(file.read_text(encoding="ascii"))
        if current <= weight:
            return f"left at {current}: as low already"
        members = (group / "cgroup.procs").read_text(encoding="ascii").split()
        if members != [str(os.getpid())]:
            return f"left at {current}: the group has other members"
        file.write_text(f"{weight}\n", encoding="ascii")
    except (OSError, ValueError) as error:
        return f"left alone: {error}"
    return f"lowered from {current} to {weight}"


def _path_of_group(membership: str) -> str:
    """Path of the group of version 2, whose line begins with hierarchy 0. Raises ValueError without one."""
    for line in membership.splitlines():
        hierarchy, _, rest = line.partition(":")
        if hierarchy == "0":
            return rest.partition(":")[2]
    raise ValueError("no control group v2")
