"""A range in a few hundred steps of time, all cells together: steps widen as the range grows. Pure."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from ops.report.capacity import taken_micro, usable_micro
from ops.report.model import Moment, Series
from schemas.histogram import ExponentialHistogram
from schemas.records import ControlWindow
from streams.control.facts import MICRO, histogram_of

MAX_STEPS: Final = 240


@dataclass(kw_only=True)
class _Step:
    latency: ExponentialHistogram = field(default_factory=ExponentialHistogram)
    num_requests: int = 0
    num_routed: int = 0
    num_told: int = 0
    offered: int = 0
    admitted: int = 0
    extras: int = 0
    idle: int = 0
    usable: int = 0
    taken_micro: int = 0
    num_reclaims: int = 0
    capacity_ms: int = 0
    cells: set[str] = field(default_factory=set)

    def merge(self, other: "_Step") -> None:
        self.latency.add(other.latency)
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.cells |= other.cells


_COUNTS: Final = tuple(name for name in _Step.__dataclass_fields__ if name not in ("latency", "cells"))


class SeriesTally:
    """Steps of a window's length at first, and of twice that each time that there are too many."""

    def __init__(self) -> None:
        self._width_ms = 0
        self._steps: dict[int, _Step] = {}

    def add(self, window: ControlWindow) -> None:
        """Take in a capacity or latency window; others say nothing here."""
        if window.capacity is None and window.latency is None:
            return
        self._width_ms = self._width_ms or window.end_ms - window.start_ms
        step = self._steps.setdefault(window.start_ms // self._width_ms, _Step())
        if window.capacity is not None:
            _add_capacity(step, window)
        if window.latency is not None:
            _add_latency(step, window)
        while len(self._steps) > MAX_STEPS:
            self._widen()

    def series(self) -> Series:
        """The steps in order."""
        return Series(
            step_s=self._width_ms / 1e3,
            moments=[_moment(number * self._width_ms, step) for number, step in sorted(self._steps.items())],
        )

    def _widen(self) -> None:
        self._width_ms *= 2
        wider: dict[int, _Step] = {}
        for number, step in sorted(self._steps.items()):
            if (merged := wider.get(number // 2)) is None:
                wider[number // 2] = step
            else:
                merged.merge(step)
        self._steps = wider


def _add_capacity(step: _Step, window: ControlWindow) -> None:
    assert window.capacity is not None
    window_ms = window.end_ms - window.start_ms
    step.capacity_ms += window_ms
    step.cells.add(window.cell)
    for pool in window.capacity.pools:
        step.idle += pool.units_micro * window_ms
        step.usable += usable_micro(pool) * window_ms
        step.taken_micro += taken_micro(pool)
        step.num_reclaims += pool.num_reclaims + pool.num_hosts_silent


def _add_latency(step: _Step, window: ControlWindow) -> None:
    latency = window.latency
    assert latency is not None
    try:
        step.latency.add(histogram_of(latency.latency))
    except ValueError:
        return
    step.num_requests += latency.num_requests
    step.num_told += sum(traffic.num_requests for traffic in latency.segments)
    step.num_routed += sum(traffic.num_routed for traffic in latency.segments)
    for account in latency.accounts:
        step.offered += account.offered
        step.admitted += account.admitted
        step.extras += account.offered if account.lever == "rma" else 0


def _moment(start_ms: int, step: _Step) -> Moment:
    # The mean level of a cell, times the cells: a step may hold more windows of one cell than of another.
    level = len(step.cells) / (step.capacity_ms * MICRO) if step.capacity_ms else None
    return Moment(
        start=datetime.fromtimestamp(start_ms / 1e3, UTC),
        num_requests=step.num_requests,
        p99_ms=None if (p99 := step.latency.quantile(0.99)) is None else round(p99, 3),
        idle_units=None if level is None else step.idle * level,
        usable_units=None if level is None else step.usable * level,
        taken_units=step.taken_micro / MICRO,
        num_reclaims=step.num_reclaims,
        extra_candidates=step.extras / step.num_requests if step.num_requests else None,
        coverage=step.num_routed / step.num_told if step.num_told else None,
        dropped_share=1.0 - step.admitted / step.offered if step.offered else None,
    )
