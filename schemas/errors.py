"""Why a record could not be read or believed: one exception, one vocabulary of reasons."""

from typing import Literal, get_args

Reason = Literal[
    "empty",
    "too_large",
    "bad_framing",
    "unknown_schema",
    "truncated",
    "malformed",
    "invalid_field",
    "length_mismatch",
    "future_event",
    "unknown_cell",
    "key_mismatch",
    "wrong_partition",
    "cannot_be_applied",
]
REASONS: tuple[str, ...] = get_args(Reason)


class ArrayLengthError(ValueError):
    """Arrays of one record that must be of the same length are not, or a packed array is ragged."""


class RecordError(Exception):
    """A record that cannot be read or believed.

    ``reason`` is the machine's word, ``detail`` the reader's sentence, ``field`` the path of the field at fault
    (empty when the record as a whole is), ``position`` the byte at which reading failed (None when unknown).
    """

    def __init__(self, reason: Reason, detail: str, *, field: str = "", position: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if not field else f"{reason}: {field}: {detail}")
        self.reason: Reason = reason
        self.detail = detail
        self.field = field
        self.position = position


class SchemaPendingError(Exception):
    """The schema of a record is not known yet: the registry has been asked, or does not answer.

    Nothing is wrong with the record, so it is no RecordError. Whoever reads waits with it and what stands behind it.
    """
