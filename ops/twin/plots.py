"""Plots of a simulation as PNG files. The only place that knows matplotlib."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ops.twin.metrics import CellRun, Run, Tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_IN: Final = (9.0, 4.0)
_DPI: Final = 110
_HOUR_S: Final = 3_600.0
_MAX_CELLS: Final = 8

_Series = NDArray[np.float64]


def write_plots(run: Run, folder: Path) -> list[Path]:
    """Write every plot of a run into ``folder``; returns the files, in the order of their names."""
    import matplotlib as mpl

    # No display is wanted, and none need be there.
    mpl.use("agg")
    from matplotlib import pyplot

    cells = run.cells[:_MAX_CELLS]
    paths: list[Path] = []
    for name, draw in sorted(_PLOTS.items()):
        figure, axes = pyplot.subplots(figsize=_SIZE_IN, layout="constrained")
        for cell in cells:
            draw(axes, cell, len(cells) > 1)
        in_hours = run.duration_s >= 4 * _HOUR_S
        axes.set_xlabel("hours after the warm-up" if in_hours else "seconds after the warm-up")
        if in_hours:
            axes.xaxis.set_major_formatter(lambda at_s, _place: f"{at_s / _HOUR_S:g}")
        shown = f", the first {len(cells)} of {len(run.cells)} cells" if len(cells) < len(run.cells) else ""
        axes.set_title(f"{run.scenario}: {name} ({run.controller}, by {run.detail}{shown})", fontsize=10)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8, loc="best")
        path = folder / f"{name}.png"
        # No date in the file: equal runs give equal bytes.
        figure.savefig(path, dpi=_DPI, metadata={"Software": None})
        pyplot.close(figure)
        paths.append(path)
    return paths


def _capacity(axes: "Axes", cell: CellRun, is_one_of_many: bool) -> None:
    names = sorted({pool.accelerator for tick in cell.ticks for pool in tick.pools})
    for name in names:
        _line(axes, cell, f"{name} usable", lambda tick, name=name: _pool(tick, name, None), is_one_of_many)
        levers = sorted(
            {
                grant.lever
                for tick in cell.ticks
                for pool in tick.pools
                if pool.accelerator == name
                for grant in pool.levers
            }
        )
        for lever in [] if is_one_of_many else levers:
            _line(axes, cell, f"{name} {lever} at work", lambda t, n=name, lv=lever: _pool(t, n, lv), False, style="--")
    axes.set_ylabel("accelerator units")


def _targets(axes: "Axes", cell: CellRun, is_one_of_many: bool) -> None:
    _line(axes, cell, "candidate target", lambda tick: tick.candidate_target, is_one_of_many)
    axes.set_ylabel("candidates per request")


def _coverage(axes: "Axes", cell: CellRun, is_one_of_many: bool) -> None:
    _line(axes, cell, "target", lambda tick: tick.coverage_target, is_one_of_many)
    _line(axes, cell, "routed", lambda tick: tick.coverage, is_one_of_many, style=":")
    axes.set_ylabel("share of requests")
    axes.set_ylim(-0.02, 1.02)


def _latency(axes: "Axes", cell: CellRun, is_one_of_many: bool) -> None:
    _line(axes, cell, "results p99", lambda tick: tick.latency_p99_ms, is_one_of_many)
    if not is_one_of_many:
        for route in sorted({route.route for tick in cell.ticks for route in tick.routes}):
            _line(axes, cell, f"{route} p99", lambda tick, route=route: _route_p99_ms(tick, route), False, style="--")
        _line(axes, cell, "upstream p99", lambda tick: tick.upstream_p99_ms, False, style=":")
    axes.set_ylabel("ms")


def _shed(axes: "Axes", cell: CellRun, is_one_of_many: bool) -> None:
    reasons = sorted(
        {(account.lever, shed.reason) for tick in cell.ticks for account in tick.accounts for shed in account.sheds}
    )
    for lever, reason in reasons:
        _line(
            axes,
            cell,
            f"{lever} {reason}",
            lambda tick, lever=lever, reason=reason: _shed_share(tick, lever, reason),
            is_one_of_many,
        )
    axes.set_ylabel("share of what was offered")


def _value(axes: "Axes", cell: CellRun, is_one_of_many: bool) -> None:
    for lever in sorted({each.lever for tick in cell.ticks for each in tick.earned}):
        _line(axes, cell, f"earned by {lever}", lambda tick, lever=lever: _earned_share(tick, lever), is_one_of_many)
    axes.set_ylabel("added to the value of base work, share")


_PLOTS: Final[dict[str, Callable[["Axes", CellRun, bool], None]]] = {
    "capacity": _capacity,
    "coverage": _coverage,
    "latency": _latency,
    "shed": _shed,
    "targets": _targets,
    "value": _value,
}


def _line(
    axes: "Axes",
    cell: CellRun,
    label: str,
    figure: Callable[..., float | None],
    is_one_of_many: bool,
    *,
    style: str = "-",
) -> None:
    values = _series(cell.ticks, figure)
    if np.isnan(values).all():
        return
    at_s = np.array([tick.at_s for tick in cell.ticks])
    axes.plot(at_s, values, style, linewidth=1.0, label=f"{cell.cell} {label}" if is_one_of_many else label)


def _series(ticks: Sequence[Tick], figure: Callable[..., Any]) -> _Series:
    return np.array([np.nan if (value := figure(tick)) is None else float(value) for tick in ticks])


def _pool(tick: Tick, name: str, lever: str | None) -> float | None:
    for pool in tick.pools:
        if pool.accelerator == name:
            if lever is None:
                return pool.usable_units
            return sum(grant.ready_units for grant in pool.levers if grant.lever == lever)
    return None


def _route_p99_ms(tick: Tick, route: str) -> float | None:
    return next((each.p99_ms for each in tick.routes if each.route == route), None)


def _shed_share(tick: Tick, lever: str, reason: str) -> float:
    for account in tick.accounts:
        if account.lever == lever and account.offered:
            return sum(shed.units for shed in account.sheds if shed.reason == reason) / account.offered
    return 0.0


def _earned_share(tick: Tick, lever: str) -> float | None:
    if tick.base_value_micro == 0:
        return None
    return sum(each.value_micro for each in tick.earned if each.lever == lever) / tick.base_value_micro
