"""The most that could have been earned: by somebody who knows the future, is never late, and needs no headroom.

For every window the mean capacity that each lever could have had (units offered for longer than its start-up, for as
long as they stay) is split over the levers in the best way of a fine grid, and spent at the largest load a queue can
carry. Upgrades go where they gain most. Value is concave in work, so the mean over a window earns at least what its
parts would: a bound from above, not a controller.

Shape legend: K windows, P pools, S segments, W widths.
"""

import itertools
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.twin.grants import Fit, fits_of
from ops.twin.metrics import CellRun, Earned, Tick
from ops.twin.play import CellPlay
from ops.twin.supply import Stay, stays_of
from ops.twin.value import ValueTable
from schemas.records.fields import Lever

NAME: Final = "oracle"
_MAX_LOAD: Final = 0.98
_STEPS: Final = 20
_MICRO: Final = 1_000_000

_Series = NDArray[np.float64]


def oracle_run(play: CellPlay, table: ValueTable) -> CellRun:
    """The bound of every window of a cell."""
    pools = _Pools(play)
    worth = _Worth(play, table)
    best_K = np.full(play.schedule.num_windows, -1.0)
    chosen = [np.zeros_like(best_K) for _ in range(4)]
    steps = np.linspace(0.0, 1.0, _STEPS + 1).tolist() if pools.is_shared else [0.0]
    for shares in itertools.product(steps, repeat=len(pools.accelerators)):
        candidate = worth.of(*pools.capacities(shares))
        value_K = candidate[0] + candidate[1]
        is_better_K = value_K > best_K
        best_K = np.where(is_better_K, value_K, best_K)
        chosen = [np.where(is_better_K, new_K, old_K) for new_K, old_K in zip(candidate, chosen, strict=True)]
    return CellRun(cell=play.name, ticks=_ticks(play, pools, worth, chosen))


class _Pools:
    """Mean units of each pool, by window and lever."""

    def __init__(self, play: CellPlay) -> None:
        self.accelerators, stays = stays_of(play.hosts, play.events)
        self._fits = fits_of(play.limits, self.accelerators)
        self._speed_K = play.schedule.speed_K
        self.units_PK = [_mean_units(play, stays[pool], 0.0) for pool in range(len(self.accelerators))]
        self._cores_PK = [
            _mean_units(play, [stay._replace(units=stay.cpu_cores) for stay in stays[pool]], 0.0)
            for pool in range(len(self.accelerators))
        ]
        self._memory_PK = [
            _mean_units(play, [stay._replace(units=stay.memory_bytes) for stay in stays[pool]], 0.0)
            for pool in range(len(self.accelerators))
        ]
        self._grown: dict[tuple[Lever, int], _Series] = {
            (lever, pool): _mean_units(play, stays[pool], fit.startup_s)
            for lever, fits in self._fits.items()
            for pool, fit in fits.items()
        }
        self.num_reclaims_K = _reclaims(play)

    @property
    def is_shared(self) -> bool:
        """Whether there is anything to split."""
        return "rma" in self._fits and "sbm" in self._fits

    def capacities(self, shares: tuple[float, ...]) -> tuple[_Series, _Series]:
        """Work units per second of RMA and SBM in each window, SBM first having its share of each pool: float64 [K]."""
        rma_K, sbm_K = np.zeros_like(self._speed_K), np.zeros_like(self._speed_K)
        for pool, share in enumerate(shares):
            left_K, cores_K, memory_K = self.units_PK[pool], self._cores_PK[pool], self._memory_PK[pool]
            for lever, most_K, total_K in (("sbm", share * left_K, sbm_K), ("rma", left_K, rma_K)):
                fit = self._fits.get(lever, {}).get(pool)  # type: ignore[call-overload]
                if fit is None:
                    continue
                units_K = np.minimum(np.minimum(most_K, left_K), self._grown[lever, pool])  # type: ignore[index]
                units_K = np.minimum(units_K, _by(cores_K, fit.cpu_cores_per_unit))
                units_K = np.minimum(units_K, _by(memory_K, float(fit.memory_bytes_per_unit)))
                left_K = left_K - units_K
                cores_K = cores_K - units_K * fit.cpu_cores_per_unit
                memory_K = memory_K - units_K * fit.memory_bytes_per_unit
                np.add(total_K, units_K * self._work_s(fit), out=total_K)
        return rma_K, sbm_K

    def _work_s(self, fit: Fit) -> _Series:
        return _MAX_LOAD * fit.units_per_unit_s * self._speed_K


