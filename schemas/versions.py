"""Every schema that was ever released, as committed: ``schemas/history/<Record>/<n>.avsc``.

Records outlive releases: a compacted topic still holds what the release before last has written.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
from msgspec import Struct

HISTORY_DIR: Final = Path(__file__).parent / "history"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a record's schema; ``number`` is None for one that is not in the history."""

    number: int | None
    schema: dict[str, Any]

    def __str__(self) -> str:
        return "the current schema" if self.number is None else f"version {self.number}"


def read_history(record: str, folder: Path = HISTORY_DIR) -> list[Version]:
    """Versions of a record in order; raises ValueError naming a file that is no JSON or no number."""
    versions = []
    for path in (folder / record).glob("*.avsc"):
        if not path.stem.isdecimal():
            raise ValueError(f"{path}: a version's file is called by its number")
        try:
            versions.append(Version(int(path.stem), json.loads(path.read_text(encoding="utf-8"))))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: {error}") from error
    return sorted(versions, key=lambda version: version.number or 0)


@cache
def released_schemas(record_type: type[Struct]) -> Mapping[bytes, Any]:
    """Released schemas of a record type, as fastavro wants them, by the fingerprint that frames name them with."""
    return {
        bytes.fromhex(fingerprint(to_parsing_canonical_form(version.schema), "CRC-64-AVRO")): parse_schema(
            version.schema, named_schemas={}
        )
        for version in read_history(record_type.__name__)
    }
