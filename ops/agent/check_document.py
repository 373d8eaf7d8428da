"""What `intertidal agent check` says: these types are its JSON, and docs/agent-check.schema.json is made of them."""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

Rule = Literal[
    "key", "partition", "framing", "value", "cell", "times", "epoch", "sequence", "snapshot", "heartbeat", "one_agent"
]
RULES: Final[Mapping[Rule, str]] = {
    "key": "the key is the record's cell",
    "partition": "the partition is the one that murmur2 of the key leads to",
    "framing": "the value is one record in a known frame, and nothing behind it",
    "value": "every field is within its bounds",
    "cell": "the cell is declared",
    "times": "times are not ahead of the broker's by more than the skew, and do not go back within an epoch",
    "epoch": "an epoch is the agent's start, and does not go back",
    "sequence": "numbers rise by one from 0 within an epoch; a repeated number is the same record",
    "snapshot": "a heartbeat repeats all that is offered; an offer offers something",
    "heartbeat": "a host that lives is heard within its time to live",
    "one_agent": "one agent at a time speaks for a host",
}


class Example(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One record that breaks a rule, and how."""

    partition: int
    offset: int
    detail: str


class Broken(Struct, kw_only=True, forbid_unknown_fields=True):
    """A rule that a host broke. ``host`` is empty for records that name none."""

    host: str
    cell: str
    rule: Rule
    num_records: int
    examples: list[Example]


class HostSeen(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a host sent: records, repeats among them, epochs, and the longest time between two records."""

    host: str
    cell: str
    num_records: int
    num_repeats: int
    num_epochs: int
    num_missing: int
    longest_silence_ms: int


class CheckDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`intertidal agent check --json`. Within one ``version`` nothing is renamed, removed or given another meaning."""

    version: Literal[1] = 1
    is_conformant: bool
    num_records: int
    hosts: list[HostSeen]
    broken: list[Broken]
