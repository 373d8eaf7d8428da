"""Who goes first when a host runs out of memory: an opportunistic replica, before anything that it stands beside."""

from pathlib import Path
from typing import Final

# Half of the scale (proc(5), oom_score_adj): above any process of default score that holds less than half the memory.
SCORE: Final = 500

_FILE: Final = Path("/proc/self/oom_score_adj")


def go_first(file: Path = _FILE) -> str:
    """Tell the kernel to end this process before others; returns what was done, or why nothing was."""
    try:
        current = int(file.read_text(encoding="ascii"))
        if current >= SCORE:
            return f"left at {current}: as early already"
        file.write_text(str(SCORE), encoding="ascii")
    except (OSError, ValueError) as error:
        return f"left alone: {error}"
    return f"raised from {current} to {SCORE}"