class _Worth:
    """What capacity earns at the rates and mixes of the windows."""

    def __init__(self, play: CellPlay, table: ValueTable) -> None:
        self._play = play
        self._table = table
        self._limits = play.limits
        self._rates_K = play.schedule.nums_K / play.window_s
        self._mix_KS = _mixes(play, table)
        self._base_S = table.baseline_SW[:, 0]
        self._gain_S = table.upgraded_SW[:, 0] - self._base_S
        self.base_K = self._rates_K * (self._mix_KS @ self._base_S)
        self._extra_KW = self._mix_KS @ (table.baseline_SW - self._base_S[:, None])
        self._extra_upgraded_KW = self._mix_KS @ (table.upgraded_SW - table.upgraded_SW[:, :1])

    def of(self, rma_K: _Series, sbm_K: _Series) -> tuple[_Series, _Series, _Series, _Series]:
        """Value per second of RMA and of SBM, extras per request, and coverage: float64 [K] each."""
        rates_K = np.maximum(self._rates_K, 1e-9)
        span = self._limits.max_candidates - self._limits.base_candidates
        extras_K = np.minimum(rma_K / rates_K, span)
        coverage_K = np.zeros_like(rates_K)
        if self._limits.units_per_upgrade > 0.0:
            coverage_K = np.minimum(sbm_K / rates_K / self._limits.units_per_upgrade, self._limits.max_coverage)
        sbm_value_K, left_K = np.zeros_like(rates_K), coverage_K
        for row in np.argsort(-self._gain_S, kind="stable"):
            taken_K = np.minimum(left_K, self._mix_KS[:, row])
            sbm_value_K = sbm_value_K + taken_K * self._gain_S[row]
            left_K = left_K - taken_K
        plain_K = _at(self._table.widths_W, self._extra_KW, self._limits.base_candidates + extras_K)
        # Extras beside an upgrade may earn less or more: the larger of the two, as this is a bound.
        upgraded_K = _at(self._table.widths_W, self._extra_upgraded_KW, self._limits.base_candidates + extras_K)
        rma_value_K = (1.0 - coverage_K) * plain_K + coverage_K * np.maximum(plain_K, upgraded_K)
        return self._rates_K * rma_value_K, self._rates_K * sbm_value_K, extras_K, coverage_K


def _ticks(play: CellPlay, pools: _Pools, worth: _Worth, chosen: list[_Series]) -> list[Tick]:
    rma_K, sbm_K, extras_K, coverage_K = (each.tolist() for each in chosen)
    window_s = play.window_s
    units_K = np.sum(pools.units_PK, axis=0) if pools.units_PK else np.zeros_like(worth.base_K)
    busy_K = _busy_units(play, pools, chosen)
    return [
        Tick(
            cell=play.name,
            at_s=(index + 1) * window_s - play.scenario.warm_up_s,
            pools=[],
            candidate_target=play.limits.base_candidates + int(extras_K[index]),
            reason=NAME,
            coverage_target=coverage_K[index],
            coverage_reason=NAME,
            num_requests=int(play.schedule.nums_K[index]),
            num_upgraded=round(coverage_K[index] * int(play.schedule.nums_K[index])),
            coverage=coverage_K[index],
            latency_p99_ms=None,
            upstream_p99_ms=None,
            routes=[],
            accounts=[],
            num_base_late=0,
            num_reclaims=int(pools.num_reclaims_K[index]),
            usable_unit_s=float(units_K[index]) * window_s,
            busy_unit_s=float(busy_K[index]) * window_s,
            base_value_micro=round(float(worth.base_K[index]) * window_s * _MICRO),
            earned=[
                Earned(lever="rma", value_micro=round(rma_K[index] * window_s * _MICRO)),
                Earned(lever="sbm", value_micro=round(sbm_K[index] * window_s * _MICRO)),
            ],
        )
        for index in range(play.schedule.num_windows)
    ]


