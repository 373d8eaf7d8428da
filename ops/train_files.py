"""Records out of the files that `intertidal read` writes: JSON lines, Parquet and Arrow, told apart by their ends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ops.errors import UserError
from ops.record_json import from_json
from schemas.errors import RecordError

R = TypeVar("R", bound=Struct)


def records_of_files(paths: tuple[Path, ...], record_type: type[R]) -> Iterator[R]:
    """Records of each file, and of each file below a folder; raises UserError naming the file and the row.

    Columns that begin with an underscore are of the log, and left out.
    """
    for path in paths:
        below = sorted(child for child in path.rglob("*") if child.is_file() and not child.name.startswith(("_", ".")))
        for file in below if path.is_dir() else [path]:
            for number, row in enumerate(_rows(file), start=1):
                try:
                    fields = {name: value for name, value in row.items() if not name.startswith("_")}
                    yield from_json(record_type, fields)
                except (RecordError, AttributeError) as error:
                    raise UserError(f"{file}, row {number}: no {record_type.__name__}: {error}") from error


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    try:
        if file.suffix in (".parquet", ".arrow"):
            # Loaded where files of columns are read: nobody else needs to have pyarrow.
            import pyarrow.dataset

            for batch in pyarrow.dataset.dataset(file, format=file.suffix[1:]).to_batches():
                yield from batch.to_pylist()
            return
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield msgspec.json.decode(line)
                except msgspec.DecodeError as error:
                    raise UserError(f"{file}, line {number}: no JSON: {error}") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: {error}") from error
