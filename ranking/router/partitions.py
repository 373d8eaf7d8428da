"""Which partition of a route gets the next piece of work, by what is outstanding on each."""

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from schemas.records.fields import Route

# Request, route, attempt.
WorkKey = tuple[str, Route, int]


@dataclass(slots=True)
class _Partition:
    outstanding: dict[WorkKey, float] = field(default_factory=dict)
    is_suspect: bool = False
    last_sent_ms: float = float("-inf")
    owner: str | None = None


class PartitionBook:
    """Outstanding work of one route by partition.

    Choice: the less loaded of two drawn at random (M. Mitzenmacher, "The power of two choices in randomized load
    balancing", 2001): near the best balance, and routers that do not talk never all pick the same one. A partition
    with overdue work is a suspect and is avoided at once; any answer from it clears it. A suspect to which nothing
    was sent for ``probe_interval_ms`` is tried once more, so one that lost its work as well is found again.
    """

    def __init__(self, num_partitions: int, *, rng: random.Random, probe_interval_ms: float) -> None:
        if num_partitions < 1:
            raise ValueError(f"a route needs at least one partition, not {num_partitions}")
        self._partitions = [_Partition() for _ in range(num_partitions)]
        self._all = range(num_partitions)
        self._num_suspects = 0
        self._where: dict[WorkKey, int] = {}
        self._rng = rng
        self._probe_interval_ms = probe_interval_ms

    def choose(
        self, now_ms: float, *, weight: Callable[[int], float] | None = None, avoided: Collection[int] = ()
    ) -> int | None:
        """Partition for new work; None when all are suspects, none due to be tried again, or ``avoided``.

        ``weight`` multiplies a partition's load (1 by default).
        """
        if not (self._num_suspects or avoided):
            return self._least_of_two(self._all, weight)
        trusted = []
        for number, partition in enumerate(self._partitions):
            if number in avoided:
                continue
            if not partition.is_suspect:
                trusted.append(number)
            elif now_ms - partition.last_sent_ms >= self._probe_interval_ms:
                return number
        return self._least_of_two(trusted, weight) if trusted else None

    def choose_any(self) -> int:
        """Partition for work that must be sent although all are suspects."""
        return self._least_of_two(self._all, None)

    def choose_elsewhere(self, tried: int) -> int | None:
        """Partition for a retry: of another owner than ``tried``, trusted ones first; None when there is no other."""
        owner = self._partitions[tried].owner
        others = [number for number in range(len(self._partitions)) if number != tried]
        of_others = [n for n in others if owner is None or self._partitions[n].owner != owner]
        for numbers in (of_others, others):
            trusted = [number for number in numbers if not self._partitions[number].is_suspect]
            if trusted:
                return self._least_of_two(trusted, None)
        fallback = of_others or others
        return self._least_of_two(fallback, None) if fallback else None

    def sent(self, key: WorkKey, partition: int, now_ms: float) -> None:
        """Note work on its way."""
        self._partitions[partition].outstanding[key] = now_ms
        self._partitions[partition].last_sent_ms = now_ms
        self._where[key] = partition

    def answered(self, key: WorkKey, *, partition: int, owner: str, is_usable: bool = True) -> float | None:
        """Note an answer; returns when its work was sent, None for work that is not (or no longer) ours.

        One that is of no use makes its partition a suspect: whoever fails at once has little outstanding, and would be
        sent the most.
        """
        if not 0 <= partition < len(self._partitions):
            return None
        entry = self._partitions[partition]
        if entry.is_suspect == is_usable:
            entry.is_suspect = not is_usable
            self._num_suspects += -1 if is_usable else 1
        entry.owner = owner
        if self._where.get(key) != partition:
            return None
        del self._where[key]
        return entry.outstanding.pop(key)

    def suspect(self, key: WorkKey) -> bool:
        """Suspect the partition of work that is overdue; False when it was answered meanwhile."""
        number = self._where.get(key)
        if number is None:
            return False
        if not self._partitions[number].is_suspect:
            self._partitions[number].is_suspect = True
            self._num_suspects += 1
        return True

    def give_up(self, key: WorkKey) -> float | None:
        """Forget work that will not be waited for; returns when it was sent, None when it was answered."""
        number = self._where.pop(key, None)
        return None if number is None else self._partitions[number].outstanding.pop(key)

    def owner(self, partition: int) -> str | None:
        """Replica that last answered from a partition."""
        return self._partitions[partition].owner

    def owned_by(self, owner: str) -> list[int]:
        """Partitions from which a replica was the last to answer, the one that was sent nothing for longest first."""
        numbers = [number for number, partition in enumerate(self._partitions) if partition.owner == owner]
        return sorted(numbers, key=lambda number: self._partitions[number].last_sent_ms)

    @property
    def owners(self) -> frozenset[str]:
        """Replicas that are known to own a partition."""
        return frozenset(partition.owner for partition in self._partitions if partition.owner is not None)

    def num_outstanding(self, partition: int) -> int:
        return len(self._partitions[partition].outstanding)

    @property
    def suspects(self) -> frozenset[int]:
        return frozenset(number for number, partition in enumerate(self._partitions) if partition.is_suspect)

    def _least_of_two(self, numbers: Sequence[int], weight: Callable[[int], float] | None) -> int:
        if len(numbers) == 1:
            return numbers[0]
        # Two different ones; several times as fast as `sample`, which shows at thousands of requests a second.
        one, other = self._rng.randrange(len(numbers)), self._rng.randrange(len(numbers) - 1)
        first, second = numbers[one], numbers[other + (other >= one)]
        return second if self._load(second, weight) < self._load(first, weight) else first

    def _load(self, number: int, weight: Callable[[int], float] | None) -> float:
        load = len(self._partitions[number].outstanding)
        # One more, for the work to be placed: an idle partition of a pressed owner must still weigh.
        return float(load) if weight is None else (load + 1) * weight(number)
