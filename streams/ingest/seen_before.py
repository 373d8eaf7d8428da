"""Which records were seen before: by the numbering of their source, or by a name of their own. Pure."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

from streams.ingest.sequence import SequenceFilter

# Names of usual length take some 40 MB.
MAX_NAMES: Final = 131_072


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

    Of a partition MAX_NAMES are remembered: the one heard of longest ago is forgotten for a new one, so that beyond
    MAX_NAMES records in ``look_back_ms`` the look-back is that many records. Either way it depends on the log alone.
    """

    def __init__(self, look_back_ms: int, name: Callable[[Any], str]) -> None:
        self._look_back_ms = look_back_ms
        self._name = name
        # When each was last heard of, the one of longest ago first.
        self._heard_ms: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._heard_ms)

    def seen(self, record: Any, append_ms: int) -> bool:
        name, heard_ms = self._name(record), self._heard_ms
        while heard_ms and next(iter(heard_ms.values())) < append_ms - self._look_back_ms:
            heard_ms.popitem(last=False)
        is_known = name in heard_ms
        heard_ms[name] = append_ms
        if is_known:
            heard_ms.move_to_end(name)
        elif len(heard_ms) > MAX_NAMES:
            heard_ms.popitem(last=False)
        return is_known
