"""How pressed a replica is, in [0, 1]: the share of its time that work has already used up or surely will.

    raw = (queue wait + predicted time of the work in hand) / time from append to answer-by        per batch, means
    p   = raw                                where raw is above p: a router must learn of pressure at once
    p   = p + DECAY (raw - p)                where it is below
    p   = p * 2^(-idle time / HALF_LIFE)     between batches

All the work in hand counts, also what is about to be shed: shedding must not hide the overload. 1 means that nothing
more can be met in time; a closed gate says the same, and so counts as 1.
"""

from collections.abc import Sequence

from ranking.consumer.task import Task

DECAY = 0.3
HALF_LIFE_NS = 200_000_000


class PressureGauge:
    """The pressure of one route of one replica."""

    def __init__(self) -> None:
        self._value = 0.0
        self._updated_ns = 0

    def observe(self, tasks: Sequence[Task], *, now_ns: int, ahead_ns: float) -> None:
        """Note this route's work in a batch just taken; ``ahead_ns`` is the predicted time until all of it is done."""
        if not tasks:
            return
        waited_ns = sum(max(0, now_ns - task.arrived_ns) for task in tasks) / len(tasks)
        allowed_ns = sum(max(0, task.answer_by_ns - task.arrived_ns) for task in tasks) / len(tasks)
        raw = min(1.0, (waited_ns + ahead_ns) / allowed_ns) if allowed_ns > 0.0 else 1.0
        value = self.value(now_ns)
        self._value = raw if raw > value else value + DECAY * (raw - value)
        self._updated_ns = now_ns

    def value(self, now_ns: int) -> float:
        """The pressure now."""
        return float(self._value * 2.0 ** (-max(0, now_ns - self._updated_ns) / HALF_LIFE_NS))
