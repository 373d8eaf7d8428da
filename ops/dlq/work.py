"""Working through the dead letters of a topic: redrive them, or give them up.

Order is what makes it safe. A redrive:
    1. a run that was begun and not ended has sent some already: these are read back, and the run goes on;
    2. the run is noted before it sends anything;
    3. a letter is redriven when it is chosen, believed, and has not been tried too often;
    4. it is marked once the broker has acknowledged the record, and marks are committed behind acknowledgements only;
    5. at the end a note with the marks goes into the log, and the run counts as ended.

Killed between two steps, no letter is lost, as none is marked that is not in the topic; and none is sent twice, as the
next start goes through step 1. `discard` writes down what it gives up, waits for that, and marks it then. The marks in
the notes are for the day on which the broker has forgotten the commit: it does so a week after the last one, letters
are kept for a month, and a note outlives every letter that it speaks of.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ops.dlq.letters import NOTE_PART, Letter
from ops.dlq.marks import Marks, Run, written
from ops.dlq.redrive import Place, Redriven, Stays, Terms, judged
from ops.intake import Intake
from ops.replay.pace import Pace
from schemas.dead_letters import MAX_DETAIL_CHARS
from schemas.records import DeadLetter
from schemas.topics import Topic

COMMIT_EVERY: Final = 100
# A letter is written twice when its reader dies at the wrong moment, and then soon after the first.
_MAX_ORIGINS: Final = 100_000
_MAX_EXAMPLES: Final = 20

Chosen = Callable[[Letter], bool]


class Log(Protocol):
    """A dead-letter topic and the topic that its letters come from."""

    def letters(self, marks: Mapping[int, Marks]) -> Iterator[Letter]:
        """Letters from the marks' positions on up to the end that the topic has now, in the order of each partition."""

    def newest_ms(self) -> int:
        """The largest append time in the original topic, 0 where it is empty."""

    def sent_by(self, run: Run) -> Iterable[Place]:
        """Letters of which a run has sent the record already."""

    def send(self, record: Redriven, *, on_acked: Callable[[], None]) -> None:
        """Hand a record to the broker."""

    def note(self, letter: DeadLetter) -> Place:
        """Write a letter into the dead-letter topic and return its place once the broker has it."""

    def drain(self) -> None:
        """Return once everything handed over is acknowledged; raises DeliveryError otherwise."""

    def commit(self, marks: Mapping[int, Marks]) -> None:
        """Make the marks durable; raises BusyError when another one has taken over."""


