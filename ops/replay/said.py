"""What a replay says: one record for one topic of its run. Pure."""

from typing import NamedTuple

from msgspec import Struct

from schemas.dead_letters import dead_letter_key
from schemas.records import DeadLetter
from schemas.topics import Topic


class Said(NamedTuple):
    """One record; ``topic`` is the contract's name, without a namespace.

    ``time_ms`` is its time where a topic keeps the producer's, 0 for the time at which it is sent.
    """

    topic: str
    key: bytes
    record: Struct
    time_ms: int = 0


def refused(topic: Topic, letter: DeadLetter) -> Said:
    """The dead letter of a record of a topic."""
    return Said(topic.dead_letters, dead_letter_key(letter), letter)
