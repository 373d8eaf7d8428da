"""Which cells exist, from which window on, and within which limits they are steered."""

from msgspec import Struct

from schemas.records.fields import CellName, Count, Label, Name, Quantity, Share, WindowIndex
from schemas.records.levers import LeverTerms


class CellLimits(Struct, frozen=True, kw_only=True):
    """Limits within which a cell's controller moves.

    ``latency_limit_ms`` bounds the p99 of the time to the last wanted answer. ``rise_share`` is the largest rise of
    the candidate target in one tick as a share of its span. ``units_per_unit_s`` is the measured curve of the bundle:
    work units (candidates) that one usable accelerator unit scores in a busy second, used until the pool has been
    measured. ``utilisation`` is the share of the pool that the budget may plan with.

    ``upstream_limit_ms`` bounds the p99 of what callers spend on retrieval and features before ranking (0: not
    watched). ``powerful_limit_ms`` bounds the p99 of the powerful route (0: as ``latency_limit_ms``).
    ``units_per_upgrade`` is what serving one request by the powerful model costs in work units, until measured.
    Coverage stays at or below ``max_coverage`` (0: SBM is off); every segment keeps ``exploration_share`` of it.
    ``levers`` are the terms of the allocator; without any, RMA alone may use every pool.
    """

    base_candidates: Count
    max_candidates: Count
    latency_limit_ms: Quantity
    rise_share: Share = 0.1
    shed_allowance: Share = 0.01
    units_per_unit_s: Quantity = 50_000.0
    utilisation: Share = 0.7
    upstream_limit_ms: Quantity = 0.0
    powerful_limit_ms: Quantity = 0.0
    units_per_upgrade: Quantity = 0.0
    max_coverage: Share = 0.0
    exploration_share: Share = 0.05
    levers: list[LeverTerms] = []

    def __post_init__(self) -> None:
        if not 0 < self.base_candidates <= self.max_candidates:
            raise ValueError(
                f"base_candidates {self.base_candidates} must be positive and "
                f"at most max_candidates {self.max_candidates}"
            )
        if self.rise_share <= 0.0:
            raise ValueError("rise_share must be positive, or the target could never leave base")
        levers = [terms.lever for terms in self.levers]
        if len(set(levers)) != len(levers):
            raise ValueError("a lever is listed twice in levers")


class CellRevision(Struct, frozen=True, kw_only=True):
    """Limits of a cell from window ``from_window`` on, until the next revision."""

    from_window: WindowIndex
    limits: CellLimits


class CellDeclaration(Struct, frozen=True, kw_only=True):
    """A declared cell with all its revisions, oldest first, so that compaction removes no history.

    Window indices count windows of ``window_ms`` from the Unix epoch. From ``until_window`` on a cell is retired.
    """

    cell: CellName
    window_ms: Count
    revisions: list[CellRevision]
    until_window: WindowIndex | None = None
    providers: list[Name] = []
    note: Label = ""

    def __post_init__(self) -> None:
        windows = [revision.from_window for revision in self.revisions]
        if not windows or windows != sorted(set(windows)):
            raise ValueError(f"revisions: cell {self.cell} needs at least one, in rising order of from_window")

    def limits_at(self, window_index: int) -> CellLimits | None:
        """Limits in force in a window, or None where the cell is not declared for it."""
        if self.until_window is not None and window_index >= self.until_window:
            return None
        for revision in reversed(self.revisions):
            if revision.from_window <= window_index:
                return revision.limits
        return None
