"""The plot of an identification: step responses, open loops, and margins by load. Knows matplotlib."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from ops.tune.choose import MIN_GAIN_MARGIN
from ops.tune.margins import open_loop_W, terms
from ops.tune.report import Found, Report, place_of, process_of
from streams.control.gains import DEFAULT_GAINS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_IN: Final = (12.0, 4.2)
_DPI: Final = 90
# Of the axes that a critical point lies on.
_REACH: Final = 1.6


def write_plot(report: Report, path: Path) -> None:
    """Draw a report into a PNG file."""
    import matplotlib as mpl

    # No display is wanted, and none need be there.
    mpl.use("agg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=_SIZE_IN, layout="constrained")
    _responses(left, report)
    _open_loops(middle, report)
    _by_load(right, report)
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, loc="best")
    # No date in the file: equal runs give equal bytes.
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    pyplot.close(figure)


def _responses(axes: "Axes", report: Report) -> None:
    """The gentlest and the steepest point, as loops see them: times the weight of the position."""
    ordered = sorted(report.points, key=_steepness)
    for point in [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered:
        weight = max(DEFAULT_GAINS.gain_floor, point.position)
        num = len(point.response)
        fit_J = weight * process_of(point).response_J(num)
        drawn = axes.plot(np.arange(num + 1), [0.0, *fit_J], linewidth=1.0)
        label = f"{point.scenario} at {point.position:g}: dead {point.dead_ticks:.2f}, lag {point.lag_ticks:.2f}"
        measured_J = weight * np.array(point.response)
        axes.plot(np.arange(1, num + 1), measured_J, "o", markersize=4, color=drawn[0].get_color(), label=label)
    axes.set_xlabel("ticks after the step")
    axes.set_ylabel("error per share of the span, x weight")
    axes.set_title("step responses (points) and processes (lines)", fontsize=9)


def _open_loops(axes: "Axes", report: Report) -> None:
    for number, point in enumerate(report.points):
        place = place_of(point)
        for style, rise_share in (("-", None), (":", place.rise_share)):
            loop_W = open_loop_W(place.process, terms(DEFAULT_GAINS, position=place.position, rise_share=rise_share))
            label = ("falls" if rise_share is None else "rises") if number == 0 else None
            axes.plot(loop_W.real, loop_W.imag, style, color="tab:blue", linewidth=0.6, alpha=0.7, label=label)
    turn = np.linspace(0.0, 2.0 * np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), color="gray", linewidth=0.6)
    axes.plot([-1.0], [0.0], "x", color="tab:red", label="critical point")
    axes.plot([-1.0 / MIN_GAIN_MARGIN], [0.0], "|", markersize=12, color="tab:orange", label="gain margin 2")
    axes.set_xlim(-_REACH, 0.6)
    axes.set_ylim(-_REACH, 0.6)
    axes.set_aspect("equal")
    axes.set_title("open loops, default gains", fontsize=9)


def _by_load(axes: "Axes", report: Report) -> None:
    kept = [(point.load, point.default.gain) for point in report.points if point.default.gain is not None]
    beyond = [
        (point.unbudgeted.load, point.unbudgeted.default.gain)
        for point in report.points
        if point.unbudgeted is not None and point.unbudgeted.default.gain is not None
    ]
    if kept:
        axes.plot(*zip(*kept, strict=True), "o", markersize=4, label="where the loop comes to rest")
    if beyond:
        axes.plot(*zip(*beyond, strict=True), "x", markersize=4, color="gray", label="where it would without a budget")
    axes.axhline(MIN_GAIN_MARGIN, color="tab:orange", linewidth=1.0, label="wanted")
    axes.axhline(1.0, color="tab:red", linewidth=1.0, label="unstable below")
    axes.set_yscale("log")
    axes.set_xlabel("load of the wide route")
    axes.set_ylabel("gain margin")
    axes.set_title("margins by load, default gains", fontsize=9)


def _steepness(point: Found) -> float:
    return -point.gain * max(DEFAULT_GAINS.gain_floor, point.position)
