"""What one owner of a request partition leaves to the next, in the metadata of its commits. Pure."""

import json
from dataclasses import dataclass

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Takeover:
    """Where an owner begins: its first request, the floor of the last commit, the ends of both logs as they are now."""

    start: int
    floor: int
    horizon: int
    results_end: int


def commit_metadata(results_floor: int) -> str:
    """Metadata of a commit."""
    return json.dumps({"v": _VERSION, "results": results_floor}, separators=(",", ":"))


def results_floor(metadata: str | None) -> int | None:
    """The floor in a commit's metadata; None where there is none that this version can read."""
    try:
        content = json.loads(metadata or "")
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("v") != _VERSION:
        return None
    floor = content.get("results")
    return floor if isinstance(floor, int) and floor >= 0 else None
