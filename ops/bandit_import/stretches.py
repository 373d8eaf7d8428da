"""The rows of a log cut into stretches, each with the progress behind it. Pure but for the files that it reads."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from ops.bandit_import.files import LogFile, by_time
from ops.bandit_import.records import records_of
from ops.bandit_import.run_log import Progress
from ops.replay.said import Said

# Some ten thousand records: a transaction of a second.
NUM_ROWS: Final = 1_000


def stretches(
    files: Sequence[LogFile], progress: Progress, *, min_propensity: float, num_rows: int = NUM_ROWS
) -> Iterator[tuple[list[Said], Progress]]:
    """What is still to be written behind ``progress``: records, and the progress once they are durable.

    Rows come in the same order at every reading (``by_time``), so that their number is a place to go on from.
    """
    rows = islice(by_time(files), progress.num_rows, None)
    while batch := list(islice(rows, num_rows)):
        said = [record for row in batch for record in records_of(*row, min_propensity=min_propensity)]
        progress = msgspec.structs.replace(
            progress, num_rows=progress.num_rows + len(batch), num_records=progress.num_records + len(said)
        )
        yield said, progress
