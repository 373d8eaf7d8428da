"""Dead letters as they lie in their topic. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import decode_as
from schemas.records import DeadLetter

# What is written into the topic beside the letters: what was done to some of them.
NOTE_PART: Final = "operator"
UNREADABLE: Final = "unreadable_letter"
_CUT: Final = re.compile(r"\((?:[^()]*, )?(?:value cut from|key cut from|headers cut,)[^()]*\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One record of a dead-letter topic; ``letter`` is None where it is none itself, ``why`` says so."""

    partition: int
    offset: int
    append_ms: int
    letter: DeadLetter | None
    why: str = ""

    @property
    def reason(self) -> str:
        return UNREADABLE if self.letter is None else self.letter.reason

    @property
    def field(self) -> str:
        return "" if self.letter is None else self.letter.field

    @property
    def is_note(self) -> bool:
        """Whether it is no letter, but what was done to some."""
        return self.letter is not None and self.letter.part == NOTE_PART

    @property
    def is_cut(self) -> bool:
        """Whether the record was too large for its letter, so that a part of it is not here."""
        return self.letter is not None and _CUT.search(self.letter.detail) is not None

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset

    @property
    def origin(self) -> tuple[str, int, int] | None:
        """Where the refused record lies: a letter that was written twice after a crash has the same."""
        return None if self.letter is None else (self.letter.topic, self.letter.partition, self.letter.offset)


def letter_of(*, partition: int, offset: int, append_ms: int, value: bytes | None) -> Letter:
    """A record of a dead-letter topic, whatever it holds."""
    try:
        return Letter(partition=partition, offset=offset, append_ms=append_ms, letter=decode_as(value, DeadLetter))
    except (RecordError, SchemaPendingError) as error:
        return Letter(partition=partition, offset=offset, append_ms=append_ms, letter=None, why=str(error))
