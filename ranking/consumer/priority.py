"""CPU priority of opportunistic replicas: they take what base work leaves over, from their first second on."""

import os
from collections.abc import Collection

# The kernel's lowest.
LOWEST_NICE = 19
# A third of the weight of base work where both want the processor. Measured on two cores that carry a whole pipeline:
# at 10 a call of ten candidates waits 50 ms and longer, although a fifth of the time is idle.
DEFAULT_NICE = 5


def give_way(routes: Collection[str], *, nice: int = DEFAULT_NICE) -> None:
    """Lower this process to ``nice`` unless it does base work; one that is as low already stays there.

    Call it before heavy imports and before threads are started: each thread keeps what it was born with.
    """
    if "baseline" in routes:
        return
    current = os.getpriority(os.PRIO_PROCESS, 0)
    if current < nice:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
