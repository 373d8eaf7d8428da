"""The record that turns a partition's silence into data."""

from msgspec import Struct

from schemas.records.fields import Label


class ClockRecord(Struct, frozen=True, kw_only=True):
    """Says only that time has passed: its append time moves the partition's watermark. ``writer`` is for diagnosis."""

    writer: Label
