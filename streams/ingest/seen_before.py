"""Which records were seen before: by the numbering of their source, or by a name of their own. Pure."""

from collections.abc import Callable
from typing import Any, Protocol

from streams.ingest.sequence import Order, SequenceFilter

_ANY: Order = (0, 0)


class SeenBefore(Protocol):
    """Recognises duplicates within a stretch of the log, so that whoever re-reads that stretch recognises the same."""

    def seen(self, record: Any, append_ms: int) -> bool:
        """Note a record and return whether it is a duplicate; append times must not fall from call to call."""


class ByNumber:
    """Records of a source are numbered within an epoch: one at or below what was seen is a duplicate."""

    def __init__(self, look_back_ms: int, source: Callable[[Any], str]) -> None:
        self._sequences = SequenceFilter(look_back_ms)
        self._source = source

    def seen(self, record: Any, append_ms: int) -> bool:
        return self._sequences.seen((record.cell, self._source(record)), (record.epoch_ms, record.seq), append_ms)


class ByName:
    """Each record has a name: the same name again within ``look_back_ms`` is a duplicate.

    Memory is that of the names of up to twice that time.
    """

    def __init__(self, look_back_ms: int, name: Callable[[Any], str]) -> None:
        self._names = SequenceFilter(look_back_ms)
        self._name = name

    def seen(self, record: Any, append_ms: int) -> bool:
        return self._names.seen(self._name(record), _ANY, append_ms)
