"""Logs on stderr, one line a record: ISO 8601 time in UTC, level, part, message, key=value fields.

    2026-03-01T12:00:00.123Z INFO ingest window closed cell=us-east window=173

stdout stays free for what a command was asked for.
"""

import json
import logging
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from ops.telemetry.redaction import redact_text, redact_value

_FIELDS: Final = "intertidal_fields"
# What the standard library's log methods take for themselves.
_RESERVED: Final = frozenset({"exc_info", "stack_info", "stacklevel", "extra"})


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose keyword arguments become fields: `log.info("window closed", cell="us-east")`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Moves the fields to where the formatter finds them."""
        own = {name: kwargs[name] for name in kwargs if name in _RESERVED}
        fields = {name: kwargs[name] for name in kwargs if name not in _RESERVED}
        own["extra"] = {**(own.get("extra") or {}), _FIELDS: fields}
        return msg, own


class LineFormatter(logging.Formatter):
    """Renders a record as one line, whatever is in it, without secrets."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line, without its end."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        words = [time.replace("+00:00", "Z"), record.levelname, self._part]
        words.append(_one_line(redact_text(record.getMessage())))
        fields: dict[str, object] = dict(getattr(record, _FIELDS, {}))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        words += [f"{name}={_value(redact_value(name, value))}" for name, value in fields.items()]
        return " ".join(words)


def get_log(name: str) -> Log:
    """Returns the log of a module, by the module's name."""
    return Log(logging.getLogger(name))


def set_up_logging(part: str, *, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends all logging of this process to stderr (or `stream`), in the name of `part`.

    Raises:
        ValueError: there is no such level.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(LineFormatter(part))
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.handlers[:] = [handler]


def _one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") if _breaks(text) else text


def _breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


def _value(value: object) -> str:
    """Returns the value bare when it is one plain word, else as JSON, so that a field ends where it seems."""
    if isinstance(value, str):
        plain = value and not any(char.isspace() or char in '"=' for char in value)
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool | int | float | None):
        return json.dumps(value)
    return json.dumps(value, default=str, ensure_ascii=False)
