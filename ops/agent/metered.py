"""Gates that are counted and logged as they are flipped, and what else an agent shows of itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ops.agent.gates import HostGates
from ops.agent.outbox import OutboxState
from ops.agent.plans import CloseGate, GateStep, OpenGate
from ops.telemetry.logs import get_log
from ops.telemetry.metrics import Metrics
from schemas.gate import FlipReason
from schemas.gate_drain import DrainReport

# The broker may be away for a moment; a host is silent to the others after this long.
_WAITING_TOO_LONG_S: Final = 30.0

_LOG = get_log(__name__)


class MeteredGates:
    """HostGates, with metrics by pool and a line in the log for each flip."""

    def __init__(self, gates: HostGates, metrics: Metrics) -> None:
        self._gates = gates
        self._open = metrics.gauge("intertidal_gate_open")
        self._reclaims = metrics.counter("intertidal_reclaims_total")
        self._reactions = metrics.histogram("intertidal_reclaim_reaction_seconds")

    def add(self, host: str, pool: str, folder: Path) -> None:
        """As HostGates."""
        self._gates.add(host, pool, folder)
        self._open.labels(pool).set(0)

    def take(self, host: str, step: GateStep) -> bool:
        done = self._gates.take(host, step)
        if isinstance(step, OpenGate) and done:
            self._open.labels(step.pool).set(1)
            _LOG.info("offered", host=host, pool=step.pool)
        elif isinstance(step, CloseGate):
            self._open.labels(step.pool).set(0)
            if step.reason == FlipReason.RECLAIMED:
                self._reclaims.labels(step.pool).inc()
            _LOG.info("taken back", host=host, pool=step.pool, why=step.reason.name.lower())
        return done

    def look(self, host: str, pool: str) -> DrainReport:
        report = self._gates.look(host, pool)
        if not report.pending_pids:
            # Looked at until all have given way, and not again.
            for drain in report.drained:
                self._reactions.labels(pool).observe(drain.reaction_ns / 1e9)
        return report


class AgentMeters:
    """Counts that others keep, as counters that only rise."""

    def __init__(self, metrics: Metrics, topic: str) -> None:
        self._metrics = metrics
        self._topic = topic
        self._shown: dict[tuple[str, str], int] = {}

    def show(self, outbox: OutboxState, num_source_failures: Mapping[str, int], num_clock_jumps: int) -> None:
        self._metrics.gauge("intertidal_spool_records").set(outbox.num_waiting)
        self._metrics.gauge("intertidal_spool_bytes").set(outbox.size_bytes)
        self._raise("intertidal_records_sent_total", self._topic, outbox.num_acknowledged)
        for log, num_dropped in outbox.num_dropped:
            self._raise("intertidal_spool_dropped_total", log, num_dropped)
        for source, num_failures in num_source_failures.items():
            self._raise("intertidal_source_failures_total", source, num_failures)
        jumps = num_clock_jumps - self._shown.get(("jumps", ""), 0)
        self._metrics.counter("intertidal_clock_jumps_total").inc(jumps)
        self._shown["jumps", ""] = num_clock_jumps

    def _raise(self, name: str, label: str, total: int) -> None:
        self._metrics.counter(name).labels(label).inc(total - self._shown.get((name, label), 0))
        self._shown[name, label] = total


def sending_problem(outbox: OutboxState, now_s: float) -> str | None:
    """Why what the agent says does not arrive; None while it does."""
    if outbox.problem:
        return outbox.problem
    if outbox.waiting_since_s is not None and now_s - outbox.waiting_since_s > _WAITING_TOO_LONG_S:
        return f"{outbox.num_waiting} records wait for the broker for {now_s - outbox.waiting_since_s:.0f} s"
    return None if outbox.is_disk_well else "the spool's disk takes nothing"
