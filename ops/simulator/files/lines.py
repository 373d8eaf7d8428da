"""Lines of a text file of unknown quality, one at a time and none longer than a bound."""

from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from ops.simulator.files.dirt import Dirt
from ops.simulator.files.errors import TrafficFileError

MAX_LINE_BYTES: Final = 1 << 20
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LOOK_BYTES: Final = 4_096


def read_lines(path: Path, dirt: Dirt) -> Iterator[tuple[int, str]]:
    """Line number, from 1, and text without its end, of each line that is text; the others go to ``dirt``.

    Raises TrafficFileError for what is no file, cannot be read, is empty or is not text.
    """
    try:
        with path.open("rb") as file:
            _refuse_binary(path, file)
            yield from _lines(file, dirt)
    except OSError as error:
        raise TrafficFileError(str(path), "", f"cannot be read: {error.strerror or error}") from None


def _refuse_binary(path: Path, file: BufferedReader) -> None:
    # Looked at, not read: a pipe cannot be wound back.
    start = file.peek(_LOOK_BYTES)[:_LOOK_BYTES]
    if not start.strip():
        raise TrafficFileError(str(path), "", "is empty")
    if b"\0" in start:
        raise TrafficFileError(str(path), "", "is not UTF-8 text; a packed file is to be unpacked first")
    if start.startswith(_BYTE_ORDER_MARK):
        file.read(len(_BYTE_ORDER_MARK))


def _lines(file: BinaryIO, dirt: Dirt) -> Iterator[tuple[int, str]]:
    number = 0
    while raw := file.readline(MAX_LINE_BYTES):
        number += 1
        if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            dirt.note("long_line", number)
            _skip_rest(file)
            continue
        if raw.endswith(b"\r\n"):
            dirt.note("crlf", number)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            dirt.note("not_utf8", number)
            continue
        yield number, text.rstrip("\r\n")


def _skip_rest(file: BinaryIO) -> None:
    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass
