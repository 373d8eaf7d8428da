"""A file of the optional calls that a replica made, one JSON line each: to check from outside that it gave way in time.

{"looked_ns": 1, "end_ns": 2, "num_candidates": 256}      times of the host's monotonic clock, as the gate's are
"""

import json
from pathlib import Path

from ranking.consumer.executor import OptionalCall


class CallTrace:
    """Appends calls to a file; a line is whole even if the process is killed after `flush`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="ascii")

    def note(self, call: OptionalCall) -> None:
        """Note one call."""
        self._file.write(
            json.dumps({"looked_ns": call.looked_ns, "end_ns": call.end_ns, "num_candidates": call.num_candidates})
            + "\n"
        )

    def flush(self) -> None:
        """Write what was noted; called between micro-batches."""
        self._file.flush()

    def close(self) -> None:
        """Write what was noted and close the file."""
        self._file.close()
