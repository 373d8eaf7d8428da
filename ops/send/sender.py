"""Lines to a topic: each is sent or named and kept, and the end is reached once the broker has them all."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Final, Self

import click
from confluent_kafka import Message

from ops.errors import UserError
from ops.intake import Intake
from ops.send.lines import Outgoing, complaint, outgoing, pieces
from schemas.errors import RecordError
from schemas.kafka.offsets import OffsetTracker
from schemas.kafka.producer import DeliveryError, DurableProducer
from schemas.topics import Topic

_TOO_LONG: Final = RecordError("too_large", "longer than any record")


@dataclass(slots=True)
class Counts:
    """Lines that became acknowledged records, and lines that were kept back."""

    num_sent: int = 0
    num_rejected: int = 0


class Rejects:
    """Keeps rejected lines as they were, in a file that is made with the first of them, or on stderr."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def name(self, number: int, error: RecordError) -> None:
        """Say what is wrong with a line."""
        click.echo(complaint(number, error), err=True)

    def keep(self, text: bytes) -> None:
        """Keep a line, or a piece of one; raises UserError where that cannot be done."""
        if self._path is None:
            click.echo(text, err=True, nl=not text.endswith(b"\n"))
            return
        try:
            if self._file is None:
                # Never over another file: that may be the very one which is being sent.
                self._file = open(self._path, "xb")  # noqa: SIM115, PTH123  # closed by __exit__
            self._file.write(text)
            # What was kept outlives a kill.
            self._file.flush()
        except OSError as error:
            raise UserError(f"rejected lines cannot be kept in {self._path}: {error.strerror}") from error


class Sender:
    """Sends lines to one topic. At least once: whoever is stopped is told from which line to go on."""

    def __init__(
        self, producer: DurableProducer, topic: Topic, intake: Intake, *, full_name: str, partition: int | None
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._intake = intake
        self._full_name = full_name
        self._partition = partition
        # Lines whose record is on its way; bounded by the producer's queue.
        self._lines = OffsetTracker()
        self.counts = Counts()

    def send(self, stream: BinaryIO, rejects: Rejects, *, done: Callable[[int], None]) -> Counts:
        """Send every line of a stream and return once all are acknowledged; ``done`` hears of each line.

        Raises UserError that says which lines are known to be in the log.
        """
        try:
            for piece in pieces(stream):
                if piece.is_first:
                    self._lines.begin(piece.number)
                    done(1)
                try:
                    if not piece.is_whole:
                        raise _TOO_LONG
                    record = outgoing(
                        piece.text, self._topic, self._intake, partition=self._partition, now_ms=_local_ms()
                    )
                except RecordError as error:
                    if piece.is_first:
                        rejects.name(piece.number, error)
                        self.counts.num_rejected += 1
                        self._lines.finish(piece.number)
                    rejects.keep(piece.text)
                else:
                    self._hand_over(record, piece.number)
            self._producer.drain()
        except DeliveryError as error:
            raise UserError(f"{error}; {self.where()}") from error
        except KeyboardInterrupt:
            with suppress(DeliveryError):
                self._producer.drain()
            click.echo(self.where(), err=True)
            raise
        return self.counts

    def where(self) -> str:
        """From which line on the input has yet to be sent."""
        return f"every line before line {self._lines.committable() or 1} is done"

    def _hand_over(self, record: Outgoing, number: int) -> None:
        def delivered(_: Message) -> None:
            self.counts.num_sent += 1
            self._lines.finish(number)

        self._producer.send(
            self._full_name, record.value, key=record.key, partition=record.partition, on_delivered=delivered
        )
        self._producer.poll()


def _local_ms() -> int:
    return time.time_ns() // 1_000_000
