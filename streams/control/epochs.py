"""The fencing epochs under which a process speaks for cells. Pure.

Of two controllers that speak for one cell the one with the higher epoch counts (``ranking.client.fence``), so whoever
takes a cell over must have a higher one than whoever spoke before, however wrong its clock is:

    epoch = max(start of this process in milliseconds, epoch of the last owner + 1)

The epoch of the last owner stands in the controllers' table beside the state of the cell, so that it comes with it:

1. a partition is taken over, and the table is restored from its changelog;
2. at the first window of a cell the new epoch goes into the table;
3. once the changelog has acknowledged it, the first record under that epoch may be sent.

So no reader ever meets an epoch that a later owner cannot find; an owner that fell asleep between 1 and 2 is held up by
``stall``. Where table and changelog are both lost the clock decides; where that is wrong too, readers hear the new
owner as soon as the last target of the old one has run out.
"""

from collections import defaultdict

# No cell's name has a slash: no state of a cell can stand under such a key.
_KEY_PREFIX = b"epoch/"


class Epochs:
    """Epoch of each cell that this process speaks for; ``start_ms`` is the start of the process."""

    def __init__(self, *, start_ms: int) -> None:
        self._start_ms = start_ms
        self._by_partition: defaultdict[int, dict[str, int]] = defaultdict(dict)

    def take_over(self, partition: int) -> None:
        """Forget the cells of a partition: another may have owned it in the meantime."""
        self._by_partition.pop(partition, None)

    def held(self, cell: str, *, partition: int) -> int | None:
        """Epoch of a cell, None where it has yet to be claimed."""
        return self._by_partition[partition].get(cell)

    def claim(self, cell: str, *, partition: int, stored: bytes | None) -> int:
        """A new epoch for a cell, given what the table holds of the last owner. It must be stored before it is used."""
        last = int(stored) if stored is not None and stored.isdigit() else -1
        epoch = self._by_partition[partition][cell] = max(self._start_ms, last + 1)
        return epoch


def epoch_key(cell: str) -> bytes:
    """Key in the controllers' table of the epoch of a cell."""
    return _KEY_PREFIX + cell.encode()


def stored_epoch(epoch: int) -> bytes:
    """The epoch as the table holds it: decimal digits."""
    return str(epoch).encode()
