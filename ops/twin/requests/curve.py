"""How long scoring takes, as it was measured, and a scorer that takes as long on a fake clock.

Shape legend: N candidates of one call.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ranking.models.inputs import CandidateChunk, Users


@dataclass(frozen=True, kw_only=True)
class ServiceCurve:
    """Times in ns of a batch: ``batch_ns`` once (planning, encoding the users), ``call_ns`` + ``candidate_ns`` n for
    each call with n candidates, and ``task_ns`` for each task (reading, its user, its answer)."""

    batch_ns: float
    call_ns: float
    candidate_ns: float
    task_ns: float

    def __post_init__(self) -> None:
        if min(self.batch_ns, self.call_ns, self.task_ns) < 0.0 or self.candidate_ns <= 0.0:
            raise ValueError(f"times must not be negative, nor candidates cost nothing: {self}")

    def at_rate(self, units_per_s: float, *, call_size: int) -> "ServiceCurve":
        """The curve of hardware that does so many work units in a busy second in calls of ``call_size``: the time of a
        call stays, as far as it fits, and candidates take the rest."""
        full_ns = call_size * 1e9 / units_per_s
        call_ns = min(self.call_ns, full_ns / 2.0)
        return replace(self, call_ns=call_ns, candidate_ns=(full_ns - call_ns) / call_size)

    def times(self, cost: float) -> "ServiceCurve":
        """The curve of a model that costs so many times as much per candidate."""
        return replace(self, candidate_ns=self.candidate_ns * cost)


# Of `python -m ops.twin.requests.measure` on a busy two-core AMD EPYC; all but one figure within 3 % of the lines.
MEASURED = ServiceCurve(batch_ns=920_000.0, call_ns=290_000.0, candidate_ns=356.0, task_ns=104_000.0)


class TimedScorer:
    """Scores with what stands in the retrieval scores of its candidates, as `ops.twin.requests.callers` puts it there,
    after the time that scoring would take: ``wait`` moves the clock of whoever scores."""

    def __init__(self, curve: ServiceCurve, *, version: str, wait: Callable[[float], None]) -> None:
        self._curve = curve
        self._version = version
        self._wait = wait

    @property
    def version(self) -> str:
        """Version of the model."""
        return self._version

    def prepare(self, users: Users) -> int:
        """Number of users encoded."""
        num_users = len(users.features_BF)
        self._wait(self._curve.batch_ns + self._curve.task_ns * num_users)
        return num_users

    def score_chunk(self, encoded: int, chunk: CandidateChunk) -> NDArray[np.float32]:
        """Each candidate's expected value, float32 [N]."""
        self._wait(self._curve.call_ns + self._curve.candidate_ns * len(chunk))
        return chunk.retrieval_scores_N
