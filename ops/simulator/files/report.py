"""What was read of one file and what was made of it, as data for the report and as a line for a person. Pure."""

from dataclasses import dataclass
from typing import Any, Literal

from ops.simulator.files.dirt import Dirt

FileKind = Literal["arrivals", "capacity", "pairs"]


@dataclass(frozen=True, kw_only=True)
class DirtyRows:
    """Rows of one kind of ``dirt.MEANINGS``, and the line numbers of the first few."""

    kind: str
    num_rows: int
    first_lines: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class FileReport:
    """One file as a run used it.

    ``name`` is without folders. Rows that were not used are among the dirty ones; a dirty row may have been used.
    ``factors`` are those in force, ``chosen`` the names of those that nobody had given. ``story`` says what came of it.
    """

    kind: FileKind
    name: str
    num_rows: int
    num_used: int
    dirty: tuple[DirtyRows, ...]
    factors: dict[str, float]
    chosen: tuple[str, ...]
    story: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, keyed for the report."""
        return {
            "name": self.name,
            "rows": self.num_rows,
            "used": self.num_used,
            "dirty": {row.kind: {"rows": row.num_rows, "first_lines": list(row.first_lines)} for row in self.dirty},
            "factors": self.factors,
            "chosen": list(self.chosen),
            "story": self.story,
        }

    def line(self) -> str:
        """One line for a person."""
        dirty = ", ".join(f"{row.num_rows} {row.kind} (line {row.first_lines[0]})" for row in self.dirty) or "none"
        return f"{self.name}: {self.num_used} of {self.num_rows} used; {self.story}; odd rows: {dirty}"


def dirty_rows(dirt: Dirt) -> tuple[DirtyRows, ...]:
    """Counts in the order of their kinds."""
    return tuple(
        DirtyRows(kind=kind, num_rows=count.num_rows, first_lines=tuple(count.first_lines))
        for kind, count in sorted(dirt.kinds.items())
    )
