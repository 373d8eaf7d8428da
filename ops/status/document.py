"""A status as JSON, and the schema of that JSON: `python -m ops.status.document > docs/status.schema.json`. Pure."""

import json
from typing import Any, Final

import msgspec

from ops.status.model import Status

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def to_json(status: Status) -> str:
    """One line of JSON."""
    return msgspec.json.encode(status).decode()


def json_schema() -> dict[str, Any]:
    """Schema of that JSON. Within one ``version`` nothing is renamed, removed or given another meaning."""
    return {"$schema": _DIALECT, "title": "intertidal status --json", **msgspec.json.schema(Status)}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
