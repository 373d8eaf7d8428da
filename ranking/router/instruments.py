"""The router's metrics and health, fed with the actions that it performs."""

from collections.abc import Callable

from ops.telemetry.declared import METRICS
from ops.telemetry.health import Check, HealthServer
from ops.telemetry.metrics import Metrics
from ranking.router.cell_intervals import MAX_CELLS
from schemas.records import LatencyInterval, RankingResult

# A loop that polls at least ten times a second and has not come round in this time is stuck.
STUCK_AFTER_MS = 10_000.0
OTHER_CELLS = "other"


class Instruments:
    """Counts what happened; knows when the loop last came round."""

    def __init__(self) -> None:
        self._metrics = Metrics(METRICS)
        self._labels: set[str] = set()
        self._last_round_ms = 0.0

    def server(self, *, port: int, now_ms: Callable[[], float], ready: dict[str, Check]) -> HealthServer:
        """Health server over these metrics; raises OSError when the port is in use."""

        def stuck() -> str | None:
            silent_ms = now_ms() - self._last_round_ms
            return f"no progress for {silent_ms / 1000:.0f} s" if silent_ms > STUCK_AFTER_MS else None

        return HealthServer(self._metrics, live={"loop": stuck}, ready={"loop": stuck, **ready}, port=port)

    def render(self) -> bytes:
        """The text exposition of all that was counted."""
        return self._metrics.render()

    def round(self, now_ms: float) -> None:
        """The loop has come round."""
        self._last_round_ms = now_ms

    def result(self, result: RankingResult, *, is_reported: bool) -> None:
        """A result is on its way; those of cells that are not reported share one label, as callers name them."""
        cell = self._label(result.cell) if is_reported else OTHER_CELLS
        if result.status == "error":
            outcome = "error"
        elif result.degraded:
            outcome = "degraded"
        elif result.late:
            outcome = "late"
        else:
            outcome = "partial" if any(item.state == "pending" for item in result.optional) else "complete"
        self._metrics.counter("intertidal_results_total").labels(cell, outcome).inc()
        if result.status == "ok":
            latency = self._metrics.histogram("intertidal_answer_latency_seconds").labels(cell)
            latency.observe(result.latency_us / 1e6)

    def interval(self, interval: LatencyInterval) -> None:
        """An interval was closed."""
        cell = self._label(interval.cell)
        self._metrics.counter("intertidal_requests_total").labels(cell).inc(interval.num_requests)
        for route in interval.routes:
            if route.route == "baseline":
                self._metrics.counter("intertidal_base_retries_total").labels(cell).inc(route.num_retried)
        units = self._metrics.counter("intertidal_optional_units_total")
        for account in interval.accounts:
            units.labels(account.lever, "admitted", "").inc(account.admitted)
            units.labels(account.lever, "late", "").inc(account.late)
            units.labels(account.lever, "lost", "").inc(account.lost)
            for shed in account.sheds:
                units.labels(account.lever, "shed", shed.reason).inc(shed.units)

    def _label(self, cell: str) -> str:
        # A label lives as long as the process, whatever becomes of its cell.
        if cell not in self._labels and len(self._labels) < MAX_CELLS:
            self._labels.add(cell)
        return cell if cell in self._labels else OTHER_CELLS

    def read(self, topic: str, num: int = 1) -> None:
        """Records were read."""
        self._metrics.counter("intertidal_records_read_total").labels(topic).inc(num)

    def dead_letter(self, topic: str, reason: str) -> None:
        """A record was refused."""
        self._metrics.counter("intertidal_dead_letters_total").labels(topic, reason).inc()

    def shut_out(self, cell: str) -> None:
        """A target came from a controller that another has taken over from."""
        self._metrics.counter("intertidal_shut_out_targets_total").labels(cell).inc()

    def duplicates(self, topic: str, num: int) -> None:
        """Records were seen before and dropped."""
        self._metrics.counter("intertidal_duplicates_total").labels(topic).inc(num)
