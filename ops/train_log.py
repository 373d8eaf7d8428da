"""Records of a stretch of the log, for training: what was appended between two times."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec import Struct

from ops.connection import namespace
from ops.errors import UserError
from ops.read.log import extent, read_log
from ops.read.topics import readable_topics
from schemas.errors import RecordError, SchemaPendingError
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config
from schemas.topics import Topic

R = TypeVar("R", bound=Struct)


def records_of_log(
    config: Config,
    topic: Topic,
    record_type: type[R],
    *,
    since_ms: int,
    until_ms: int | None,
    complain: Callable[[str], None],
) -> Iterator[R]:
    """Records appended from `since_ms` on and before `until_ms`; one that cannot be read is complained of in a line.

    Raises UserError where the broker does not give them.
    """
    source = readable_topics(namespace())[topic.name]
    decoder = source.decoder()
    try:
        found = extent(config, source.name, since_ms=since_ms, until_ms=until_ms)
        for batch in read_log(config, source.name, found.since, found.until, is_stopped=lambda: False):
            for message in batch:
                try:
                    record = decoder.decode(message.value())
                except (RecordError, SchemaPendingError) as error:
                    complain(f"{source.name}[{message.partition()}] offset {message.offset()}: {error}")
                    continue
                if isinstance(record, record_type):
                    yield record
    except BrokerError as error:
        raise UserError(str(error)) from error
