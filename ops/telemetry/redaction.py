"""Keeps secrets out of logs: by the name of a setting, and by what looks like a setting in free text."""

import re
from collections.abc import Mapping
from typing import Final

REDACTED: Final = "***"

_SECRET_NAME: Final = re.compile(r"password|passwd|secret|token|sasl\.jaas|key\.pem", re.IGNORECASE)
# A JAAS line holds its password in the middle, with spaces around: all of it goes.
_JAAS_TEXT: Final = re.compile(r"(sasl\.jaas[\w.]*\s*[=:]).*", re.IGNORECASE | re.DOTALL)
# The value may be quoted, as in JSON, in the repr of a dict, or in a properties file.
_SECRET_TEXT: Final = re.compile(
    r"""([\w.-]*(?:password|passwd|secret|token)[\w.-]*["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;}]+)""",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Returns whether a setting of that name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def redact(settings: Mapping[str, object]) -> dict[str, object]:
    """Returns a copy of the settings with the secrets' values replaced, at every depth."""
    return {name: redact_value(name, value) for name, value in settings.items()}


def redact_value(name: str, value: object) -> object:
    """Returns the value of one setting, or what stands for it when it is a secret."""
    if is_secret(name):
        return REDACTED
    if isinstance(value, Mapping):
        return redact({str(key): inner for key, inner in value.items()})
    if isinstance(value, list | tuple):
        return [redact_value(name, inner) for inner in value]
    return redact_text(value) if isinstance(value, str) else value


def redact_text(text: str) -> str:
    """Returns free text with the value of everything that reads like a secret setting replaced."""
    return _SECRET_TEXT.sub(rf"\1{REDACTED}", _JAAS_TEXT.sub(rf"\1{REDACTED}", text))
