"""Whether the agent moves: its offsets against the ends of the log. A process that answers may still take nothing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass
class _Partition:
    next_offset: int
    end_offset: int
    moved_at_s: float


class Progress:
    """Follows the partitions that this process owns. ``clock`` gives monotonic seconds.

    A partition stalls when records wait in it and none has been taken for ``stall_s``; the agent as a whole is in doubt
    when the ends of the log could not be asked for that long.
    """

    def __init__(self, *, clock: Clock, stall_s: float) -> None:
        self._clock = clock
        self._stall_s = stall_s
        self._partitions: dict[int, _Partition] = {}
        self._asked_at_s: float | None = None

    def owns(self, partitions: Iterable[int]) -> None:
        """Follow these partitions from now on, and no others."""
        kept = set(partitions)
        for partition in [known for known in self._partitions if known not in kept]:
            del self._partitions[partition]

    def starts(self, partition: int, *, next_offset: int) -> None:
        """Note where a partition is read from; without effect once something was taken from it."""
        self._partitions.setdefault(partition, _Partition(next_offset, next_offset, self._clock()))

    def took(self, partition: int, *, offset: int) -> None:
        """Note a record that is done with."""
        entry = self._partitions.setdefault(partition, _Partition(offset, offset, self._clock()))
        entry.next_offset = offset + 1
        entry.moved_at_s = self._clock()

    def ends(self, end_offsets: Mapping[int, int]) -> None:
        """Note the ends of the log, as the broker has just told them."""
        now = self._clock()
        self._asked_at_s = now
        for partition, end_offset in end_offsets.items():
            entry = self._partitions.get(partition)
            if entry is None:
                continue
            if entry.next_offset >= entry.end_offset:
                # Nothing was waiting until now: the wait begins here.
                entry.moved_at_s = now
            entry.end_offset = end_offset

    def waiting(self, *, longer_than_s: float) -> list[int]:
        """Partitions in which records wait and none has been taken for longer than that."""
        now = self._clock()
        return [
            partition
            for partition, entry in sorted(self._partitions.items())
            if entry.end_offset > entry.next_offset and now - entry.moved_at_s > longer_than_s
        ]

    def trouble(self) -> str | None:
        """What is wrong in a few words, or None."""
        now = self._clock()
        if self._asked_at_s is None:
            return "starting: state is being restored"
        silent_s = now - self._asked_at_s
        if silent_s > self._stall_s:
            return f"no word from the broker for {silent_s:.0f} s"
        for partition in self.waiting(longer_than_s=self._stall_s):
            entry = self._partitions[partition]
            num_waiting = entry.end_offset - entry.next_offset
            idle_s = now - entry.moved_at_s
            return f"partition {partition}: nothing taken for {idle_s:.0f} s, {num_waiting} records wait"
        return None
