"""The gate: current schemas are in the history, and every version of a record can read every other."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from schemas.compatibility import __main__ as command
from schemas.compatibility.history import add_current, faults
from schemas.registered import contract_types, registered_schema, subject
from schemas.versions import HISTORY_DIR, read_history


class Sample(Struct, kw_only=True):
    """A record; these words are no part of what is registered."""

    name: str
    count: int = 0


def history(folder: Path, *schemas: dict[str, Any]) -> None:
    (folder / "Sample").mkdir(parents=True)
    for number, schema in enumerate(schemas, start=1):
        (folder / "Sample" / f"{number}.avsc").write_text(json.dumps(schema))


def changed(**fields: Any) -> dict[str, Any]:
    """The sample's schema with fields replaced (None: left out) or added."""
    current = {field["name"]: field for field in registered_schema(Sample)["fields"]} | fields
    return {**registered_schema(Sample), "fields": [field for field in current.values() if field is not None]}


def complaints(folder: Path) -> list[str]:
    return [str(fault) for fault in faults([Sample], folder)]


def test_every_record_of_the_contract_is_in_the_history_and_compatible() -> None:
    assert [str(fault) for fault in faults(contract_types())] == []


def test_nothing_else_is_in_the_history() -> None:
    assert {path.name for path in HISTORY_DIR.iterdir()} == {record_type.__name__ for record_type in contract_types()}


def test_words_are_not_registered() -> None:
    assert "doc" not in json.dumps(registered_schema(Sample))
    assert registered_schema(Sample)["fields"][1] == {"name": "count", "type": "long", "default": 0}
    assert subject(Sample) == "intertidal.Sample"


def test_a_schema_that_is_not_in_the_history_says_how_to_add_it(tmp_path: Path) -> None:
    history(tmp_path, changed(count=None))
    command_line = "python -m schemas.compatibility --add"
    assert complaints(tmp_path) == [
        f"Sample: the current schema is not in {tmp_path.name}/Sample; when it is final: {command_line}"
    ]
    assert add_current([Sample], tmp_path) == [tmp_path / "Sample" / "2.avsc"]
    assert complaints(tmp_path) == []
    assert add_current([Sample], tmp_path) == []


def test_an_incompatible_change_names_record_field_rule_direction_and_version(tmp_path: Path) -> None:
    history(tmp_path, changed(other={"name": "other", "type": "string"}))
    refusal = (
        "Sample: other: missing_default: the writer has no such field, and there is no default "
        "(forward: what the current schema writes cannot be read with version 1)"
    )
    assert refusal in complaints(tmp_path)
    with pytest.raises(ValueError, match="missing_default"):
        add_current([Sample], tmp_path)
    assert len(read_history("Sample", tmp_path)) == 1


def test_versions_far_apart_are_compared_too(tmp_path: Path) -> None:
    # Each can read its neighbour; the first and the last cannot read each other.
    history(
        tmp_path,
        changed(extra={"name": "extra", "type": "string", "default": ""}),
        registered_schema(Sample),
        changed(extra={"name": "extra", "type": "long", "default": 0}),
    )
    found = complaints(tmp_path)
    assert any("what version 1 writes cannot be read with version 3" in each for each in found)
    assert any("what version 3 writes cannot be read with version 1" in each for each in found)
    assert not any("version 2" in each for each in found)


def test_a_version_going_back_is_found_in_the_history(tmp_path: Path) -> None:
    history(tmp_path, registered_schema(Sample), changed(extra={"name": "extra", "type": "long", "default": 0}))
    assert complaints(tmp_path) == []


def test_the_command_says_all_is_well(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["compatibility"])
    assert command.main() == 0
    assert "every version can read every other" in capsys.readouterr().out
