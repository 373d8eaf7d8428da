"""A status in one line, for a pipe and for `grep`. Pure."""

from collections.abc import Iterator

from ops.status.model import CellStatus, Status
from ops.status.words import number


def status_line(status: Status) -> str:
    """Time, verdict, each cell, the longest lag of each part, dead letters; then what is wrong."""
    lags: dict[str, float] = {}
    for part in status.parts:
        name = part.part.partition(".")[0]
        if part.state != "unused" and part.lag_s is not None:
            lags[name] = max(lags.get(name, 0.0), part.lag_s)
    words = [status.time.isoformat(timespec="seconds"), f"{status.verdict.state:<9}"]
    words += [" ".join(_cell(cell)) for cell in status.cells if cell.state == "declared"]
    if lags:
        words.append("lag " + " ".join(f"{name} {lag_s:.1f} s" for name, lag_s in lags.items()))
    words.append(f"dead letters {sum(letters.num_open for letters in status.dead_letters)}")
    if status.verdict.state != "ok":
        words.append(status.verdict.line)
    return " ".join("  ".join(words).splitlines())


def _cell(cell: CellStatus) -> Iterator[str]:
    yield f"{cell.cell} {number(sum(pool.usable_units for pool in cell.pools))} units"
    if cell.target is not None:
        expired = ", expired" if cell.target.is_expired else ""
        yield f"target {cell.target.candidates} ({cell.target.reason}{expired})"
    if cell.latency is not None and cell.latency.p50_ms is not None and cell.latency.p99_ms is not None:
        limit = "" if cell.latency.limit_ms is None else f" of {number(cell.latency.limit_ms)}"
        yield f"p50/p99 {cell.latency.p50_ms:.0f}/{cell.latency.p99_ms:.0f}{limit} ms"
    sheds: dict[str, int] = {}
    for account in cell.optional:
        for reason, units in account.sheds.items():
            sheds[reason] = sheds.get(reason, 0) + units
    yield "shed " + (" ".join(f"{reason}={units}" for reason, units in sheds.items()) or "0")
    yield f"reclaims {cell.num_reclaims}"