@dataclass(slots=True)
class Outcome:
    """What became of the open letters that were looked at."""

    run: str
    num_redriven: int = 0
    num_again: int = 0
    num_not_chosen: int = 0
    # How many stay, by why; a few examples with their letters.
    stays: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[Letter, Stays]] = field(default_factory=list)

    def stay(self, letter: Letter, stays: Stays) -> None:
        """Count a letter that cannot be redriven."""
        self.stays[stays.why] += 1
        if len(self.examples) < _MAX_EXAMPLES:
            self.examples.append((letter, stays))

    def to_json(self, topic: str, *, is_dry: bool) -> dict[str, Any]:
        """As `intertidal dlq redrive --json` prints it."""
        return {
            "topic": topic,
            "run": self.run,
            "dry_run": is_dry,
            "redriven": self.num_redriven,
            "already_redriven": self.num_again,
            "not_chosen": self.num_not_chosen,
            "stays": dict(sorted(self.stays.items())),
            "examples": [
                {"partition": letter.partition, "offset": letter.offset, "why": stays.why, "detail": stays.detail}
                for letter, stays in self.examples
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Redrive:
    """What is redriven, and how: the same for a plan and for the run."""

    topic: Topic
    intake: Intake
    terms: Terms
    chosen: Chosen
    now_ms: Callable[[], int]

    def judged(self, letters: Iterable[Letter], marks: Mapping[int, Marks], outcome: Outcome) -> "Iterator[_Judged]":
        """Open letters that are chosen, each with the record to send; the others are counted."""
        seen: OrderedDict[tuple[str, int, int], None] = OrderedDict()
        for letter in letters:
            if letter.is_note or marks[letter.partition].is_done(letter.offset):
                continue
            if not self.chosen(letter):
                outcome.num_not_chosen += 1
                continue
            if letter.origin is not None and letter.origin in seen:
                outcome.num_again += 1
                yield _Judged(letter, None)
                continue
            verdict = judged(letter, self.topic, self.intake, self.terms, now_ms=self.now_ms())
            if isinstance(verdict, Stays):
                outcome.stay(letter, verdict)
                continue
            if letter.origin is not None:
                seen[letter.origin] = None
                if len(seen) > _MAX_ORIGINS:
                    seen.popitem(last=False)
            yield _Judged(letter, verdict)


@dataclass(frozen=True, slots=True)
class _Judged:
    """A letter, and its record; None where the same record was redriven from another copy of the letter."""

    letter: Letter
    record: Redriven | None


def open_letters(letters: Iterable[Letter], marks: Mapping[int, Marks], chosen: Chosen) -> Iterator[Letter]:
    """Letters that nothing was done to yet, and that are chosen."""
    for letter in letters:
        if not letter.is_note and not marks[letter.partition].is_done(letter.offset) and chosen(letter):
            yield letter


def plan(log: Log, marks: Mapping[int, Marks], work: Redrive) -> Outcome:
    """What a redrive would do now."""
    outcome = Outcome(work.terms.run)
    for found in work.judged(log.letters(marks), marks, outcome):
        outcome.num_redriven += found.record is not None
    return outcome


def unfinished(marks: Mapping[int, Marks]) -> Run | None:
    """The run that was begun and not ended, if there is one."""
    return next((held.run for held in marks.values() if held.run is not None), None)


def redrive(log: Log, marks: Mapping[int, Marks], work: Redrive, *, topic: str, pace: Pace) -> Outcome:
    """Redrive the chosen letters; ``work.terms.run`` is the name of the unfinished run where there is one.

    Raises MarksFullError when letters are taken from too many places to be noted; what was done until then is marked.
    """
    outcome = Outcome(work.terms.run)
    # 1. What a run has sent before it was killed is done.
    run = unfinished(marks)
    is_resumed = run is not None
    if run is not None:
        for partition, offset in log.sent_by(run):
            if not marks[partition].is_done(offset):
                outcome.num_again += 1
                marks[partition].mark(offset)
    else:
        run = Run(work.terms.run, log.newest_ms())
    # 2. Noted before anything is sent.
    for held in marks.values():
        held.run = run
    log.commit(marks)
    # 3. and 4. As the marks will be once all is acknowledged: what they cannot hold then is not sent.
    expected = {partition: held.copy() for partition, held in marks.items()}
    num_since = 0
    for found in work.judged(log.letters(marks), marks, outcome):
        held, soon = marks[found.letter.partition], expected[found.letter.partition]
        if not soon.can_mark(found.letter.offset):
            _commit(log, marks)
            raise MarksFullError(found.letter.offset)
        soon.mark(found.letter.offset)
        if found.record is None:
            held.mark(found.letter.offset)
        else:
            pace.took(1)
            log.send(found.record, on_acked=_marker(held, found.letter.offset, outcome))
        num_since += 1
        if num_since >= COMMIT_EVERY:
            _commit(log, marks)
            num_since = 0
    # 5. Everything is acknowledged: the run is over.
    log.drain()
    for held in marks.values():
        held.run = None
    if outcome.num_redriven or is_resumed:
        detail = f"{outcome.num_redriven} records redriven by run {run.name}"
        _mark_note(marks, log.note(_note(topic, "redrive", detail, marks)))
    log.commit(marks)
    return outcome


def discard(log: Log, marks: Mapping[int, Marks], topic: str, *, chosen: Chosen, why: str) -> int:
    """Give the chosen letters up and return how many; what was given up, and why, is in the log before it is marked.

    Raises UnfinishedRunError while a redrive was begun and not ended: some of its letters may be in their topic again.
    """
    run = unfinished(marks)
    if run is not None:
        raise UnfinishedRunError(run.name)
    given_up: dict[int, list[int]] = {}
    for letter in open_letters(log.letters(marks), marks, chosen):
        given_up.setdefault(letter.partition, []).append(letter.offset)
    soon = {number: held.copy() for number, held in marks.items()}
    for number, offsets in sorted(given_up.items()):
        for offset in offsets:
            if not soon[number].can_mark(offset):
                raise MarksFullError(offset)
            soon[number].mark(offset)
    count = sum(map(len, given_up.values()))
    if count:
        places = "; ".join(f"partition {number}, offsets {_ranges(offsets)}" for number, offsets in given_up.items())
        place = log.note(_note(topic, "discard", f"{count} letters given up: {why}; {places}", soon))
        for number, held in soon.items():
            marks[number].position, marks[number].ranges = held.position, held.ranges
        _mark_note(marks, place)
        log.commit(marks)
    return count


class UnfinishedRunError(Exception):
    """A redrive was killed: what it has sent is not marked yet."""

    def __init__(self, run: str) -> None:
        super().__init__(f"redrive {run} was begun and not ended: let `intertidal dlq redrive` end it first")


class MarksFullError(Exception):
    """Letters were taken from more places than a commit can note."""

    def __init__(self, offset: int) -> None:
        super().__init__(
            f"letters stay open in too many places to note one more at {offset}: redrive or discard the oldest open "
            "ones first"
        )


def _mark_note(marks: Mapping[int, Marks], place: Place) -> None:
    """A note is no open letter; where it cannot be marked any more it is passed over as one anyway."""
    number, offset = place
    if marks[number].can_mark(offset):
        marks[number].mark(offset)


def _commit(log: Log, marks: Mapping[int, Marks]) -> None:
    log.drain()
    log.commit(marks)


def _marker(held: Marks, offset: int, outcome: Outcome) -> Callable[[], None]:
    def acked() -> None:
        held.mark(offset)
        outcome.num_redriven += 1

    return acked


def _note(topic: str, stage: str, detail: str, marks: Mapping[int, Marks]) -> DeadLetter:
    """What is written of what was done, with the marks as they are then."""
    first = min(marks)
    return DeadLetter(
        topic=topic,
        partition=first,
        offset=marks[first].position,
        timestamp_ms=0,
        timestamp_kind="none",
        key=None,
        value=written(marks),
        headers=[],
        part=NOTE_PART,
        stage=stage,
        reason=stage,
        field="",
        detail=detail[:MAX_DETAIL_CHARS],
    )


def _ranges(offsets: list[int]) -> str:
    """Rising offsets as 3-5,9."""
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1][1] = offset
        else:
            ranges.append([offset, offset])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
