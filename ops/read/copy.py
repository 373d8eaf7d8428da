"""From what comes out of the log to rows, wherever they go; what cannot be read is named and passed over."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Protocol

from confluent_kafka import Message

from ops.errors import UserError
from ops.read.rows import LogRecord, json_line
from ops.read.topics import ReadableTopic
from schemas.errors import RecordError


class Rows(Protocol):
    """Where records go, in the order of their partitions."""

    def add(self, read: LogRecord) -> None:
        """Take the next record of its partition."""
        ...

    def pass_over(self, partition: int, offset: int) -> None:
        """Nothing can be made of the record at this offset."""
        ...

    def write_due(self) -> None:
        """Nothing more has come for now."""
        ...

    def write_all(self) -> None:
        """Reading is over."""
        ...


class JsonLines:
    """Rows as JSON lines into a stream, sent on with each batch that was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def add(self, read: LogRecord) -> None:
        with _written():
            self._stream.write(json_line(read))

    def pass_over(self, partition: int, offset: int) -> None:
        """A stream has no offsets."""

    def write_due(self) -> None:
        with _written():
            self._stream.flush()

    def write_all(self) -> None:
        self.write_due()


@contextmanager
def _written() -> Iterator[None]:
    """A full disk behind stdout is one line for the user; that nobody reads it any more is no error of ours."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"stdout: {error.strerror}") from error


def copy(
    batches: Iterable[Sequence[Message]],
    topic: ReadableTopic,
    rows: Rows,
    *,
    complain: Callable[[str], None],
    advance: Callable[[int], None],
) -> int:
    """Read every record into a row; returns how many could not be read, each of which is complained of in a line.

    ``advance`` hears how many records were met. Raises UserError when the disk refuses a file, RegistryError when a
    schema cannot be had.
    """
    decode = topic.decoder().decode
    num_unreadable = 0
    for batch in batches:
        for message in batch:
            partition, offset, value = message.partition() or 0, message.offset() or 0, message.value()
            try:
                record = None if topic.compacted and not value else decode(value)
            except RecordError as error:
                num_unreadable += 1
                complain(f"{topic.name}/{partition}/{offset}: {error}")
                rows.pass_over(partition, offset)
                continue
            key = message.key()
            rows.add(
                LogRecord(
                    partition=partition,
                    offset=offset,
                    time_ms=message.timestamp()[1],
                    key=key,
                    size_bytes=len(value or b"") + len(key or b""),
                    record=record,
                )
            )
        advance(len(batch))
        rows.write_due()
    rows.write_all()
    return num_unreadable
