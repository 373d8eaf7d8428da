"""The current target of each cell. Pure: whoever asks says what time it is on the broker's clock."""

from ranking.client.fence import Fence
from schemas.epochs import NO_EPOCH
from schemas.errors import RecordError
from schemas.records import CandidateTarget

# A target's window has closed before the target was written, but for the brokers' clocks among each other.
MAX_AHEAD_MS = 5_000
# Beyond any validity in use: a target that never expires would end "blind means base".
MAX_VALIDITY_MS = 3_600_000


def doubt(target: CandidateTarget, *, key: bytes | None, append_ms: int) -> RecordError | None:
    """Why a target cannot be believed, given its key and the time it was appended; None when it can."""
    if key != target.cell.encode():
        return RecordError("key_mismatch", f"key {key!r} is not its cell {target.cell}", field="cell")
    if target.window_end_ms > append_ms + MAX_AHEAD_MS:
        ahead_ms = target.window_end_ms - append_ms
        return RecordError("future_event", f"{ahead_ms} ms ahead of its append time", field="window_end_ms")
    if target.valid_until_ms > target.window_end_ms + MAX_VALIDITY_MS:
        after_ms = target.valid_until_ms - target.window_end_ms
        return RecordError("invalid_field", f"{after_ms} ms after its window", field="valid_until_ms")
    if not target.base_candidates <= target.candidate_target <= target.max_candidates:
        return RecordError("invalid_field", "outside of base_candidates to max_candidates", field="candidate_target")
    return None


class TargetTable:
    """Targets by cell. Blind means base: an expired target, or none, asks for no optional work."""

    def __init__(self) -> None:
        self._targets: dict[str, CandidateTarget] = {}
        self._fence = Fence()

    def update(self, target: CandidateTarget, *, epoch: int = NO_EPOCH) -> bool:
        """Take a target in; False when a later one is held (a controller sends its last output again after a crash).

        Later is by the window's end, not its index: an index means another time once the window's length is changed.
        Raises ShutOutError for the target of a controller that another has taken over from.
        """
        held = self._targets.get(target.cell)
        self._fence.check(target, epoch=epoch, held=held)
        if held is not None and held.window_end_ms > target.window_end_ms:
            return False
        self._targets[target.cell] = target
        return True

    def last(self, cell: str) -> CandidateTarget | None:
        """The last target of a cell, expired or not."""
        return self._targets.get(cell)

    def valid(self, cell: str, now_ms: float) -> CandidateTarget | None:
        """The target of a cell if it may be applied now."""
        target = self._targets.get(cell)
        return target if target is not None and now_ms <= target.valid_until_ms else None

    def candidates_to_fetch(self, cell: str, now_ms: float, *, default: int) -> int:
        """How many candidates retrieval should hand over: the target while it is valid, else the base.

        ``default`` is the base where no target was ever seen.
        """
        held = self._targets.get(cell)
        if held is None:
            return default
        if now_ms > held.valid_until_ms:
            return held.base_candidates
        return max(held.base_candidates, held.candidate_target)

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(sorted(self._targets))
