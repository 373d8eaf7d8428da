"""The envelope of a record that could not be read or believed: everything needed to look at it and to redrive it."""

from typing import Annotated

from msgspec import Meta, Struct

from schemas.records.fields import Body, Count, Label, Name, Partition, Text


class RawHeader(Struct, frozen=True, kw_only=True):
    """One Kafka header of the original record, as it was."""

    key: Annotated[str, Meta(max_length=1024)]
    value: Body | None


class DeadLetter(Struct, frozen=True, kw_only=True):
    """The original record with the reason why, and where, it was refused.

    ``timestamp_kind`` is ``create``, ``append`` or ``none``. ``stage`` names the step that refused it, ``position``
    the byte of the value at which reading failed. ``attempt`` counts how often it has been redriven.
    """

    topic: Name
    partition: Partition
    offset: Count
    timestamp_ms: int
    timestamp_kind: Name
    key: Body | None
    value: Body | None
    headers: list[RawHeader]
    part: Name
    stage: Name
    reason: Name
    field: Label
    detail: Text
    position: Count | None = None
    attempt: Count = 0
