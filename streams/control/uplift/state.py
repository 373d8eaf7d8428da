"""What is measured of a cell, segment by segment, and its canonical bytes.

The sums of each segment are an entry of their own in the controllers' table, as all together would be too much for one
record of the changelog. An entry is written before the cell's own: after a crash it may be one window ahead of the
cell, never behind. So each says itself which windows it has taken in, and a window seen again changes only those that
have yet to see it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from schemas.records import ArmGuard, Guardrail, SegmentUplift, VersionTally, WindowRef
from schemas.records.fields import Count, Label, Lever, Name, Packed, TimeMs

ALL: Final = "(all)"
SUMS_VERSION: Final = 1
# Before every cohort, day and window.
NONE_YET: Final = -1


class SumsError(ValueError):
    """Bytes that are no sums of this version."""


class Pending(Struct, frozen=True, kw_only=True):
    """Sums of the cohorts ``first`` to ``last`` [B x K], whose attribution window is open: only those that are not 0.

    ``places`` are uint16 in rising order, ``numbers`` int64, both little-endian.
    """

    first: Count
    last: Count
    is_aa: bool
    places: bytes
    numbers: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.places) + len(self.numbers)


class GuardCohort(Struct, frozen=True, kw_only=True):
    """What requests of one cohort of intake met, by arm."""

    cohort: Count
    arms: tuple[ArmGuard, ...]


class Crossing(Struct, frozen=True, kw_only=True):
    """A guardrail that was crossed ``num_times`` in a row; its lever is at base before cohort ``until_cohort``."""

    lever: Lever
    name: Name
    until_cohort: Count
    num_times: Count


class SegmentSums(Struct, frozen=True, kw_only=True):
    """Everything that is known of one segment. Values only: an older one is never changed.

    ``applied`` are the last windows taken in, by kind and partition, each ``window_ms`` long. ``claims`` (int64) are
    sums of the cohorts matured since ``since_ms``, of the model versions of era ``era``; ``steering`` (float64) are the
    same, decayed to cohort ``matured_cohort``. ``prior`` are the decayed sums of the versions before, ``aa`` the sums
    of A/A cohorts from ``aa_since_ms`` on. ``crossings`` and ``guardrails`` are of the guardrails when cohort
    ``judged_cohort`` began. ``day_sums`` (int64 [B x arms x 2]) count the requests of day ``day`` and their arm
    weights. ``matured_window`` is the window of the last tick that brought news, ``said`` what was said of it then.
    """

    segment: Name
    window_ms: Count = 0
    applied: tuple[WindowRef, ...] = ()
    pending: tuple[Pending, ...] = ()
    claims: Packed = b""
    steering: Packed = b""
    prior: Packed = b""
    aa: Packed = b""
    aa_since_ms: TimeMs = 0
    era: int = NONE_YET
    since_ms: TimeMs = 0
    matured_cohort: int = NONE_YET
    matured_window: int = NONE_YET
    is_aa: bool = False
    num_late_outcomes: Count = 0
    num_late_requests: Count = 0
    guards: tuple[GuardCohort, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    guardrails: tuple[Guardrail, ...] = ()
    judged_cohort: int = NONE_YET
    day: int = NONE_YET
    day_sums: Packed = b""
    said: SegmentUplift | None = None
    note: Label = ""


class Era(Struct, frozen=True, kw_only=True):
    """Model versions in force for cohorts from ``from_cohort`` on."""

    from_cohort: Count
    baseline_version: Label = ""
    powerful_version: Label = ""


class MeasurementState(Struct, frozen=True, kw_only=True):
    """What is measured of one cell: what stands in the cell's own entry, and the sums of each segment beside it.

    ``applied`` are the last windows taken in, by kind and partition, ``ends_ms`` their ends. Cohorts that ended by
    ``matured_until_ms`` are closed. ``names`` are the segments told apart. ``tally`` counts the model versions of
    cohort ``tally_cohort``. ``taken`` are the windows taken in since the last tick.
    """

    cell: Label = ""
    cohort_ms: Count = 0
    attribution_ms: Count = 0
    window_ms: Count = 0
    applied: tuple[WindowRef, ...] = ()
    ends_ms: tuple[TimeMs, ...] = ()
    matured_until_ms: TimeMs = 0
    names: tuple[Name, ...] = ()
    eras: tuple[Era, ...] = ()
    tally_cohort: int = NONE_YET
    tally: tuple[VersionTally, ...] = ()
    taken: tuple[WindowRef, ...] = ()
    segments: dict[str, SegmentSums] = {}

    def of(self, segment: str) -> SegmentSums:
        """Sums of a segment, empty ones of one that is new."""
        return self.segments.get(segment) or SegmentSums(segment=segment)

    def bare(self) -> "MeasurementState":
        """What stands in the cell's own entry."""
        return msgspec.structs.replace(self, segments={}) if self.segments else self

    def beside(self, segments: Mapping[str, SegmentSums]) -> "MeasurementState":
        """The same with the sums of the segments that stood beside it."""
        return msgspec.structs.replace(self, segments=dict(segments)) if segments else self


def rescaled(applied: tuple[WindowRef, ...], *, window_ms: int, from_ms: int) -> tuple[WindowRef, ...]:
    """The last windows as those of another length that end no later."""
    if not applied or window_ms == from_ms:
        return applied
    return tuple(
        msgspec.structs.replace(ref, window_index=max(0, (ref.window_index + 1) * from_ms // window_ms - 1))
        for ref in applied
    )


def is_applied(applied: Iterable[WindowRef], ref: WindowRef) -> bool:
    """Whether a window, or a later one of its kind and partition, has been taken in."""
    return any(
        known.kind == ref.kind
        and known.source_partition == ref.source_partition
        and known.window_index >= ref.window_index
        for known in applied
    )


def with_applied(applied: tuple[WindowRef, ...], ref: WindowRef) -> tuple[WindowRef, ...]:
    """The last windows with one more among them, in order of kinds and partitions."""
    kept = [known for known in applied if (known.kind, known.source_partition) != (ref.kind, ref.source_partition)]
    return tuple(sorted([*kept, ref], key=lambda known: (known.kind, known.source_partition)))


def encode_sums(sums: SegmentSums) -> bytes:
    """Canonical bytes: the version, then MessagePack with the fields in their declared order."""
    return bytes([SUMS_VERSION]) + msgspec.msgpack.encode(sums)


def decode_sums(data: bytes) -> SegmentSums:
    """Sums from their bytes; raises SumsError for damaged and unknown ones."""
    if data[:1] != bytes([SUMS_VERSION]):
        raise SumsError(f"sums of version {data[:1].hex() or 'missing'}, this release reads {SUMS_VERSION:02x}")
    try:
        return msgspec.msgpack.decode(data[1:], type=SegmentSums)
    except msgspec.DecodeError as error:
        raise SumsError(f"sums cannot be read: {error}") from error
