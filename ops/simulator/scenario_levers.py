"""What a cell's levers may spend, from the tables of a scenario: read strictly, like all of it."""

from typing import Any, cast, get_args

from ops.simulator.toml_table import Table
from schemas.records import AcceleratorFit, CurvePoint, LeverTerms, ValueCurve
from schemas.records.fields import Lever

_KIND = r"[a-z0-9][a-z0-9._-]{0,99}"


def lever_limits(table: Table) -> dict[str, Any]:
    """Fields of ``CellLimits`` for everything beside the candidate loop, from a table of ``cells``."""
    return {
        "upstream_limit_ms": table.number("upstream_limit_ms", at_least=0.0, at_most=60_000.0, default=0.0),
        "powerful_limit_ms": table.number("powerful_limit_ms", at_least=0.0, at_most=60_000.0, default=0.0),
        "units_per_upgrade": table.number("units_per_upgrade", at_least=0.0, at_most=1e9, default=0.0),
        "max_coverage": table.number("max_coverage", at_least=0.0, at_most=1.0, default=0.0),
        "exploration_share": table.number("exploration_share", at_least=0.0, at_most=1.0, default=0.05),
        "levers": _levers(table),
    }


def _levers(table: Table) -> list[LeverTerms]:
    levers: list[LeverTerms] = []
    for terms in table.tables("levers"):
        name = cast(Lever, terms.text("lever", choices=get_args(Lever)))
        if name in [lever.lever for lever in levers]:
            terms.fail("lever", f"{name!r} stands twice")
        startup_s = terms.number("startup_s", at_least=0.0, at_most=86_400.0, default=0.0)
        max_share = terms.number("max_share", at_least=0.0, at_most=1.0, default=1.0)
        floor_share = terms.number("floor_share", at_least=0.0, at_most=max_share, default=0.0)
        fits, curves = _fits(terms), _curves(terms)
        terms.finish()
        levers.append(
            LeverTerms(
                lever=name, fits=fits, startup_s=startup_s, max_share=max_share, floor_share=floor_share, curves=curves
            )
        )
    return levers


def _fits(terms: Table) -> list[AcceleratorFit]:
    fits: list[AcceleratorFit] = []
    for table in terms.tables("fits"):
        accelerator = table.text("accelerator", pattern=_KIND)
        if accelerator in [fit.accelerator for fit in fits]:
            table.fail("accelerator", f"{accelerator!r} stands twice")
        fits.append(
            AcceleratorFit(
                accelerator=accelerator,
                units_per_unit_s=table.number("units_per_unit_s", at_least=1.0, at_most=1e9),
                cpu_cores_per_unit=table.number("cpu_cores_per_unit", at_least=0.0, at_most=1e6, default=0.0),
                memory_bytes_per_unit=table.count("memory_bytes_per_unit", at_least=0, at_most=1 << 50, default=0),
            )
        )
        table.finish()
    if not fits:
        terms.fail("fits", "at least one accelerator is wanted")
    return fits


def _curves(terms: Table) -> list[ValueCurve]:
    curves: list[ValueCurve] = []
    for table in terms.tables("curves"):
        points: list[CurvePoint] = []
        for point in table.tables("points"):
            least = points[-1].work_units_s if points else 0.0
            work_units_s = point.number("work_units_s", at_least=0.0, at_most=1e12)
            if work_units_s <= least:
                point.fail("work_units_s", f"must rise from point to point, is {work_units_s:g} after {least:g}")
            points.append(
                CurvePoint(
                    work_units_s=work_units_s,
                    value_s=point.number("value_s", at_least=0.0, at_most=1e12),
                    error_s=point.number("error_s", at_least=0.0, at_most=1e12, default=0.0),
                )
            )
            point.finish()
        segment = table.text("segment", pattern=".{1,128}")
        table.finish()
        curves.append(ValueCurve(segment=segment, points=points))
    return curves
