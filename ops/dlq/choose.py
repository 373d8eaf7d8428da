"""Which letters a verb is about. Reads a log; pure but for that."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from ops.dlq.letters import Letter
from ops.dlq.marks import Marks
from ops.dlq.work import Chosen, Log, open_letters


def choice(reasons: Sequence[str], offsets: Sequence[int], partition: int = 0) -> Chosen:
    """Letters of any of the reasons or at any of the offsets; all where neither is given."""
    if not reasons and not offsets:
        return lambda _: True
    places = {(partition, offset) for offset in offsets}
    return lambda letter: letter.reason in reasons or letter.place in places


def oldest(log: Log, marks: Mapping[int, Marks], chosen: Chosen, *, limit: int) -> Iterator[tuple[int, Letter]]:
    """The oldest open letters that are chosen, with their offsets."""
    for letter in islice(open_letters(log.letters(marks), marks, chosen), limit):
        yield letter.offset, letter
