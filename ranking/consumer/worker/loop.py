"""Runs a ranking replica on Kafka: work in, answers out, offsets committed once the answers are acknowledged.

A thread of each route takes the next work in and decodes it while this thread scores. One pass of this loop:

    1. look at the gate, so that a closing is acknowledged while there is nothing to do
    2. take what waits, as soon as anything does: a batch is what came while the one before was scored
    3. run it: base work first, optional work while the permit holds; each answer is sent as soon as it is complete
    4. serve delivery reports, which tell the reading threads what they may commit; dead-letter what was refused
"""

import time
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from ops.telemetry.declared import METRICS
from ops.telemetry.health import HealthServer
from ops.telemetry.logs import get_log
from ops.telemetry.metrics import Metrics
from ops.telemetry.stop_signals import on_stop_signals
from ranking.client.broker_time import learn_broker_time, local_ms, observe
from ranking.clock import BrokerClock
from ranking.consumer.answers import Identity
from ranking.consumer.cgroup import lower_weight
from ranking.consumer.first_to_go import go_first
from ranking.consumer.loading import WarmDevice, warm_device
from ranking.consumer.options import RankerOptions
from ranking.consumer.permit import Permit
from ranking.consumer.priority import give_way
from ranking.consumer.replica import Replica, ReplicaEnds, ReplicaSettings
from ranking.consumer.task import IntakeLimits, Task
from ranking.consumer.trace import CallTrace
from ranking.consumer.waiting_room import WaitingRoom
from ranking.consumer.worker.reading import Intake, ReadingThread, Refused
from ranking.consumer.worker.route_consumer import Origin, RouteConsumer
from ranking.models.protocol import EncodedUsers
from schemas.dead_letters import dead_letter_key
from schemas.gate_reader import GateReader
from schemas.kafka.config import PATIENT_SEND, client_config, producer_config
from schemas.kafka.dead_letters import dead_letter
from schemas.kafka.producer import DurableProducer
from schemas.kafka.registry import connect_registry
from schemas.records import LatencyInterval, RankingAnswer
from schemas.topics import RANKING_ANSWERS, SERVING_LATENCY

MAX_WAITING: Final = 64
# Waits for work. Behind an open gate short, so that a closing is acknowledged soon while idle, and so while answers are
# on their way: whoever takes partitions over waits for their acknowledgement.
IDLE_WAIT_S: Final = 0.1
CLOSED_WAIT_S: Final = 0.05
SHORT_WAIT_S: Final = 0.005
HEARTBEAT_EVERY_S: Final = 0.2
STALL_S: Final = 15.0

_log = get_log(__name__)


