"""The topics that can be read, dead letters included. Pure."""

from dataclasses import dataclass

from msgspec import Struct

from schemas.framing import DEAD_LETTER_MAX_BYTES, MAX_RECORD_BYTES, Decoder
from schemas.topics import DEAD_LETTER_TYPES, TOPICS, Namespace


@dataclass(frozen=True, kw_only=True)
class ReadableTopic:
    """One topic as it stands on the broker, with what can be in it. In a compacted one, no value means: key gone."""

    name: str
    record_types: tuple[type[Struct], ...]
    compacted: bool
    max_bytes: int

    def decoder(self) -> Decoder:
        return Decoder(self.record_types, max_bytes=self.max_bytes)


def readable_topics(namespace: Namespace) -> dict[str, ReadableTopic]:
    """By the name that the contract gives them: every topic, and the dead letters of each."""
    found = {}
    for topic in TOPICS:
        found[topic.name] = ReadableTopic(
            name=namespace.topic(topic),
            record_types=topic.record_types,
            compacted=topic.compacted,
            max_bytes=MAX_RECORD_BYTES,
        )
        found[topic.dead_letters] = ReadableTopic(
            name=namespace.dead_letters(topic),
            record_types=DEAD_LETTER_TYPES,
            compacted=False,
            max_bytes=DEAD_LETTER_MAX_BYTES,
        )
    return found
