"""Cores, memory and pressure of the host itself, from /proc.

The owner's cores are those that were busy since the last reading, less what optional work and this agent used. Pressure
is the ``avg10`` of pressure-stall information, "some": the share of the last ten seconds in which somebody stood still.
Of the whole host only memory and disk count: optional work at a low priority waits for cores all the time, and that is
no harm to the owner. Of the owner's own control group the cores count too.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.agent.readings import Reading, SourceError

POOL: Final = "cpu"
_HOST_PRESSURES: Final = ("memory", "io")
_CGROUP_PRESSURES: Final = ("cpu", "memory", "io")
# /proc/PID/stat behind the name in parentheses: user and system time are its fields 14 and 15.
_USER, _SYSTEM = 11, 12
_IDLE, _IOWAIT = 3, 4


@dataclass(frozen=True)
class _Ticks:
    """Clock ticks since boot: of all cores, busy ones, and those of each own process."""

    total: int
    busy: int
    own: dict[int, int]


class HostSource:
    """Reads one pool, ``cpu``. The first reading is only a beginning: nothing is said before the second."""

    name = "host"

    def __init__(
        self,
        *,
        every_s: float = 1.0,
        owner_cgroup: Path | None = None,
        pressures: Sequence[str] | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        """Raises ValueError for pressure that this kernel does not tell."""
        self.every_s = every_s
        self._proc = proc
        default = _HOST_PRESSURES if owner_cgroup is None else _CGROUP_PRESSURES
        found = {
            name: path
            for name in (default if pressures is None else pressures)
            if (path := _pressure_path(proc, owner_cgroup, name)).exists()
        }
        missing = set(pressures or ()) - set(found)
        if missing:
            raise ValueError(f"sources.host.pressures: this host does not tell {', '.join(sorted(missing))}")
        if owner_cgroup is not None and not found:
            raise ValueError(f"sources.host.owner_cgroup: {owner_cgroup} has no pressure files")
        self._pressure_paths = tuple(found.values())
        self._before: _Ticks | None = None

    def read(self, own_pids: frozenset[int]) -> Sequence[Reading]:
        try:
            num_cores, ticks = self._ticks(own_pids | {os.getpid()})
            memory_bytes = self._available_bytes()
            pressure = max((_some_avg10(path.read_text()) for path in self._pressure_paths), default=0.0)
        except (OSError, ValueError, LookupError) as error:
            raise SourceError(f"host: {error}") from error
        before, self._before = self._before, ticks
        if before is None or ticks.total <= before.total:
            return []
        # A process that is new since the last reading counts from its start; one that has ended took its figures along.
        own = sum(used - before.own.get(pid, 0) for pid, used in ticks.own.items())
        share = (ticks.busy - before.busy - own) / (ticks.total - before.total)
        return [
            Reading(
                pool=POOL,
                accelerator=POOL,
                units=float(num_cores),
                owner_units=num_cores * min(max(share, 0.0), 1.0),
                divisible=True,
                pressure=min(pressure, 1.0),
                memory_bytes=memory_bytes,
            )
        ]

    def close(self) -> None:
        """Nothing is held."""

    def _ticks(self, pids: frozenset[int]) -> tuple[int, _Ticks]:
        lines = (self._proc / "stat").read_text().splitlines()
        # Guest time is part of user time already.
        fields = [int(field) for field in lines[0].split()[1:9]]
        num_cores = sum(line.startswith("cpu") for line in lines) - 1
        total = sum(fields)
        own = {pid: used for pid in pids if (used := self._process_ticks(pid)) is not None}
        return num_cores, _Ticks(total, total - fields[_IDLE] - fields[_IOWAIT], own)

    def _process_ticks(self, pid: int) -> int | None:
        try:
            line = (self._proc / str(pid) / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = line.rpartition(")")[2].split()
        return int(fields[_USER]) + int(fields[_SYSTEM])

    def _available_bytes(self) -> int:
        for line in (self._proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1_024
        raise LookupError(f"{self._proc}/meminfo has no MemAvailable")


def _pressure_path(proc: Path, owner_cgroup: Path | None, name: str) -> Path:
    return proc / "pressure" / name if owner_cgroup is None else owner_cgroup / f"{name}.pressure"


def _some_avg10(text: str) -> float:
    """Share of time from ``some avg10=1.23 avg60=...``."""
    for line in text.splitlines():
        kind, avg10, *_ = line.split()
        if kind == "some":
            return float(avg10.removeprefix("avg10=")) / 100.0
    raise ValueError(f"no pressure in {text[:60]!r}")
