"""The callers of a scenario: requests sent when they arrive, whatever the pipeline does, and what their users do then.

python -m ops.simulator.callers --scenario generated --json
"""

import argparse
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Final

import msgspec
from confluent_kafka import Message

from ops.simulator.broker_access import checked_config
from ops.simulator.command import run_command, scenario_arguments
from ops.simulator.impatient import ImpatientSender
from ops.simulator.outcome_worker import OutcomeReport, OutcomeWorker
from ops.simulator.requests import DueRequest, RequestStream
from ops.simulator.scenario_model import Scenario
from ops.simulator.world import World, WorldConfig
from ops.telemetry.logs import get_log
from ops.telemetry.stop_signals import stop_event
from schemas.histogram import ExponentialHistogram
from schemas.topics import RANKING_REQUESTS, Namespace
from schemas.tracing import TraceContext

# Above this the arrivals were not those of the scenario, and whoever reads the latencies should know.
LAG_LIMIT_MS: Final = 50.0
# The client's poll counts in whole milliseconds; what is left is slept.
_POLL_GRAIN_S: Final = 0.002
_LONGEST_POLL_S: Final = 0.1
# A caller has given its request up by then; what would reach the broker later asks for work that nobody waits for.
_SHORTEST_PATIENCE_MS: Final = 2_000

_LOG = get_log(__name__)


@dataclass(frozen=True, kw_only=True)
class CallerOptions:
    """What a process of callers is told.

    ``start_ms`` is when traffic starts, None for now. ``with_outcomes``: also play the users; one process of a pipeline
    does. ``outcome_tail_s`` is how long they go on after the last request.
    """

    namespace: Namespace
    scenario: Scenario
    start_ms: int | None = None
    with_outcomes: bool = True
    outcome_tail_s: float = 2.0


@dataclass(frozen=True, kw_only=True)
class LagReport:
    """How far behind the scenario something was, ms; None where there was nothing."""

    p50: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True, kw_only=True)
class CallerReport:
    """What the callers did.

    ``num_sent`` requests were acknowledged by the broker, ``num_not_accepted`` were not in time; ``num_skipped``
    arrived before this process was there, or after it was stopped. ``send_lag_ms`` is from a request's arrival to its
    sending, ``ack_lag_ms`` to the broker's acknowledgement; ``is_on_time`` says that the send lag's p99 kept its limit,
    so that arrivals were the scenario's.
    """

    scenario: str
    start_ms: int
    num_sent: int
    num_not_accepted: int
    num_skipped: int
    rate_per_s: float
    deadline_ms: int
    send_lag_ms: LagReport
    ack_lag_ms: LagReport
    is_on_time: bool
    outcomes: OutcomeReport | None


class _Lag:
    """Lags of one kind; early ones, within the clock's grain, count as none."""

    def __init__(self) -> None:
        self._histogram = ExponentialHistogram()
        self._max_ms: float | None = None

    def record(self, lag_ms: float) -> None:
        self._histogram.record(max(lag_ms, 0.0))
        self._max_ms = max(lag_ms, 0.0, self._max_ms or 0.0)

    def report(self) -> LagReport:
        return LagReport(p50=self._histogram.quantile(0.5), p99=self._histogram.quantile(0.99), max=self._max_ms)


class OpenLoop:
    """Sends each request at its time. ``start_s`` is when traffic starts on the monotonic clock."""

    def __init__(self, sender: ImpatientSender, topic: str, *, start_s: float) -> None:
        self._sender = sender
        self._topic = topic
        self._start_s = start_s
        self.send_lag = _Lag()
        self.ack_lag = _Lag()

    def wait_until(self, at_s: float, stop: threading.Event) -> bool:
        """Serve deliveries until ``at_s`` after the start; False when stopped before."""
        while not stop.is_set():
            left_s = self._start_s + at_s - time.monotonic()
            if left_s <= 0.0:
                return True
            if left_s > _POLL_GRAIN_S:
                self._sender.poll(min(left_s - _POLL_GRAIN_S, _LONGEST_POLL_S))
            else:
                time.sleep(left_s)
        return False

    def send(self, due: DueRequest) -> None:
        """Send a request that is due and note by how much it is late."""
        arrival_s = self._start_s + due.at_s

        def accepted(_: Message) -> None:
            self.ack_lag.record((time.monotonic() - arrival_s) * 1e3)

        self.send_lag.record((time.monotonic() - arrival_s) * 1e3)
        self._sender.send(
            self._topic,
            due.request,
            key=due.request.user_id.encode(),
            headers=[TraceContext.new().header()],
            on_accepted=accepted,
        )


