"""What a tick takes from what is measured: who is to be upgraded first, what it earns, and what is taken back. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.records import CellLimits, DepthValue, UpgradeValue, ValueCurve, WindowRef
from schemas.records.fields import Lever
from streams.control.uplift.curves import depth_values, lever_curves
from streams.control.uplift.exploration import segment_gains, upgrade_values, upper_bounds
from streams.control.uplift.guardrails import levers_at_base, owed_floors
from streams.control.uplift.state import MeasurementState


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is known at a tick; empty before anything was measured.

    ``estimates`` are upper bounds of value per upgrade by segment, ``upgrade_values`` the expected gain of one,
    ``depth_values`` the clicks that candidates earn by retrieval position. ``curves`` are measured value curves by
    lever. ``at_base`` are the levers that a guardrail takes back to base, by segment, ``owed`` the floors that
    segments are owed (``coverage.shares``). ``taken`` are the measurement windows taken in since the last tick.
    """

    estimates: Mapping[str, float] = field(default_factory=dict)
    upgrade_values: tuple[UpgradeValue, ...] = ()
    depth_values: tuple[DepthValue, ...] = ()
    curves: Mapping[Lever, tuple[ValueCurve, ...]] = field(default_factory=dict)
    at_base: Mapping[str, tuple[Lever, ...]] = field(default_factory=dict)
    owed: Mapping[str, float] = field(default_factory=dict)
    taken: tuple[WindowRef, ...] = ()

    def segments_at_base(self, lever: Lever) -> frozenset[str]:
        """Segments in which a guardrail takes the lever back to base; ``(all)`` stands for the cell."""
        return frozenset(segment for segment, levers in self.at_base.items() if lever in levers)


def summary(state: MeasurementState, *, limits: CellLimits | None = None, fair_share: float = 0.0) -> Measured:
    """What a tick takes from the state after it, ``fair_share`` as in ``guardrails``.

    Curves and depths hang on the cell's ``limits``: none without them.
    """
    if not state.segments:
        return Measured(taken=state.taken)
    gains = segment_gains(state)
    crossed = {name: levers_at_base(sums) for name, sums in sorted(state.segments.items())}
    return Measured(
        estimates=upper_bounds(gains),
        upgrade_values=upgrade_values(gains),
        depth_values=depth_values(state, base_candidates=limits.base_candidates) if limits is not None else (),
        curves=lever_curves(state, gains, limits=limits) if limits is not None else {},
        at_base={name: levers for name, levers in crossed.items() if levers},
        owed=owed_floors(state, fair_share=fair_share),
        taken=state.taken,
    )
