"""What must hold of every schema that was ever released (``schemas.versions``).

A log is replayed after a year, and a fleet is never upgraded at once: each version must be able to read what each
other one has written, in both directions ("full transitive").
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from schemas.compatibility.resolution import Disagreement, disagreements
from schemas.registered import registered_schema
from schemas.versions import HISTORY_DIR, Version, read_history

ADD_COMMAND: Final = "python -m schemas.compatibility --add"


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a record's schema breaks what must hold."""

    record: str
    detail: str

    def __str__(self) -> str:
        return f"{self.record}: {self.detail}"


def faults(record_types: Sequence[type[Struct]], folder: Path = HISTORY_DIR) -> Iterator[Fault]:
    """Everything that is wrong with the current schemas and the history; nothing when the contract holds."""
    for record_type in record_types:
        name = record_type.__name__
        versions = read_history(name, folder)
        yield from incompatible(name, versions, current := Version(None, registered_schema(record_type)))
        if all(version.schema != current.schema for version in versions):
            yield Fault(name, f"the current schema is not in {folder.name}/{name}; when it is final: {ADD_COMMAND}")
    known = {record_type.__name__ for record_type in record_types}
    for gone in sorted(path.name for path in folder.glob("*") if path.is_dir() and path.name not in known):
        yield Fault(gone, "is in the history, but no record of any topic")


def incompatible(name: str, versions: Sequence[Version], current: Version) -> Iterator[Fault]:
    """A fault for each field on which two versions cannot read each other."""
    known = any(version.schema == current.schema for version in versions)
    for older, newer in combinations([*versions, *([] if known else [current])], 2):
        for reader, writer, direction in ((newer, older, "backward"), (older, newer, "forward")):
            for found in disagreements(reader.schema, writer.schema):
                yield Fault(name, _sentence(found, direction, reader=reader, writer=writer))


def add_current(record_types: Sequence[type[Struct]], folder: Path = HISTORY_DIR) -> list[Path]:
    """Write each current schema that is not in the history as its next version; returns the new files.

    Raises ValueError, and writes nothing, when one is incompatible with a version that was released.
    """
    new: list[tuple[Path, dict[str, Any]]] = []
    for record_type in record_types:
        name = record_type.__name__
        versions = read_history(name, folder)
        current = Version(None, registered_schema(record_type))
        if any(version.schema == current.schema for version in versions):
            continue
        broken = next(incompatible(name, versions, current), None)
        if broken is not None:
            raise ValueError(str(broken))
        number = 1 + max((version.number or 0 for version in versions), default=0)
        new.append((folder / name / f"{number}.avsc", current.schema))
    for path, schema in new:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
    return [path for path, _ in new]


def _sentence(found: Disagreement, direction: str, *, reader: Version, writer: Version) -> str:
    return f"{found} ({direction}: what {writer} writes cannot be read with {reader})"
