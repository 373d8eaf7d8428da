"""CPU priority of opportunistic replicas: they take what base work leaves over, from their first second on."""

import os
from collections.abc import Collection

# The kernel's lowest. What shares a host with base work must not delay it, not even while it loads its model.
LOWEST_NICE = 19


def give_way(routes: Collection[str], *, nice: int = LOWEST_NICE) -> None:
    """Lower this process to ``nice`` unless it does base work; one that is as low already stays there.

    Call it before heavy imports and before threads are started: each thread keeps what it was born with.
    """
    if "baseline" in routes:
        return
    current = os.getpriority(os.PRIO_PROCESS, 0)
    if current < nice:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
