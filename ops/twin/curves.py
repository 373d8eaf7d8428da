"""Value curves of a cell's levers from the world's truth: what could be known at best. Pure.

Shape legend: S segments, W widths.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from ops.twin.value import ValueTable, concave_points
from schemas.records import CellLimits, CurvePoint, LeverTerms, ValueCurve


def with_curves(limits: CellLimits, table: ValueTable, *, rates_S: NDArray[np.float64], factor: float) -> CellLimits:
    """Limits whose levers without curves have those of ``table`` at ``rates_S`` requests per second of each segment.

    Values are wrong by ``factor``: 1 is the truth.
    """
    levers = [
        terms if terms.curves else msgspec.structs.replace(terms, curves=_curves(terms, limits, table, rates_S, factor))
        for terms in limits.levers
    ]
    return msgspec.structs.replace(limits, levers=levers)


def _curves(
    terms: LeverTerms, limits: CellLimits, table: ValueTable, rates_S: NDArray[np.float64], factor: float
) -> list[ValueCurve]:
    curves = [
        ValueCurve(
            segment=name,
            points=[
                CurvePoint(work_units_s=work, value_s=factor * max(0.0, value))
                for work, value in _points(terms, limits, table, row, float(rates_S[row]))
            ],
        )
        for row, name in enumerate(table.segments)
        if rates_S[row] > 0.0
    ]
    return [curve for curve in curves if curve.points]


def _points(
    terms: LeverTerms, limits: CellLimits, table: ValueTable, row: int, rate_s: float
) -> list[tuple[float, float]]:
    """Work units per second and the value per second that they earn, concave."""
    base = float(table.baseline_SW[row, 0])
    if terms.lever == "rma":
        extras_W = table.widths_W[1:] - limits.base_candidates
        gains_W = table.baseline_SW[row, 1:] - base
        return concave_points((rate_s * extras_W).tolist(), (rate_s * gains_W).tolist())
    if terms.lever == "sbm" and limits.units_per_upgrade > 0.0:
        return [(rate_s * limits.units_per_upgrade, rate_s * (float(table.upgraded_SW[row, 0]) - base))]
    return []
