"""CPU priority of opportunistic replicas: they take what base work leaves over, from their first second on.

Where the kernel groups processes by session (autogroup, sched(7)), a nice level weighs against processes of the same
session alone, and each session has a level of its own. A supervisor starts every part in a session of its own: there
the session's level is what counts, and it is lowered as well.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

# The kernel's lowest.
LOWEST_NICE = 19
# A third of the weight of base work where both want the processor. Measured on two cores that carry a whole pipeline:
# at 10 a call of ten candidates waits 50 ms and longer, although a fifth of the time is idle.
DEFAULT_NICE = 5

_SESSION: Final = Path("/proc/self/autogroup")


def give_way(routes: Collection[str], *, nice: int = DEFAULT_NICE, session: Path = _SESSION) -> None:
    """Lower this process to ``nice`` unless it does base work, and its session's level if it leads one.

    What is as low already stays there. Call it before heavy imports and before threads are started: each thread keeps
    what it was born with.
    """
    if "baseline" in routes:
        return
    current = os.getpriority(os.PRIO_PROCESS, 0)
    if current < nice:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    # In a session that somebody else began are others, who are not to be slowed down.
    if os.getsid(0) == os.getpid():
        _lower_session(session, nice)


def _lower_session(session: Path, nice: int) -> None:
    try:
        # "/autogroup-71 nice 0"
        if int(session.read_text(encoding="ascii").split()[-1]) < nice:
            session.write_text(str(nice), encoding="ascii")
    except (OSError, ValueError, IndexError):
        # No such file or no right to it: this kernel does not group by session, or its owner weighs the groups.
        return