def run(options: CallerOptions, *, stop: threading.Event | None = None) -> CallerReport:
    """Send the scenario's requests until its time is over, or SIGTERM or SIGINT (or ``stop``). Then

    1. what was sent is acknowledged or given up, 2. users go on for the tail, 3. their outcomes are acknowledged.

    A broker that goes away later changes neither the arrivals nor their number. Raises ValueError for a wrong setting,
    BrokerError without broker or topics, DeliveryError when nothing can be sent any more.
    """
    scenario = options.scenario
    world = World(WorldConfig())
    topic = options.namespace.topic(RANKING_REQUESTS)
    patience_ms = max(_SHORTEST_PATIENCE_MS, scenario.requests.deadline_ms)
    sender = ImpatientSender(checked_config("intertidal-callers", [topic]), patience_ms=patience_ms)
    with ExitStack() as stack:
        stopped = stack.enter_context(stop_event(stop))
        users = stack.enter_context(_Users(options, world)) if options.with_outcomes else None
        now_ms, now_s = time.time_ns() // 1_000_000, time.monotonic()
        start_ms = now_ms if options.start_ms is None else options.start_ms
        stream = RequestStream(scenario, world, start_ms=start_ms)
        loop = OpenLoop(sender, topic, start_s=now_s + (start_ms - now_ms) / 1e3)
        # Whoever starts again after a crash leaves out what came before: those ids may have been sent.
        from_s = max(0.0, (now_ms - start_ms) / 1e3)
        for due in stream.due(from_s=from_s):
            if not loop.wait_until(due.at_s, stopped):
                break
            loop.send(due)
            if users is not None:
                users.check()
        loop.wait_until(scenario.traffic_s, stopped)
        sender.drain()  # 1
        outcomes = None
        if users is not None:
            stopped.wait(options.outcome_tail_s)  # 2
            outcomes = users.finish()  # 3
    return _report(
        scenario, loop, sender, start_ms=start_ms, num_planned=stream.num_before(scenario.traffic_s), outcomes=outcomes
    )


class _Users:
    """The outcome worker on a thread of its own; a failure there is raised here."""

    def __init__(self, options: CallerOptions, world: World) -> None:
        self._worker = OutcomeWorker(options.namespace, options.scenario, world)
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="users")
        self._future: Future[OutcomeReport] = self._pool.submit(self._worker.run, self._stop)

    def check(self) -> None:
        """Raise what ended the worker, if anything did."""
        if self._future.done():
            self._future.result()

    def finish(self) -> OutcomeReport:
        """Stop the worker and return its report."""
        self._stop.set()
        return self._future.result()

    def __enter__(self) -> "_Users":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown()


def _report(
    scenario: Scenario,
    loop: OpenLoop,
    sender: ImpatientSender,
    *,
    start_ms: int,
    num_planned: int,
    outcomes: OutcomeReport | None,
) -> CallerReport:
    send_lag = loop.send_lag.report()
    is_on_time = send_lag.p99 is None or send_lag.p99 <= LAG_LIMIT_MS
    if not is_on_time:
        _LOG.warning("arrivals came late: this machine or the broker is too slow for the rate", p99_ms=send_lag.p99)
    return CallerReport(
        scenario=scenario.name,
        start_ms=start_ms,
        num_sent=sender.num_accepted,
        num_not_accepted=sender.num_not_accepted,
        num_skipped=num_planned - sender.num_accepted - sender.num_not_accepted,
        rate_per_s=sender.num_accepted / scenario.traffic_s,
        deadline_ms=scenario.requests.deadline_ms,
        send_lag_ms=send_lag,
        ack_lag_ms=loop.ack_lag.report(),
        is_on_time=is_on_time,
        outcomes=outcomes,
    )


def main() -> None:
    """Play the callers of a scenario, then say what was sent."""
    parser = argparse.ArgumentParser(prog="python -m ops.simulator.callers", description="Callers of a scenario")
    scenario_arguments(parser)
    parser.add_argument("--no-outcomes", action="store_true", help="send requests alone, no views and clicks")
    parser.add_argument("--json", action="store_true", help="report in JSON")
    arguments = parser.parse_args()

    def play(namespace: Namespace, scenario: Scenario) -> None:
        report = run(
            CallerOptions(
                namespace=namespace,
                scenario=scenario,
                start_ms=arguments.start_ms,
                with_outcomes=not arguments.no_outcomes,
            )
        )
        if arguments.json:
            print(msgspec.json.encode(asdict(report)).decode(), flush=True)
        else:
            print(
                f"{report.num_sent} requests sent, {report.num_not_accepted} not accepted, "
                f"{report.num_skipped} skipped, {report.rate_per_s:.1f}/s",
                flush=True,
            )

    run_command("callers", arguments, play)


if __name__ == "__main__":
    main()