def run(options: RankerOptions) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises ValueError on bad configuration, BundleError on a bundle that must not be loaded, BrokerError where broker or
    topic is not there, DeliveryError where an answer could not be made durable.
    """
    connect_registry()
    give_way(options.routes, nice=options.nice)
    if options.is_opportunistic:
        _log.info("gives way", cpu_weight=lower_weight(options.cpu_weight), out_of_memory_score=go_first())
    warm = warm_device(options)
    gate = GateReader(options.pool) if options.pool is not None else None
    try:
        worker = _Worker(options, warm=warm, gate=gate)
        with on_stop_signals(worker.ask_to_stop):
            worker.serve()
    finally:
        if gate is not None:
            gate.close()


class _Worker:
    """The loop and its shutdown."""

    def __init__(self, options: RankerOptions, *, warm: WarmDevice, gate: GateReader | None) -> None:
        self._options = options
        self._gate = gate
        self._device = warm.device
        self._is_stopping = False
        self._notice_ns = 0
        self._clock = BrokerClock()
        self._permit = Permit(gate, release=self._give_way)
        self._producer = DurableProducer(producer_config(client_config(options.ranker_id), **PATIENT_SEND))
        self._answers_topic = options.namespace.topic(RANKING_ANSWERS)
        self._latency_topic = options.namespace.topic(SERVING_LATENCY)
        self._metrics = Metrics(METRICS)
        self._refused: SimpleQueue[Refused] = SimpleQueue()
        self._room = WaitingRoom(options.routes, max_waiting=MAX_WAITING, clock_ns=time.monotonic_ns)
        self._trace = CallTrace(options.trace_path) if options.trace_path is not None else None
        self._threads = self._reading_threads()
        learn_broker_time(self._clock, self._producer, options.namespace, writer=options.ranker_id)
        # By the broker's clock: a later start has a later epoch, whatever somebody does to this machine's clock.
        epoch_ms = int(self._clock.broker_ms(local_ms()))
        self._replica = Replica(
            ReplicaEnds[EncodedUsers](
                device=warm.device,
                permit=self._permit,
                clock_ns=time.monotonic_ns,
                send=self._send_answer,
                peek=self._room.take_base,
                on_call=self._trace.note if self._trace is not None else lambda _: None,
            ),
            costs=warm.costs,
            settings=ReplicaSettings(
                identity=Identity(ranker_id=options.ranker_id, epoch_ms=epoch_ms),
                cell=options.cell,
                routes=options.routes,
                plan=options.plan,
                num_features=warm.num_features,
            ),
        )
        self._num_dead_letters = 0
        self._num_sent = 0
        self._last_pass_s = time.monotonic()
        self._next_heartbeat_s = 0.0
        self._next_interval_s = 0.0
        self._cpu_s = time.process_time()
        self._cpu_since_s = time.monotonic()

    def ask_to_stop(self) -> None:
        """From a signal: optional work ends before its next chunk, the loop after what was taken in."""
        self._notice_ns = self._notice_ns or time.monotonic_ns()
        self._replica.drain()
        self._is_stopping = True

    def serve(self) -> None:
        """Loop until asked to stop, then shut down in order."""
        with HealthServer(
            self._metrics,
            live={"loop": self._stalled},
            ready={"partitions": self._unassigned, "gate": self._gate_problem, "schemas": self._schema_problem},
            port=self._options.health_port,
        ) as health:
            _log.info("serving", routes=",".join(self._options.routes), health=health.url)
            for thread in self._threads:
                thread.start()
            while not self._is_stopping:
                self._pass()
            self._shut_down()

    def _reading_threads(self) -> list[ReadingThread]:
        consumers = [
            RouteConsumer(self._options, route, clock=self._clock, forget=partial(self._room.clear, route))
            for route in sorted(self._options.routes)
        ]
        for consumer in consumers:
            consumer.num_partitions(consumer.topic)
        intake = Intake(
            room=self._room,
            clock=self._clock,
            limits=IntakeLimits(
                num_reply_partitions=consumers[0].num_partitions(self._answers_topic),
                margin_ms=self._options.margin_ms,
            ),
            metrics=self._metrics,
            refuse=self._refused.put,
        )
        return [ReadingThread(consumer, intake) for consumer in consumers]

    def _pass(self) -> None:
        may_run = self._replica.idle()  # 1
        tasks = self._room.take(self._wait_s(may_run))  # 2
        if tasks:
            self._run(tasks)  # 3
        self._producer.poll()  # 4
        self._refuse_all()
        now_s = self._last_pass_s = time.monotonic()
        if self._gate is not None and now_s >= self._next_heartbeat_s:
            self._next_heartbeat_s = now_s + HEARTBEAT_EVERY_S
            self._gate.heartbeat()
            self._metrics.gauge("intertidal_gate_open").labels(self._options.pool).set(may_run)
        if now_s >= self._next_interval_s:
            self._send_intervals()

    def _wait_s(self, may_run: bool) -> float:
        if self._producer.num_pending:
            return SHORT_WAIT_S
        if self._gate is None:
            return IDLE_WAIT_S
        return SHORT_WAIT_S if may_run else CLOSED_WAIT_S

    def _run(self, tasks: list[Task]) -> None:
        self._replica.run(tasks)
        if self._trace is not None:
            self._trace.flush()

    def _refuse_all(self) -> None:
        """Dead-letter what was refused; each is finished once its letter is durable."""
        while True:
            try:
                refused = self._refused.get_nowait()
            except Empty:
                return
            consumer, message, error, origin = refused.consumer, refused.message, refused.error, refused.origin
            letter = dead_letter(message, error, part="ranker", stage="intake")
            self._producer.send(
                consumer.dead_letters,
                letter,
                key=dead_letter_key(letter),
                on_delivered=origin.finished_by,
            )
            self._num_dead_letters += 1
            self._metrics.counter("intertidal_dead_letters_total").labels(consumer.topic, error.reason).inc()
            _log.warning(
                "record refused",
                topic=consumer.topic,
                offset=message.offset(),
                reason=error.reason,
                detail=error.detail,
            )

    def _send_answer(self, task: Task, answer: RankingAnswer) -> None:
        origin = task.origin
        assert isinstance(origin, Origin)
        self._producer.send(
            self._answers_topic,
            answer,
            partition=task.work.reply_partition,
            headers=origin.headers,
            on_delivered=origin.finished_by,
        )
        self._num_sent += 1

    def _send_intervals(self) -> None:
        now_s, cpu_s = time.monotonic(), time.process_time()
        cpu_share = (cpu_s - self._cpu_s) / max(1e-3, now_s - self._cpu_since_s)
        self._cpu_s, self._cpu_since_s = cpu_s, now_s
        self._next_interval_s = now_s + self._options.time.interval_ms / 1e3
        intervals = self._replica.close_interval(
            int(self._clock.broker_ms(local_ms())),
            num_waiting=sum(thread.consumer.num_open for thread in self._threads),
            cpu_share=cpu_share,
        )
        for interval in intervals:
            self._send_interval(interval)
        self._metrics.counter("intertidal_records_sent_total").labels(self._answers_topic).inc(self._num_sent)
        self._num_sent = 0

    def _send_interval(self, interval: LatencyInterval) -> None:
        self._producer.send(
            self._latency_topic,
            interval,
            key=interval.cell.encode(),
            on_delivered=lambda message: observe(self._clock, message),
        )

    def _give_way(self) -> None:
        """The owner wants the capacity back: to be acknowledged when this returns."""
        assert self._gate is not None
        closed_ns = self._gate.closed_ns
        freed_ns = self._free(since_ns=closed_ns, cause="gate_closed")
        # Of a chunk that had ended before the flip nothing was left to wait for.
        last_chunk_ms = max(0, self._permit.last_chunk_end_ns - closed_ns) / 1e6
        _log.info("gave way", last_chunk_ms=round(last_chunk_ms, 3), freed_ms=round((freed_ns - closed_ns) / 1e6, 3))

    def _free(self, *, since_ns: int, cause: str) -> int:
        """Give device memory back; returns when it was free. 1. what was encoded is let go  2. and its memory."""
        self._replica.let_go()  # 1
        self._device.release()  # 2
        freed_ns = time.monotonic_ns()
        self._metrics.histogram("intertidal_memory_freed_seconds").labels(cause).observe((freed_ns - since_ns) / 1e9)
        return freed_ns

    def _shut_down(self) -> None:
        """Within the notice: the batch at hand has ended, its optional chunks shed since the signal.

        1. nothing more is taken in; what waits is answered, optional work as shed
        2. device memory is given back, and the gate's slot: no optional work is running, and none will
        3. the last interval record is sent
        4. all that was sent is acknowledged
        5. offsets are committed and the groups left
        """
        for thread in self._threads:
            thread.stop()  # 1
        self._run(self._room.take(0.0))
        freed_ns = self._free(since_ns=self._notice_ns, cause="notice")  # 2
        if self._gate is not None:
            self._replica.idle()
            self._gate.acknowledge(
                self._gate.generation, last_chunk_end_ns=self._permit.last_chunk_end_ns, drained_ns=freed_ns
            )
            self._gate.close()
        self._refuse_all()
        self._send_intervals()  # 3
        self._producer.drain(self._options.notice_s)  # 4
        for thread in self._threads:
            thread.leave(self._options.notice_s)  # 5
        if self._trace is not None:
            self._trace.close()
        _log.info("stopped", dead_letters=self._num_dead_letters, freed_ms=round((freed_ns - self._notice_ns) / 1e6, 3))

    def _stalled(self) -> str | None:
        last_pass_s = min([self._last_pass_s, *(thread.last_pass_s for thread in self._threads)])
        idle_s = time.monotonic() - last_pass_s
        return f"the loop has not turned for {idle_s:.0f} s" if idle_s > STALL_S else None

    def _unassigned(self) -> str | None:
        waiting = [thread.consumer.topic for thread in self._threads if not thread.consumer.was_assigned]
        return f"no assignment yet for {', '.join(waiting)}" if waiting else None

    def _schema_problem(self) -> str | None:
        troubles = (thread.consumer.held.trouble() for thread in self._threads)
        return next((trouble for trouble in troubles if trouble is not None), None)

    def _gate_problem(self) -> str | None:
        return self._gate.problem if self._gate is not None else None
