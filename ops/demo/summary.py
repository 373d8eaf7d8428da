"""The report in a few lines for a person. Pure."""

from collections.abc import Iterator
from typing import Any


def summary_lines(report: dict[str, Any]) -> Iterator[str]:
    """Lines of the report's main figures and each invariant."""
    scenario, requests, rma = report["scenario"], report["requests"], report["optional"]["rma"]
    yield ""
    yield (
        f"{scenario['name']}: {scenario['requests_per_s']} requests/s for {scenario['measured_s']:g} s after the "
        f"warm-up, deadline {scenario['deadline_ms']} ms"
    )
    lost = f"{requests['missing']} missing, {requests['duplicates']} duplicates"
    yield f"requests   {requests['accepted']} accepted, {lost}"
    yield (
        f"base       {requests['base_late']} late, {requests['base_missing']} missing; "
        f"{requests['base_late_in_warm_up']} late in the warm-up"
    )
    for phase, seen in report["latency_ms"].items():
        if seen["n"]:
            yield f"{phase:<10} p50 {seen['p50']:g} ms, p99 {seen['p99']:g} ms, {seen['n']} requests"
    yield f"extras     {_account(rma)}"
    upgrades = report["optional"]["sbm"]
    if upgrades["offered"]:
        flips = report["flips"]
        yield f"upgrades   {_account(upgrades)}; {flips['flipped']} of {flips['compared']} changed what was shown"
    reclaims = report["reclaims"]
    if reclaims["count"]:
        yield (
            f"reclaims   {reclaims['count']}, from the flip to the last optional chunk's end "
            f"{_ms(reclaims['reaction_ms'])}, to drained {_ms(reclaims['drained_ms'])}"
        )
    if report["reclaimed_share"] is not None:
        yield f"used       {report['reclaimed_share']:.1%} of the idle capacity that was offered"
    for name, times in report["restarts"].items():
        yield f"restarted  {name} {times} times"
    for topic, letters in report["dead_letters"].items():
        yield f"dead       {letters} letters of {topic}"
    if report["callers"].get("is_on_time") is False:
        lag_ms = report["callers"]["send_lag_ms"]["p99"]
        yield f"callers    sent late (p99 {lag_ms:.0f} ms): this machine has other work, or is too slow for the rate"
    for kind, file in report.get("files", {}).items():
        odd = ", ".join(f"{seen['rows']} {name}" for name, seen in file["dirty"].items()) or "none"
        factors = ", ".join(f"{name} {value:g}" for name, value in file["factors"].items())
        yield f"{kind:<10} {file['name']}: {file['used']} of {file['rows']} used, odd: {odd}; {factors or 'no factors'}"
    for name, why in report.get("not_judged", {}).items():
        yield f"not judged {name}: {why}"
    for row in report["invariants"]:
        yield f"{'held  ' if row['held'] else 'BROKEN'}     {row['name']}: {row['seen']}"


def _account(optional: dict[str, Any]) -> str:
    shed = ", ".join(f"{units} {reason}" for reason, units in optional["shed"].items()) or "none"
    return (
        f"{optional['offered']} offered = {optional['admitted']} admitted + {sum(optional['shed'].values())} shed"
        f" ({shed}) + {optional['late']} late + {optional['lost']} lost"
    )


def _ms(spread: dict[str, float | None]) -> str:
    if spread["max"] is None:
        return "-"
    return "0 ms, none was running" if spread["max"] == 0 else f"p50 {spread['p50']:g} ms, max {spread['max']:g} ms"
