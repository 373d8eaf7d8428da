"""What a worker sends: closed windows, dead letters, clock records."""

from collections.abc import Sequence

from confluent_kafka import Message

from schemas.dead_letters import dead_letter_key
from schemas.epochs import epoch_header
from schemas.kafka.dead_letters import dead_letter
from schemas.kafka.producer import DurableProducer
from schemas.records import ClockRecord, ControlWindow
from schemas.topics import CONTROL_WINDOWS, Namespace, Topic
from streams.ingest.partition import Refusal

PART = "ingest"
# Longer than the client's own limit for a delivery, so that its verdict comes first.
DRAIN_TIMEOUT_S = 40.0


class Output:
    """Sends to the topics of one namespace in the name of one worker.

    ``epoch_ms``, the worker's start, travels in a header and never in a window's bytes: whoever closes a window, it is
    the same record.
    """

    def __init__(self, producer: DurableProducer, namespace: Namespace, *, worker_id: str, epoch_ms: int) -> None:
        self._producer = producer
        self._namespace = namespace
        self._windows_topic = namespace.topic(CONTROL_WINDOWS)
        self._clock = ClockRecord(writer=worker_id)
        self._headers = [epoch_header(epoch_ms)]

    def send_windows(self, windows: Sequence[ControlWindow]) -> None:
        """Send closed windows in order; those of one cell keep it."""
        for window in windows:
            self._producer.send(self._windows_topic, window, key=window.cell.encode(), headers=self._headers)

    def send_dead_letters(self, topic: Topic, batch: Sequence[Message], refusals: Sequence[Refusal]) -> None:
        """Send the envelope of each refused message of a batch."""
        for refusal in refusals:
            letter = dead_letter(batch[refusal.index], refusal.error, part=PART, stage="read")
            self._producer.send(
                self._namespace.dead_letters(topic), letter, key=dead_letter_key(letter), headers=self._headers
            )

    def send_clock(self, topic: Topic, partition: int) -> None:
        """Tell a silent partition the time: the broker's append time of the record is all that matters in it."""
        self._producer.send(self._namespace.topic(topic), self._clock, partition=partition, headers=self._headers)

    def poll(self) -> None:
        """Serve acknowledgements; raises DeliveryError when the broker refused a record."""
        self._producer.poll()

    def drain(self) -> None:
        """Return once everything sent is acknowledged; raises DeliveryError otherwise."""
        self._producer.drain(DRAIN_TIMEOUT_S)
