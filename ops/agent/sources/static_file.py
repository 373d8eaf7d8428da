"""A file that says what there is: for capacity that somebody else decides about, and for trying things out."""

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ops.agent.readings import Reading, SourceError, readings_of_json
from schemas.errors import RecordError


class StaticFile:
    """Readings in JSON (one, or a list) or TOML (``[[readings]]``). The file is read again when it changes."""

    name = "static"

    def __init__(self, path: Path, *, every_s: float = 1.0) -> None:
        self.every_s = every_s
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._readings: Sequence[Reading] = ()

    def read(self, own_pids: frozenset[int]) -> Sequence[Reading]:
        try:
            status = os.stat(self._path)  # noqa: PTH116  # one call for all three
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen != self._seen:
                self._readings = self._parsed(self._path.read_text(encoding="utf-8"))
                self._seen = seen
        except (OSError, UnicodeDecodeError, RecordError) as error:
            raise SourceError(f"static: {self._path}: {error}") from error
        return self._readings

    def close(self) -> None:
        """Nothing is held."""

    def _parsed(self, text: str) -> list[Reading]:
        if self._path.suffix != ".toml":
            return readings_of_json(text)
        try:
            return readings_of_json(msgspec.json.encode(tomllib.loads(text).get("readings", [])))
        except tomllib.TOMLDecodeError as error:
            raise RecordError("malformed", str(error)) from None
