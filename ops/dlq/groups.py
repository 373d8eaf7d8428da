"""Dead letters by topic and reason: how many, since when, and which fields are to blame. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ops.dlq.letters import Letter
from ops.times import iso_time

_MAX_FIELDS: Final = 10


@dataclass(slots=True)
class Group:
    """Letters of one topic that have one reason."""

    topic: str
    reason: str
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    last: tuple[int, int] = (0, 0)
    max_attempt: int = 0
    fields: Counter[str] = field(default_factory=Counter)

    def add(self, letter: Letter) -> None:
        """Count one more."""
        self.first_ms = letter.append_ms if not self.count else min(self.first_ms, letter.append_ms)
        if letter.append_ms >= self.last_ms:
            self.last_ms, self.last = letter.append_ms, letter.place
        self.count += 1
        if letter.letter is not None:
            self.max_attempt = max(self.max_attempt, letter.letter.attempt)
        if letter.field and (letter.field in self.fields or len(self.fields) < _MAX_FIELDS):
            self.fields[letter.field] += 1

    def to_json(self) -> dict[str, Any]:
        """As `intertidal dlq list --json` prints it."""
        return {
            "topic": self.topic,
            "reason": self.reason,
            "count": self.count,
            "first": iso_time(self.first_ms),
            "last": iso_time(self.last_ms),
            "last_partition": self.last[0],
            "last_offset": self.last[1],
            "max_attempt": self.max_attempt,
            "fields": dict(sorted(self.fields.items(), key=lambda entry: (-entry[1], entry[0]))),
        }

    def line(self) -> str:
        """For a person."""
        fields = ", ".join(self.to_json()["fields"])
        return (
            f"{self.topic:<24} {self.reason:<18} {self.count:>8}  {iso_time(self.first_ms)} to {iso_time(self.last_ms)}"
            f"  last at {self.last[1]}" + (f"  {fields}" if fields else "")
        )


def grouped(topic: str, letters: Iterable[Letter]) -> Iterator[Group]:
    """Groups of one topic's letters, the largest first."""
    groups: dict[str, Group] = {}
    for letter in letters:
        if letter.is_note:
            continue
        group = groups.get(letter.reason)
        if group is None:
            group = groups[letter.reason] = Group(topic, letter.reason)
        group.add(letter)
    yield from sorted(groups.values(), key=lambda group: (-group.count, group.reason))
