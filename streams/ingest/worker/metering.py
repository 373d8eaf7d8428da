"""The worker's figures and its health."""

import time
from collections import Counter
from collections.abc import Sequence

from ops.telemetry.declared import METRICS
from ops.telemetry.metrics import Metrics
from streams.ingest.partition import Processed

# A loop that has not turned for so long hangs: longer than a delivery may take.
STUCK_AFTER_S = 60.0


class Metering:
    """Counts what the worker did, by names that ``ops.telemetry`` declares."""

    def __init__(self) -> None:
        self.metrics = Metrics(METRICS)
        self._read = self.metrics.counter("intertidal_records_read_total")
        self._dead = self.metrics.counter("intertidal_dead_letters_total")
        self._duplicates = self.metrics.counter("intertidal_duplicates_total")
        self._late = self.metrics.counter("intertidal_late_records_total")
        self._windows = self.metrics.counter("intertidal_windows_closed_total")
        self._lag = self.metrics.gauge("intertidal_read_lag_seconds")
        self._turned_s = time.monotonic()
        self.num_partitions = 0
        self.num_cells = 0

    def turned(self) -> None:
        """Note one turn of the loop."""
        self._turned_s = time.monotonic()

    def processed(self, topic: str, partition: int, *, appends_ms: Sequence[int], out: Processed) -> None:
        """Note a batch of one partition by the append times of its records."""
        self._read.labels(topic).inc(len(appends_ms))
        self._lag.labels(topic, str(partition)).set(max(0.0, time.time() - appends_ms[-1] / 1000.0))
        if out.num_duplicates:
            self._duplicates.labels(topic).inc(out.num_duplicates)
        if out.num_late:
            self._late.labels(topic).inc(out.num_late)
        for reason, count in Counter(refusal.error.reason for refusal in out.refusals).items():
            self._dead.labels(topic, reason).inc(count)
        for (cell, kind), count in Counter((window.cell, window.kind) for window in out.windows).items():
            self._windows.labels(cell, kind).inc(count)

    def why_not_live(self) -> str | None:
        """Why the worker hangs, None while its loop turns."""
        idle_s = time.monotonic() - self._turned_s
        return f"the loop has not turned for {idle_s:.0f} s" if idle_s > STUCK_AFTER_S else None

    def why_not_ready(self) -> str | None:
        """Why the worker does nothing of use, None while it does."""
        if self.num_partitions == 0:
            return "no partition is assigned"
        return "no cell is declared" if self.num_cells == 0 else None
