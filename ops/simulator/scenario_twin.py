"""The table ``twin`` of a scenario: what only a simulation plays."""

from ops.simulator.toml_table import Table
from ops.simulator.twin_settings import Day, Mix, Surge, TwinSettings, Upstream
from ops.simulator.world import WorldConfig

_DAY_S = 86_400.0
_MAX_COPIES = 10_000


def twin_settings(root: Table) -> TwinSettings:
    """Settings of the twin; the defaults where the table is absent. Raises ScenarioError."""
    table = root.table("twin")
    settings = TwinSettings(
        noise=table.flag("noise", default=True),
        copies=table.count("copies", at_least=1, at_most=_MAX_COPIES, default=1),
        phase_s=table.number("phase_s", at_least=0.0, at_most=_DAY_S, default=0.0),
        base_load=table.number("base_load", at_least=0.0, at_most=0.95, default=0.5),
        curves_from_world=table.flag("curves_from_world", default=True),
        curve_error=table.number("curve_error", at_least=0.0, at_most=100.0, default=1.0),
        powerful_noise_share=table.number("powerful_noise_share", at_least=0.0, at_most=1.0, default=0.3),
        day=_day(table.table("day")),
        upstream=_upstream(table.table("upstream")),
        surges=tuple(_surge(surge) for surge in table.tables("surges")),
        mixes=_mixes(table),
    )
    table.finish()
    return settings


def _day(table: Table) -> Day:
    day = Day(
        period_s=table.number("period_s", at_least=1.0, at_most=31 * _DAY_S, default=_DAY_S),
        swing=table.number("swing", at_least=0.0, at_most=1.0, default=0.0),
        peak_s=table.number("peak_s", at_least=0.0, at_most=31 * _DAY_S, default=0.0),
    )
    table.finish()
    return day


def _upstream(table: Table) -> Upstream:
    median_ms = table.number("median_ms", at_least=0.0, at_most=60_000.0, default=0.0)
    upstream = Upstream(
        median_ms=median_ms,
        p99_ms=table.number("p99_ms", at_least=median_ms, at_most=60_000.0, default=2.0 * median_ms),
        rise_share=table.number("rise_share", at_least=0.0, at_most=100.0, default=0.0),
    )
    table.finish()
    return upstream


def _surge(table: Table) -> Surge:
    surge = Surge(
        at_s=table.number("at_s", at_least=0.0, at_most=31 * _DAY_S),
        duration_s=table.number("duration_s", at_least=0.01, at_most=31 * _DAY_S),
        rate_factor=table.number("rate_factor", at_least=0.0, at_most=1_000.0, default=1.0),
        upstream_factor=table.number("upstream_factor", at_least=0.0, at_most=1_000.0, default=1.0),
        speed_factor=table.number("speed_factor", at_least=0.01, at_most=1_000.0, default=1.0),
    )
    table.finish()
    return surge


def _mixes(root: Table) -> tuple[Mix, ...]:
    mixes: list[Mix] = []
    for table in root.tables("mixes"):
        shares = table.table("shares")
        mix = Mix(
            at_s=table.number("at_s", at_least=0.0, at_most=31 * _DAY_S),
            shares=tuple(
                (segment.name, shares.number(segment.name, at_least=0.0, at_most=1.0, default=0.0))
                for segment in WorldConfig().segments
            ),
        )
        if abs(sum(share for _, share in mix.shares) - 1.0) > 1e-6:
            table.fail("shares", "must add up to 1")
        if mixes and mix.at_s <= mixes[-1].at_s:
            table.fail("at_s", "must rise from mix to mix")
        shares.finish()
        table.finish()
        mixes.append(mix)
    return tuple(mixes)
