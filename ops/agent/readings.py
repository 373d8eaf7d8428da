"""What a source saw of a host's capacity. One format for all: a device, a file's line, a program's output."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from schemas.errors import RecordError
from schemas.records.fields import Count, IdleCause, Label, Name, Quantity, Share, TimeMs, UnusableReason

# As a gate's file may be called (schemas.gate).
PoolName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z")]


class Reading(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pool at one moment: what there is, and how much of it the owner uses.

    ``pool`` names the gate: what is taken back as a whole. ``units`` are accelerators, or cores where ``accelerator``
    is ``cpu``; ``owner_units`` of them are in use by the owner, that is by anything but the pool's rankers. Of a
    ``divisible`` pool a part may be offered. ``pressure`` is the share of time in which the owner's work stood still
    for want of something. ``device_memory_bytes`` are free on the device, null where that does not matter.

    ``fault`` says why nobody can use the capacity, ``unusable`` why optional work cannot. ``idle_cause`` and
    ``provider`` override the configuration. ``reclaim_at_ms`` is when the owner is known to want it back.
    """

    pool: PoolName
    accelerator: Name
    units: Quantity
    owner_units: Quantity = 0.0
    divisible: bool = False
    pressure: Share = 0.0
    cpu_cores: Quantity | None = None
    memory_bytes: Count | None = None
    device_memory_bytes: Count | None = None
    fault: Label = ""
    unusable: UnusableReason | None = None
    idle_cause: IdleCause | None = None
    provider: Label | None = None
    reclaim_at_ms: TimeMs | None = None


class SourceError(Exception):
    """A source that could not be read; one line that names it. What it knew counts no longer after a while."""


def readings_of_json(text: str | bytes) -> list[Reading]:
    """A reading, or a list of them, from JSON; raises RecordError naming the field."""
    try:
        data = msgspec.json.decode(text)
        return msgspec.convert(data if isinstance(data, list) else [data], list[Reading])
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        raise RecordError("invalid_field", message, field=path.rstrip("`").removeprefix("$")) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecordError("malformed", str(error)) from None
