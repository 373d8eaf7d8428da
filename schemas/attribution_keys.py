"""The keys that attribution tokens are signed with: several at a time, so that one can follow another.

A file of lines ``ID HEX``, ID from 1 to 255, HEX at least 16 bytes; ``#`` begins a comment. The last line signs, all of
them verify. A new key is first added above the last line everywhere, then moved to the end, and the old line is taken
out when no outcome of its time is awaited any more.
"""

import hmac
import os
import stat
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

KEYS_ENV: Final = "INTERTIDAL_ATTRIBUTION_KEYS"
MIN_KEY_BYTES: Final = 16
# Of a new key: as long as the hash, as RFC 2104 recommends.
KEY_BYTES: Final = 32
MAX_KEY_ID: Final = 255
# Of HMAC-SHA256, cut as RFC 2104 allows: half of the hash, and no less than 80 bits.
MAC_BYTES: Final = 16
# Of a token that nobody signed.
UNSIGNED_ID: Final = 0


class AttributionKeys:
    """Keys by their id. Without any, tokens carry no signature and none is asked for."""

    def __init__(self, keys: Sequence[tuple[int, bytes]] = ()) -> None:
        """``keys`` as in the file. Raises ValueError for an id out of range or given twice, or a short key."""
        self._keys: dict[int, bytes] = {}
        self._signing_id = UNSIGNED_ID
        for key_id, key in keys:
            if not 0 < key_id <= MAX_KEY_ID:
                raise ValueError(f"the id of a key must be in 1 to {MAX_KEY_ID}, is {key_id}")
            if key_id in self._keys:
                raise ValueError(f"key {key_id} is given twice")
            if len(key) < MIN_KEY_BYTES:
                raise ValueError(f"key {key_id} has {len(key)} bytes, at least {MIN_KEY_BYTES} are needed")
            self._keys[key_id] = key
            self._signing_id = key_id

    def __repr__(self) -> str:
        return f"AttributionKeys(ids={sorted(self._keys)})"

    @property
    def signing_id(self) -> int:
        """Id of the key that signs; 0 where there is none."""
        return self._signing_id

    def sign(self, message: bytes) -> bytes:
        """Signature by the key that signs; empty where there is none."""
        return _mac(self._keys[self._signing_id], message) if self._keys else b""

    def check(self, key_id: int, message: bytes, signature: bytes) -> None:
        """Raise ValueError unless a token of this key may be believed."""
        if not self._keys and key_id == UNSIGNED_ID:
            return
        if not self._keys:
            raise ValueError(f"is signed with key {key_id}, and {KEYS_ENV} names no keys")
        if key_id == UNSIGNED_ID:
            raise ValueError("is not signed")
        key = self._keys.get(key_id)
        if key is None:
            raise ValueError(f"is signed with key {key_id}, which is not known")
        if not hmac.compare_digest(_mac(key, message), signature):
            raise ValueError(f"does not bear the signature of key {key_id}")


UNSIGNED: Final = AttributionKeys()


def load_keys(path: Path) -> AttributionKeys:
    """Keys of a file; raises ValueError naming the file and the line, never what stands in it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise ValueError(f"{path}: {why}") from None
    keys: list[tuple[int, bytes]] = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if len(words) != 2:
                raise ValueError(f"{len(words)} words")
            keys.append((int(words[0]), bytes.fromhex(words[1])))
        except ValueError:
            # What is wrong with it is not repeated: it may be most of a key.
            raise ValueError(f"{path}:{number}: a line is ID HEX") from None
        try:
            AttributionKeys(keys)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    if not keys:
        raise ValueError(f"{path}: holds no key")
    return AttributionKeys(keys)


def write_keys(path: Path, keys: Sequence[tuple[int, bytes]]) -> None:
    """Make a file of keys that nobody else may read; raises FileExistsError rather than to overwrite one."""
    with open(path, "x", encoding="utf-8", opener=_private) as file:
        file.writelines(f"{key_id} {key.hex()}\n" for key_id, key in keys)


def is_open_to_others(environ: Mapping[str, str] | None = None) -> bool:
    """Whether others on this machine may read the file that INTERTIDAL_ATTRIBUTION_KEYS names. Raises OSError."""
    path = (os.environ if environ is None else environ).get(KEYS_ENV)
    return bool(path) and bool(Path(str(path)).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def keys_from_env(environ: Mapping[str, str] | None = None) -> AttributionKeys:
    """Keys of the file that INTERTIDAL_ATTRIBUTION_KEYS names; none where it is not set. Raises ValueError."""
    path = (os.environ if environ is None else environ).get(KEYS_ENV)
    return load_keys(Path(path)) if path else UNSIGNED


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


def _mac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, sha256).digest()[:MAC_BYTES]
