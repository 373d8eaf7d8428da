"""The current targets, followed in the background: what routers apply and what a retrieval service asks."""

import threading
import time
from collections.abc import Mapping
from typing import Self

from confluent_kafka import Message

from ops.telemetry.logs import get_log
from ranking.client.target_table import TargetTable, doubt
from ranking.client.topic_tail import TopicTail
from ranking.clock import BrokerClock
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.kafka.config import client_config
from schemas.records import CandidateTarget
from schemas.topics import CONTROL_TARGETS, Namespace

_log = get_log(__name__)


class TargetsView:
    """A target table kept up to date by a thread of its own. Stale means base.

    with TargetsView(Namespace(), default_base_candidates=128) as targets:
        num_candidates = targets.candidates_to_fetch("us-east")

    Raises BrokerError when the broker or the topic is away at the start. Later the thread goes on trying; meanwhile
    targets expire, and everyone does base work.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        default_base_candidates: int = 1,
        client_id: str = "targets",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.table = TargetTable()
        self._default_base_candidates = default_base_candidates
        self._clock = BrokerClock()
        self._decoder = Decoder(CONTROL_TARGETS.record_types)
        self._tail = TopicTail(
            client_config(client_id, environ=environ), namespace.topic(CONTROL_TARGETS), on_message=self._on_message
        )
        self._stopping = threading.Event()
        self._caught_up = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="targets", daemon=True)
        self.num_unreadable = 0

    def start(self) -> Self:
        """Begin to follow and return itself."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop to follow; without effect the second time."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_caught_up(self, timeout_s: float) -> bool:
        """Whether what stood in the topic at the start was read in time."""
        return self._caught_up.wait(timeout_s)

    @property
    def is_alive(self) -> bool:
        """Whether targets are being followed."""
        return self._thread.is_alive()

    def candidates_to_fetch(self, cell: str) -> int:
        """How many candidates retrieval should hand over for a request of this cell now."""
        return self.table.candidates_to_fetch(cell, self._now_ms(), default=self._default_base_candidates)

    def valid(self, cell: str) -> CandidateTarget | None:
        """The target of a cell if it may be applied now."""
        return self.table.valid(cell, self._now_ms())

    def _now_ms(self) -> float:
        return self._clock.broker_ms(time.time() * 1000.0)

    def _follow(self) -> None:
        try:
            while not self._stopping.is_set():
                self._tail.poll(0.1)
                if self._tail.is_caught_up:
                    self._caught_up.set()
        finally:
            self._tail.close()

    def _on_message(self, message: Message) -> None:
        receipt_ms = time.time() * 1000.0
        _, append_ms = message.timestamp()
        # Only what came after the start says something of the clock: a record read from the past arrives late.
        if append_ms > 0 and self._tail.is_caught_up:
            self._clock.observe(receipt_ms=receipt_ms, append_ms=append_ms)
        try:
            target = self._decoder.decode(message.value())
        except RecordError as error:
            # Every reader of the topic meets it: it is named here and the last good target stays.
            self.num_unreadable += 1
            _log.warning("target unreadable", partition=message.partition(), offset=message.offset(), why=str(error))
            return
        assert isinstance(target, CandidateTarget)
        why = doubt(target, key=message.key(), append_ms=append_ms)
        if why is not None:
            self.num_unreadable += 1
            _log.warning("target not believed", partition=message.partition(), offset=message.offset(), why=why)
            return
        self.table.update(target)
