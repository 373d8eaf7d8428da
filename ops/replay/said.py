"""What a replay says: one record for one topic of its run. Pure."""

from typing import NamedTuple

from msgspec import Struct

from schemas.dead_letters import dead_letter_key
from schemas.records import DeadLetter
from schemas.topics import Topic


class Said(NamedTuple):
    """One record; ``topic`` is the contract's name, without a namespace."""

    topic: str
    key: bytes
    record: Struct


def refused(topic: Topic, letter: DeadLetter) -> Said:
    """The dead letter of a record of a topic."""
    return Said(topic.dead_letters, dead_letter_key(letter), letter)
