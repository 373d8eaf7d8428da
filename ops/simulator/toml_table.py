"""Strict reading of TOML: each key is asked for by type and range, refusals name file and key, none is left unread."""

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn


class ScenarioError(ValueError):
    """A scenario that cannot be used; the message names the file, the key and what is wrong with it."""

    def __init__(self, file: str, key: str, detail: str) -> None:
        super().__init__(f"{file}: {key}: {detail}" if key else f"{file}: {detail}")
        self.file = file
        self.key = key
        self.detail = detail


class Table:
    """One TOML table being read. Whoever reads it asks for every key it knows, then calls ``finish``.

    A key without ``default`` is required. Every method raises ScenarioError naming the file and the whole
    path of the key, such as ``hosts[2].units``.
    """

    def __init__(self, data: Mapping[str, Any], *, file: str, path: str = "") -> None:
        self._data = data
        self._file = file
        self._path = path
        self._known: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def fail(self, key: str, detail: str) -> NoReturn:
        """Raise ScenarioError for a key of this table (the table itself where ``key`` is empty)."""
        raise ScenarioError(self._file, self._name(key), detail)

    def text(
        self, key: str, *, default: str | None = None, choices: Sequence[str] = (), pattern: str = ".{0,256}"
    ) -> str:
        """A string, one of ``choices`` where there are any, matching the whole of ``pattern``."""
        value = self._value(key, default, "a string")
        if not isinstance(value, str):
            self.fail(key, f"must be a string, is {_shown(value)}")
        if choices and value not in choices:
            self.fail(key, f"must be one of {', '.join(choices)}, is {value!r}")
        if not re.fullmatch(pattern, value):
            self.fail(key, f"must match {pattern}, is {value!r}")
        return value

    def optional_text(self, key: str, *, choices: Sequence[str] = ()) -> str | None:
        """As ``text``, or None where the key is absent."""
        self._known.add(key)
        return self.text(key, choices=choices) if key in self._data else None

    def number(self, key: str, *, at_least: float, at_most: float, default: float | None = None) -> float:
        """A finite number within the bounds, both included."""
        value = self._value(key, default, "a number")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.fail(key, f"must be a finite number, is {_shown(value)}")
        if not at_least <= value <= at_most:
            self.fail(key, f"must be from {at_least:g} to {at_most:g}, is {value:g}")
        return float(value)

    def optional_number(self, key: str, *, at_least: float, at_most: float) -> float | None:
        """As ``number``, or None where the key is absent."""
        self._known.add(key)
        return self.number(key, at_least=at_least, at_most=at_most) if key in self._data else None

    def count(self, key: str, *, at_least: int, at_most: int, default: int | None = None) -> int:
        """A whole number within the bounds, both included."""
        value = self._value(key, default, "a whole number")
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"must be a whole number, is {_shown(value)}")
        if not at_least <= value <= at_most:
            self.fail(key, f"must be from {at_least} to {at_most}, is {value}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """true or false."""
        value = self._value(key, default, "true or false")
        if not isinstance(value, bool):
            self.fail(key, f"must be true or false, is {_shown(value)}")
        return value

    def table(self, key: str) -> "Table":
        """The table under ``key``; an empty one where it is absent."""
        self._known.add(key)
        value = self._data.get(key, {})
        if not isinstance(value, dict):
            self.fail(key, f"must be a table, is {_shown(value)}")
        return Table(value, file=self._file, path=self._name(key))

    def tables(self, key: str) -> list["Table"]:
        """The array of tables under ``key``; an empty list where it is absent."""
        self._known.add(key)
        value = self._data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.fail(key, f"must be an array of tables, is {_shown(value)}")
        return [Table(item, file=self._file, path=f"{self._name(key)}[{index}]") for index, item in enumerate(value)]

    def finish(self) -> None:
        """Refuse keys that nobody asked for, with the nearest known key as a hint."""
        for key in self._data:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1)
                self.fail(key, f"unknown key{f'; is {near[0]} meant?' if near else ''}")

    def _value(self, key: str, default: object, wanted: str) -> object:
        self._known.add(key)
        if key in self._data:
            return self._data[key]
        if default is None:
            self.fail(key, f"missing; {wanted} is wanted")
        return default

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path and key else self._path or key


def _shown(value: object) -> str:
    return f"{value!r:.60}"
