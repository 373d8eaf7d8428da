"""Reads what a run and the live pipeline say, twice: once for digests, and again for what is not the same."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer
from msgspec import Struct

from ops.replay.compare import (
    FAMILIES,
    MAX_LISTED,
    About,
    DiffDocument,
    Difference,
    Digests,
    Family,
    FamilyDiff,
    about,
    difference,
    end_ms,
    is_within,
    note,
    sort_out,
)
from ops.replay.names import run_namespace
from ops.replay.run_log import RunLog
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import Config, consumer_config
from schemas.kafka.ranges import offsets_at, read_ranges, watermarks
from schemas.topics import Namespace, Topic

_SHOWN: Final = 20


class _Log(NamedTuple):
    """One topic of one side, from some time on; ``is_cut`` says that retention has removed its beginning."""

    topic: Topic
    name: str
    ranges: dict[int, tuple[int, int]]
    is_cut: bool


def compare_run(config: Config, live: Namespace, log: RunLog, *, tolerance: float) -> DiffDocument:
    """Compare a run with what was said live; raises BrokerError."""
    assert log.manifest is not None
    space = run_namespace(live, log.manifest.run)
    is_raw = "ingest" in log.manifest.parts
    families: list[FamilyDiff] = []
    differences: list[Difference] = []
    changed: frozenset[About] = frozenset()
    for family in FAMILIES:
        if family.name == "windows" and not is_raw:
            continue
        if family.name != "windows" and "control" not in log.manifest.parts:
            continue
        # Windows of results and outcomes are not made anew from raw records, so that nothing is measured there.
        if family.name == "uplift" and is_raw:
            continue
        # Of a pool that was said before a snapshot the run can say the split at most.
        known = log.manifest.pools_said if family.name == "pools" else {}
        pair = (_Side(config, space, known), _Side(config, live, known))
        counted, found = _compare(pair, family, changed, tolerance=tolerance)
        families.append(counted)
        differences += found
        if family.name == "windows":
            changed = frozenset(About(each.cell, each.window_index, each.what) for each in found)
    return DiffDocument(
        run=log.manifest.run,
        differs=any(each.num_different + each.num_only_replay + each.num_only_live for each in families),
        tolerance=tolerance,
        families=families,
        differences=differences[:MAX_LISTED],
    )


class _Side:
    """What one side says; nothing of a cell up to the window that ``known`` gives."""

    def __init__(self, config: Config, space: Namespace, known: Mapping[str, int]) -> None:
        self._config = config
        self._space = space
        self._known = known

    def log(self, topic: Topic, *, from_ms: int) -> _Log:
        """Where the records of a topic stand, from some time on."""
        name = self._space.topic(topic)
        numbers = range(TopicAdmin(self._config).require([name])[name])
        consumer = Consumer(consumer_config(self._config, f"{name}.diff"))
        try:
            extents = watermarks(consumer, name, numbers)
            starts = {number: low for number, (low, _) in extents.items()}
            if from_ms:
                starts = offsets_at(consumer, name, extents, from_ms)
        finally:
            consumer.close()
        ranges = {number: (starts[number], end) for number, (_, end) in extents.items()}
        is_cut = any(0 < low == starts[number] for number, (low, _) in extents.items())
        return _Log(topic, name, ranges, is_cut)

    def records(self, log: _Log) -> Iterator[tuple[About | None, Struct | None]]:
        """Every record of a log and what it is about; None for what is not compared or cannot be read."""
        decoder = Decoder(log.topic.record_types)
        for message in read_ranges(self._config, log.name, log.ranges):
            try:
                record = decoder.decode(message.value())
            except RecordError:
                # It was said to nobody.
                yield None, None
                continue
            place = about(record)
            if place is not None and place.window_index <= self._known.get(place.cell, -1):
                place = None
            yield place, record

    def of(self, log: _Log, places: Collection[About]) -> dict[About, list[Struct]]:
        """The records about some places, each once, in order."""
        found: dict[About, list[Struct]] = {}
        for place, record in self.records(log) if places else ():
            if place in places and place is not None and record is not None:
                known = found.setdefault(place, [])
                if record not in known:
                    known.append(record)
        return found


def _compare(
    sides: tuple[_Side, _Side], family: Family, changed: frozenset[About], *, tolerance: float
) -> tuple[FamilyDiff, list[Difference]]:
    ours, theirs = sides
    our_log = ours.log(family.topic, from_ms=0)
    replayed: Digests = {}
    ends_ms = []
    for place, record in ours.records(our_log):
        if place is not None and record is not None:
            note(replayed, place, record)
            ends_ms.append(end_ms(record))
    # What was said live of a window was said after its end.
    their_log = theirs.log(family.topic, from_ms=min(ends_ms, default=0))
    said: Digests = {}
    num_kept = 0
    for place, record in theirs.records(their_log):
        num_kept += 1
        if place is not None and record is not None:
            note(said, place, record)
    is_whole = not their_log.is_cut and num_kept == sum(end - start for start, end in their_log.ranges.values())
    sorted_out = sort_out(replayed, said, live_is_whole=is_whole)
    places = {*sorted_out.differing, *sorted_out.only_replay, *sorted_out.only_live}
    our_records, their_records = ours.of(our_log, places), theirs.of(their_log, places)
    num_within = 0
    found = []
    for place in sorted(places):
        one, other = our_records.get(place, []), their_records.get(place, [])
        if one and other and is_within(one, other, tolerance=tolerance):
            num_within += 1
        else:
            found.append(difference(family.name, place, one, other, changed))
    return FamilyDiff(
        family=family.name,
        num_equal=sorted_out.equal,
        num_within=num_within,
        num_different=len(sorted_out.differing) - num_within,
        num_only_replay=len(sorted_out.only_replay),
        num_only_live=len(sorted_out.only_live),
        num_removed=sorted_out.removed,
    ), found


def lines(found: DiffDocument) -> Iterator[str]:
    """The comparison as text."""
    for each in found.families:
        parts = [f"{each.num_equal:,} equal"]
        parts += [
            f"{number:,} {words}"
            for number, words in (
                (each.num_within, f"within {found.tolerance:g}"),
                (each.num_different, "different"),
                (each.num_only_replay, "only in the replay"),
                (each.num_only_live, "only live"),
                (each.num_removed, "not kept live any more"),
            )
            if number
        ]
        yield f"{each.family}: {', '.join(parts)}"
    for each_difference in found.differences[:_SHOWN]:
        yield _line(each_difference)
    if len(found.differences) > _SHOWN:
        yield f"and {len(found.differences) - _SHOWN:,} more: --json lists them"


def _line(each: Difference) -> str:
    what = f" {each.what}" if each.what else ""
    windows = ", ".join(f"{ref.kind} {ref.window_index}" for ref in each.windows)
    made_from = f"; made from another {windows}" if windows else ""
    return f"  {each.family} {each.cell}{what} window {each.window_index}: {each.detail}{made_from}"
