"""Whether upgrades may be made on live traffic: not while the split that would measure them is off.

Without a split that can be trusted there is nothing to steer upgrades by.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ops.status.measured import mismatched
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.kafka.ranges import latest_by_key
from schemas.records import CellDeclaration, SegmentUplift
from schemas.topics import CONTROL_CELLS, SEGMENT_UPLIFT, Namespace, Topic


def refused_cells(
    declarations: Iterable[CellDeclaration], uplift: Iterable[SegmentUplift], *, now_ms: int
) -> dict[str, list[str]]:
    """Cells that upgrade requests though their sample-ratio check fails, and the segments in which it does."""
    said: dict[str, list[SegmentUplift]] = {}
    for record in uplift:
        said.setdefault(record.cell, []).append(record)
    refused = {}
    for declaration in declarations:
        limits = declaration.limits_at(now_ms // max(1, declaration.window_ms))
        segments = mismatched(said.get(declaration.cell, ()))
        if limits is not None and limits.max_coverage > 0.0 and segments:
            refused[declaration.cell] = segments
    return dict(sorted(refused.items()))


def read_refused_cells(config: Mapping[str, Any], namespace: Namespace, *, now_ms: int) -> dict[str, list[str]]:
    """The same of a running pipeline; raises BrokerError."""
    declarations = (each for each in _latest(config, namespace, CONTROL_CELLS) if isinstance(each, CellDeclaration))
    uplift = (each for each in _latest(config, namespace, SEGMENT_UPLIFT) if isinstance(each, SegmentUplift))
    return refused_cells(declarations, uplift, now_ms=now_ms)


def _latest(config: Mapping[str, Any], namespace: Namespace, topic: Topic) -> Iterator[object]:
    decoder = Decoder(topic.record_types)
    for value in latest_by_key(dict(config), namespace.topic(topic)).values():
        # What its own readers refuse, and name.
        with suppress(RecordError):
            yield decoder.decode(value)
