"""Records of the third lever, reserved: expiry and value at the time of use are part of them from the start."""

from msgspec import Struct

from schemas.records.fields import CellName, Count, Label, Name, Packed, TimeMs


class PrecomputeJob(Struct, frozen=True, kw_only=True):
    """Work that may be done ahead of a user's next request, worth ``value_micro`` if used before ``expires_ms``."""

    job_id: Name
    cell: CellName
    user_id: Name
    created_ms: TimeMs
    expires_ms: TimeMs
    value_micro: Count
    cost_units: Count
    model_version: Label
    payload: Packed = b""


class PrecomputeResult(Struct, frozen=True, kw_only=True):
    """What a precompute job made, usable until ``expires_ms``."""

    job_id: Name
    cell: CellName
    user_id: Name
    completed_ms: TimeMs
    expires_ms: TimeMs
    value_micro: Count
    model_version: Label
    payload: Packed = b""
