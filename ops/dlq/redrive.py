"""From a dead letter to the record that brings it back in, or why it stays. Pure.

The record goes through the checks of its topic's own readers, as any record does. Its key, headers and event time are
kept; the broker stamps it anew, so the time that it had stands in a header. What is repaired goes where its record's
key leads to: a letter of the wrong key or partition is mended so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from msgspec import Struct

from ops.dlq.letters import Letter
from ops.intake import Intake, key_of
from ops.record_json import from_json
from schemas.dead_letters import ATTEMPT_HEADER, Headers, RawRecord
from schemas.errors import RecordError
from schemas.framing import frame
from schemas.partition import partition_for
from schemas.records import ControlWindow, DeadLetter
from schemas.topics import Topic

# RUN/PARTITION/OFFSET: which run sent the record, and from which letter.
REDRIVE_HEADER: Final = "intertidal.redrive"
# When the record was first appended, in milliseconds since the Unix epoch.
APPENDED_HEADER: Final = "intertidal.appended-ms"
DEFAULT_MAX_ATTEMPTS: Final = 3

Place = tuple[int, int]
StaysBecause = Literal["unreadable", "cut", "attempts", "refused", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """A record as it is sent again."""

    key: bytes | None
    partition: int
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Stays:
    """A letter that cannot be redriven as it is."""

    why: StaysBecause
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a run redrives: its name, how often a record is tried at most, and what was repaired, by letter."""

    run: str
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    repaired: Mapping[Place, Struct] | None = None


def judged(letter: Letter, topic: Topic, intake: Intake, terms: Terms, *, now_ms: int) -> Redriven | Stays:
    """What becomes of a letter at a time of the broker's clock."""
    said = letter.letter
    if said is None:
        return Stays("unreadable", letter.why)
    if said.attempt >= terms.max_attempts:
        return Stays("attempts", f"redriven {said.attempt} times already")
    repaired = (terms.repaired or {}).get(letter.place)
    if repaired is None and letter.is_cut:
        return Stays("cut", said.detail)
    key, value = (said.key, said.value) if repaired is None else (key_of(topic, repaired), frame(repaired))
    has_key = topic.key != "none" and key is not None
    partition = partition_for(key or b"", intake.num_partitions(topic)) if has_key else said.partition
    redriven = Redriven(key=key, partition=partition, value=value, headers=_headers(letter, said, terms.run))
    try:
        record = _checked(topic, intake, redriven, now_ms=now_ms)
    except RecordError as error:
        return Stays("refused", str(error))
    if isinstance(record, ControlWindow) and record.kind == "command":
        # Commands rule from their arrival on, whatever was ordered since.
        return Stays("command", "an operator's command of the past would rule again: give it anew")
    return redriven


def repaired_letters(text: bytes, topic: Topic) -> dict[Place, Struct]:
    """Repaired records by letter, of lines as `intertidal dlq show --json` prints them.

    Raises ValueError naming the line, and the field where one is to blame.
    """
    types = {record_type.__name__: record_type for record_type in topic.record_types}
    repaired: dict[Place, Struct] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            shown = msgspec.json.decode(line)
            place, data = (shown["partition"], shown["offset"]), shown["record"]
            record_type = types[shown.get("type") or topic.record_types[0].__name__]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number}: no letter of {topic.dead_letters} with its record: {error}") from None
        if not all(isinstance(figure, int) for figure in place) or place in repaired:
            raise ValueError(f"line {number}: letter {place} is none, or there twice")
        try:
            repaired[place] = from_json(record_type, data)
        except RecordError as error:
            raise ValueError(f"line {number}: {error}") from None
    return repaired


def origin_header(run: str, place: Place) -> bytes:
    """What a redriven record says of the run and the letter that it comes from."""
    return f"{run}/{place[0]}/{place[1]}".encode()


def place_in(headers: Headers, run: str) -> Place | None:
    """The letter that a record of a run comes from; None where it is of no run, or another one."""
    for name, value in headers:
        parts = (value or b"").decode("ascii", "replace").split("/") if name == REDRIVE_HEADER else []
        if len(parts) == 3 and parts[0] == run and parts[1].isdecimal() and parts[2].isdecimal():
            return int(parts[1]), int(parts[2])
    return None


def _headers(letter: Letter, said: DeadLetter, run: str) -> list[tuple[str, bytes | None]]:
    """The original's, with how often it was tried, by which run, and when it was first appended."""
    own = {ATTEMPT_HEADER, REDRIVE_HEADER, APPENDED_HEADER}
    kept = [(header.key, header.value) for header in said.headers if header.key not in own]
    appended = next(
        (header.value for header in said.headers if header.key == APPENDED_HEADER), str(said.timestamp_ms).encode()
    )
    return [
        *kept,
        (ATTEMPT_HEADER, str(said.attempt + 1).encode()),
        (REDRIVE_HEADER, origin_header(run, letter.place)),
        (APPENDED_HEADER, appended),
    ]


def _checked(topic: Topic, intake: Intake, redriven: Redriven, *, now_ms: int) -> Struct:
    if redriven.partition >= intake.num_partitions(topic):
        raise RecordError("wrong_partition", f"{topic.name} has no partition {redriven.partition}")
    return intake.check(
        topic,
        RawRecord(
            topic=topic.name,
            partition=redriven.partition,
            offset=0,
            timestamp_ms=now_ms,
            timestamp_kind="append",
            key=redriven.key,
            value=redriven.value,
            headers=redriven.headers,
        ),
    )