def _busy_units(play: CellPlay, pools: _Pools, chosen: list[_Series]) -> _Series:
    """Units that the work done keeps busy, at the fastest accelerator of each lever."""
    busy_K = np.zeros_like(chosen[0])
    fits = fits_of(play.limits, pools.accelerators)
    rates_K = play.schedule.nums_K / play.window_s
    work = {"rma": rates_K * chosen[2], "sbm": rates_K * chosen[3] * play.limits.units_per_upgrade}
    for lever, work_K in work.items():
        speeds = [fit.units_per_unit_s for fit in fits.get(lever, {}).values()]  # type: ignore[call-overload]
        if speeds:
            busy_K += work_K / (max(speeds) * play.schedule.speed_K)
    return busy_K


def _mean_units(play: CellPlay, stays: list[Stay], startup_s: float) -> _Series:
    """Mean of the units that were there for longer than ``startup_s`` over each window: float64 [K]."""
    num, window_s = play.schedule.num_windows, play.window_s
    if not stays:
        return np.zeros(num)
    units = np.array([stay.units for stay in stays])
    starts = np.array([max(stay.from_s, stay.since_s + startup_s) for stay in stays])
    ends = np.minimum(np.array([stay.until_s for stay in stays]), num * window_s)
    is_long = starts < ends
    units, starts, ends = units[is_long], starts[is_long], ends[is_long]
    # The integral of a step at t up to the edges of the windows is units x max(0, edge - t): as two running sums.
    times = np.concatenate((starts, ends))
    steps = np.concatenate((units, -units))
    order = np.argsort(times, kind="stable")
    times, steps = times[order], steps[order]
    edges = window_s * np.arange(num + 1)
    passed = np.searchsorted(times, edges, side="right")
    sums = np.append(0.0, np.cumsum(steps))[passed]
    moments = np.append(0.0, np.cumsum(steps * times))[passed]
    means_K: _Series = np.diff(edges * sums - moments) / window_s
    return np.maximum(means_K, 0.0)


def _reclaims(play: CellPlay) -> NDArray[np.int64]:
    times_s = np.array([event.at_s for event in play.events if event.action == "reclaim"])
    indices = np.minimum((times_s / play.window_s).astype(np.int64), play.schedule.num_windows - 1)
    return np.bincount(indices, minlength=play.schedule.num_windows)


def _mixes(play: CellPlay, table: ValueTable) -> NDArray[np.float64]:
    """Shares of the segments in each window: float64 [K, S]."""
    num = play.schedule.num_windows
    mix_KS = np.tile(table.shares_S, (num, 1))
    starts_K = np.arange(num) * play.window_s - play.scenario.warm_up_s
    for mix in play.scenario.twin.mixes:
        mix_KS[starts_K >= mix.at_s] = [dict(mix.shares)[name] for name in table.segments]
    return mix_KS


def _at(widths_W: _Series, values_KW: NDArray[np.float64], width_K: _Series) -> _Series:
    """Each row's value at its width, linear in between."""
    right_K = np.clip(np.searchsorted(widths_W, width_K), 1, len(widths_W) - 1)
    low_K, high_K = widths_W[right_K - 1], widths_W[right_K]
    weight_K = np.clip((width_K - low_K) / (high_K - low_K), 0.0, 1.0)
    rows = np.arange(len(width_K))
    value_K: _Series = values_KW[rows, right_K - 1] * (1.0 - weight_K) + values_KW[rows, right_K] * weight_K
    return value_K


def _by(have_K: _Series, per_unit: float) -> _Series:
    """Units that a resource is enough for."""
    return np.maximum(have_K, 0.0) / per_unit if per_unit > 0.0 else np.full_like(have_K, np.inf)
