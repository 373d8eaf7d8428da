"""What a run says against what was said live: windows, targets, pools and uplift, each by what it is about. Pure.

A record that was said twice counts once, a second one that differs counts too: a pool whose split comes later is said
twice a window. Only what the run covers is compared: of each cell the windows from its first to its last one.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from schemas.avro import encode_body
from schemas.records import CandidateTarget, ControlWindow, PoolSnapshot, SegmentUplift, WindowRef
from schemas.topics import CAPACITY_POOLS, CONTROL_TARGETS, CONTROL_WINDOWS, SEGMENT_UPLIFT, Topic

# Sentences in which figures are written out: they differ wherever a figure does.
_WORDS: Final = frozenset({"detail", "coverage_detail", "allocation_detail", "note"})
MAX_LISTED: Final = 1_000


class About(NamedTuple):
    """What a record is about: ``what`` is a window's kind and source, a pool's accelerator, a segment, or empty."""

    cell: str
    window_index: int
    what: str


class Difference(Struct, frozen=True, kw_only=True):
    """One thing of which the run says something else than what was said live.

    ``windows`` are, of a target, those in which the two manifests differ, and those in both that are not the same.
    """

    family: str
    cell: str
    window_index: int
    what: str
    detail: str
    windows: list[WindowRef] = []


class FamilyDiff(Struct, frozen=True, kw_only=True):
    """Counts of one topic. ``num_removed`` are said by the run, and not kept any more of what was said live."""

    family: str
    num_equal: int
    num_within: int
    num_different: int
    num_only_replay: int
    num_only_live: int
    num_removed: int


class DiffDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `replay diff`; at most a thousand differences are listed, all are counted."""

    run: str
    differs: bool
    tolerance: float
    families: list[FamilyDiff]
    differences: list[Difference]


class Family(NamedTuple):
    """One topic whose records are compared."""

    name: str
    topic: Topic


FAMILIES: Final = (
    Family("windows", CONTROL_WINDOWS),
    Family("targets", CONTROL_TARGETS),
    Family("pools", CAPACITY_POOLS),
    Family("uplift", SEGMENT_UPLIFT),
)

Digests = dict[About, list[bytes]]


def about(record: Struct) -> About | None:
    """What a record is about; None for what is not compared: no window, or one that a replay does not make."""
    match record:
        case ControlWindow(kind="command" | "results" | "outcomes"):
            return None
        case ControlWindow():
            return About(record.cell, record.window_index, f"{record.kind} of {record.source_partition}")
        case CandidateTarget():
            return About(record.cell, record.window_index, "")
        case PoolSnapshot():
            return About(record.cell, record.window_index, record.accelerator)
        case SegmentUplift():
            return About(record.cell, record.window_index, record.segment)
    return None


def end_ms(record: Struct) -> int:
    """End of the window of a record: nothing about it was said before."""
    match record:
        case ControlWindow():
            return record.end_ms
        case CandidateTarget() | PoolSnapshot() | SegmentUplift():
            return record.window_end_ms
    raise AssertionError(type(record).__name__)


def digest(record: Struct) -> bytes:
    """The record's Avro body, shortened: the framing does not count."""
    return hashlib.blake2b(encode_body(record), digest_size=16).digest()


def note(found: Digests, place: About, record: Struct) -> None:
    """Note a record among those of its topic."""
    known, body = found.setdefault(place, []), digest(record)
    if body not in known:
        known.append(body)


class Coverage:
    """Of each cell the first and the last window of a run."""

    def __init__(self, places: Iterable[About]) -> None:
        self._spans: dict[str, tuple[int, int]] = {}
        for place in places:
            first, last = self._spans.get(place.cell, (place.window_index, place.window_index))
            self._spans[place.cell] = (min(first, place.window_index), max(last, place.window_index))

    def holds(self, place: About) -> bool:
        span = self._spans.get(place.cell)
        return span is not None and span[0] <= place.window_index <= span[1]


class Sorted(NamedTuple):
    """The places of a family, by how the run stands to what was said live."""

    equal: int
    differing: list[About]
    only_replay: list[About]
    only_live: list[About]
    removed: int


def sort_out(replayed: Digests, live: Digests, *, live_is_whole: bool) -> Sorted:
    """Compare one family. Where the live log has lost records, what is older than its newest may be among them."""
    newest: dict[str, int] = {}
    for place in live:
        newest[place.cell] = max(newest.get(place.cell, -1), place.window_index)
    equal, removed = 0, 0
    differing, only_replay = [], []
    for place, bodies in sorted(replayed.items()):
        said = live.get(place)
        if said == bodies:
            equal += 1
        elif said is not None and (live_is_whole or not set(said) < set(bodies)):
            differing.append(place)
        elif not live_is_whole and place.window_index <= newest.get(place.cell, -1):
            removed += 1
        else:
            only_replay.append(place)
    coverage = Coverage(replayed)
    only_live = sorted(place for place in live if place not in replayed and coverage.holds(place))
    return Sorted(equal, differing, only_replay, only_live, removed)


def is_within(one: Sequence[Struct], other: Sequence[Struct], *, tolerance: float) -> bool:
    """Whether records are the same but for figures that differ by no more than ``tolerance`` of the larger one."""
    return tolerance > 0.0 and _is_near(
        [msgspec.to_builtins(record) for record in one],
        [msgspec.to_builtins(record) for record in other],
        tolerance,
    )


def _is_near(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        names = one.keys() - _WORDS
        return names == other.keys() - _WORDS and all(_is_near(one[name], other[name], tolerance) for name in names)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(lambda a, b: _is_near(a, b, tolerance), one, other))
    if _is_figure(one) and _is_figure(other):
        return bool(abs(one - other) <= tolerance * max(abs(one), abs(other)))
    return bool(one == other)


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def difference(
    family: str, place: About, replayed: Sequence[Struct], live: Sequence[Struct], changed: frozenset[About]
) -> Difference:
    """What a difference consists of; ``changed`` are the windows that are not the same."""
    one, other = (records[-1] if records else None for records in (replayed, live))
    if one is None or other is None:
        detail = "only in the replay" if one is not None else "only live"
    else:
        detail = ", ".join(_fields(one, other)) or "said another number of times"
    refs = list(_windows(one, other, changed)) if family == "targets" else []
    return Difference(
        family=family, cell=place.cell, window_index=place.window_index, what=place.what, detail=detail, windows=refs
    )


def _fields(one: Struct, other: Struct) -> Iterator[str]:
    for name in one.__struct_fields__:
        was, said = getattr(other, name), getattr(one, name)
        if was != said and name not in _WORDS:
            yield name if isinstance(said, Struct | list | dict) else f"{name} {said} for {was}"


def _windows(one: Struct | None, other: Struct | None, changed: frozenset[About]) -> Iterator[WindowRef]:
    manifests = [record.manifest if isinstance(record, CandidateTarget) else [] for record in (one, other)]
    cell = next(record.cell for record in (one, other) if isinstance(record, CandidateTarget))
    for ref in sorted([*manifests[0], *(ref for ref in manifests[1] if ref not in manifests[0])], key=_order):
        in_both = all(ref in manifest for manifest in manifests)
        if not in_both or About(cell, ref.window_index, f"{ref.kind} of {ref.source_partition}") in changed:
            yield ref


def _order(ref: WindowRef) -> tuple[int, str, int]:
    return ref.window_index, ref.kind, ref.source_partition
