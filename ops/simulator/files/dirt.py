"""Rows that are not as they should be: how many of each kind, and where the first ones stand. Pure."""

from dataclasses import dataclass, field
from typing import Final

_MAX_FIRST_LINES: Final = 5

# The vocabulary of reports; docs/real-files.md explains each.
MEANINGS: Final = {
    "above_limit": "above what one request may hold; cut to it",
    "absurd_request": "a CPU or GPU request beyond all machines; left out",
    "after_limit": "after the most rows that are read; left out",
    "bad_quotes": "quotes that do not close; left out",
    "bad_time": "a time that is none; left out",
    "below_one": "less than one candidate; left out",
    "blank_line": "no row at all",
    "crlf": "ends in CR LF",
    "ends_before_start": "deleted before it was scheduled or created; left out",
    "long_fraction": "more than six fractional digits; cut to microseconds",
    "long_line": "longer than a line may be; left out",
    "missing_end": "not deleted within the trace: there until its end",
    "missing_start": "there before the trace began: from its start on",
    "missing_time": "no time; left out",
    "missing_tokens": "no number of tokens; its time is used",
    "missing_request": "no CPU or GPU request; counts as 0",
    "negative_request": "a negative CPU or GPU request; left out",
    "negative_time": "a time before the trace's start; left out",
    "negative_tokens": "a negative number of tokens; its time is used",
    "never_scheduled": "created and never scheduled: it used nothing; left out",
    "no_request": "asks for neither CPU nor GPU; left out",
    "no_zone": "a time without zone, taken as UTC",
    "not_a_number": "no number where one is wanted; left out",
    "not_utf8": "not UTF-8 text; left out",
    "odd_tokens": "tokens that are no number; its time is used",
    "plain_seconds": "a time that is a plain number, taken as seconds",
    "repeated_header": "the header once more; left out",
    "scheduled_before_created": "scheduled before it was created; the time of scheduling counts",
    "short_row": "fewer fields than are needed; left out",
    "unordered": "earlier than the row before it; sorted in",
    "zero_length": "deleted the moment it was scheduled; left out",
    "zero_tokens": "no token in or out; its time is used",
}


@dataclass
class DirtCount:
    """Rows of one kind; ``first_lines`` are the line numbers of the first few, from 1."""

    num_rows: int = 0
    first_lines: list[int] = field(default_factory=list)


@dataclass
class Dirt:
    """Counts by kind while a file is read."""

    kinds: dict[str, DirtCount] = field(default_factory=dict)

    def note(self, kind: str, line: int) -> None:
        """Count one row of a kind of ``MEANINGS``."""
        count = self.kinds.get(kind)
        if count is None:
            assert kind in MEANINGS, kind
            count = self.kinds[kind] = DirtCount()
        count.num_rows += 1
        if len(count.first_lines) < _MAX_FIRST_LINES:
            count.first_lines.append(line)
