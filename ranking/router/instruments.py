"""The router's metrics and health, fed with the actions that it performs."""

from collections.abc import Callable

from ops.telemetry.declared import METRICS
from ops.telemetry.health import Check, HealthServer
from ops.telemetry.metrics import Metrics
from schemas.records import LatencyInterval, RankingResult

# A loop that polls at least ten times a second and has not come round in this time is stuck.
STUCK_AFTER_MS = 10_000.0


class Instruments:
    """Counts what happened; knows when the loop last came round."""

    def __init__(self) -> None:
        self._metrics = Metrics(METRICS)
        self._last_round_ms = 0.0

    def server(self, *, port: int, now_ms: Callable[[], float], ready: dict[str, Check]) -> HealthServer:
        """Health server over these metrics; raises OSError when the port is in use."""

        def stuck() -> str | None:
            silent_ms = now_ms() - self._last_round_ms
            return f"no progress for {silent_ms / 1000:.0f} s" if silent_ms > STUCK_AFTER_MS else None

        return HealthServer(self._metrics, live={"loop": stuck}, ready={"loop": stuck, **ready}, port=port)

    def round(self, now_ms: float) -> None:
        """The loop has come round."""
        self._last_round_ms = now_ms

    def result(self, result: RankingResult) -> None:
        """A result is on its way."""
        if result.status == "error":
            outcome = "error"
        elif result.degraded:
            outcome = "degraded"
        elif result.late:
            outcome = "late"
        else:
            outcome = "partial" if any(item.state == "pending" for item in result.optional) else "complete"
        self._metrics.counter("intertidal_results_total").labels(result.cell, outcome).inc()
        if result.status == "ok":
            latency = self._metrics.histogram("intertidal_answer_latency_seconds").labels(result.cell)
            latency.observe(result.latency_us / 1e6)

    def interval(self, interval: LatencyInterval) -> None:
        """An interval was closed."""
        cell = interval.cell
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

    def read(self, topic: str, num: int = 1) -> None:
        """Records were read."""
        self._metrics.counter("intertidal_records_read_total").labels(topic).inc(num)

    def dead_letter(self, topic: str, reason: str) -> None:
        """A record was refused."""
        self._metrics.counter("intertidal_dead_letters_total").labels(topic, reason).inc()

    def duplicates(self, topic: str, num: int) -> None:
        """Records were seen before and dropped."""
        self._metrics.counter("intertidal_duplicates_total").labels(topic).inc(num)
