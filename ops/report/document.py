"""A report as JSON, and the schema of that JSON: `python -m ops.report.document > docs/report.schema.json`. Pure."""

import json
from typing import Any, Final

import msgspec

from ops.report.model import Report

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def to_json(report: Report) -> str:
    """One line of JSON."""
    return msgspec.json.encode(report).decode()


def json_schema() -> dict[str, Any]:
    """Schema of that JSON."""
    return {"$schema": _DIALECT, "title": "intertidal report --json", **msgspec.json.schema(Report)}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
