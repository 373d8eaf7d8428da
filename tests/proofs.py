"""What holds of every run, whatever went wrong in it."""

from collections.abc import Iterable

from ops.demo.report import LEVERS, account
from tests.kill_run import KillRun, up_to_newest

# Fewer would prove little.
MIN_REQUESTS = 300


def assert_nothing_is_lost_or_doubled(run: KillRun, *, without_base: Iterable[tuple[float, float]] = ()) -> None:
    """One result for each request, each with its base ranking; every optional item ends in one way.

    Results of requests asked within the spans ``without_base`` may lack the base ranking, and say so.
    """
    assert len(run.ledger.requests) > MIN_REQUESTS, run.evidence()
    assert run.admitted_ms(), f"no optional work: nothing that could be lost\n{run.evidence()}"
    missing = sorted(set(run.ledger.requests) - set(run.ledger.results))
    assert not missing, f"{len(missing)} without result, such as {missing[:3]}\n{run.evidence()}"
    num_doubled = run.ledger.num_results - len(run.ledger.results)
    assert num_doubled == 0, f"{num_doubled} results beyond the first\n{run.evidence()}"
    spans = list(without_base)
    broken = [
        seen.record
        for request_id, seen in run.ledger.results.items()
        if seen.record.degraded or seen.record.status != "ok"
        if not any(from_ms <= run.ledger.requests[request_id].append_ms <= to_ms for from_ms, to_ms in spans)
    ]
    assert not broken, f"{len(broken)} without base ranking, such as {broken[0]}\n{run.evidence()}"
    for lever in LEVERS:
        assert account(run.ledger, lever, run.ledger.results.values()).exact, run.evidence()


def assert_control_is_what_the_logs_give(run: KillRun) -> None:
    """Windows and targets are those of the pure processors, byte for byte; none behind a newer one."""
    windows, targets = run.windows_sent(), run.targets_sent()
    over_ms = max(each.ended_ms for each in run.faults)
    for kind in ("capacity", "latency", "target"):
        newest = max((index for of, _, index in (*windows, *targets) if of.startswith(kind)), default=-1)
        newest_end_ms = (newest + 1) * run.scenario.time.window_ms
        assert newest_end_ms > over_ms, f"no {kind} after the last fault\n{run.evidence()}"
    assert {key for key, values in windows.items() if len(values) > 1} == set(), run.evidence()
    assert windows == up_to_newest(run.windows_afresh(), windows), run.evidence()
    assert targets == up_to_newest(run.targets_afresh(), targets), run.evidence()
    assert run.targets_behind_newer() == [], run.evidence()
