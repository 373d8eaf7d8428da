"""JSON schemas of what the agent's verbs print: `python -m ops.agent.documents docs`. Pure but for the command."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from ops.agent.check_document import CheckDocument
from ops.agent.reclaim import ReclaimDocument

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: Final[Mapping[str, tuple[str, type[Struct]]]] = {
    "agent-check.schema.json": ("intertidal agent check --json", CheckDocument),
    "reclaim.schema.json": ("intertidal reclaim --json", ReclaimDocument),
}


def json_schema(name: str) -> dict[str, Any]:
    """Schema of a document by the name of its file."""
    title, document = DOCUMENTS[name]
    return {"$schema": _DIALECT, "title": title, **msgspec.json.schema(document)}


def main(folder: str) -> None:
    """Write every schema to a folder."""
    for name in DOCUMENTS:
        (Path(folder) / name).write_text(json.dumps(json_schema(name), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
