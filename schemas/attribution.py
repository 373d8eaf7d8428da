"""The attribution token: what an outcome must echo so that it can be counted without a join.

Version 2 is base64url, without padding, of

    version=2 (1 byte)  key id (1)  flags (1)  intake_ms (6)  depth propensity (3)  upgrade propensity (3)
    length of cell (1)  cell  segment  signature (16, absent where the key id is 0)

numbers big-endian, propensities in millionths, flags from the lowest bit: arm (3 bits), drawn depth (2), drawn upgrade
(2), A/A (1), each as a place in its vocabulary. The signature is the first half of HMAC-SHA256 over all before it, the
request id and the user id, each with its length (4 bytes) before it: one request's token is worth nothing for another.

Version 1 was plain text, ``1|cell|arm|dose|intake_ms|segment``, and is still read.
"""

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Final, get_args

from schemas.attribution_keys import MAC_BYTES, UNSIGNED, UNSIGNED_ID, AttributionKeys
from schemas.records.fields import MAX_TIME_MS
from schemas.records.measurement import ARMS, ArmName, DrawnDepth, DrawnUpgrade
from schemas.segments import segment_of

MICRO: Final = 1_000_000
# As `Label` bounds it; a token that were cut could not be read back.
MAX_TOKEN_LENGTH: Final = 256
_VERSION: Final = 2
_DEPTHS: Final[tuple[DrawnDepth, ...]] = get_args(DrawnDepth)
_UPGRADES: Final[tuple[DrawnUpgrade, ...]] = get_args(DrawnUpgrade)
_HEAD: Final = struct.Struct(">BBB6s3s3sB")


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """What a request was assigned: what its outcomes are counted under.

    ``depth_micro`` and ``upgrade_micro`` are the probabilities of what was drawn in millionths, 10^6 where nothing was.
    """

    cell: str
    segment: str
    arm: ArmName
    intake_ms: int
    depth: DrawnDepth = ""
    upgrade: DrawnUpgrade = ""
    depth_micro: int = MICRO
    upgrade_micro: int = MICRO
    is_aa: bool = False

    def token(self, *, request_id: str, user_id: str, keys: AttributionKeys = UNSIGNED) -> str:
        """The token of one request's result."""
        cell = self.cell.encode()
        flags = (
            ARMS.index(self.arm)
            | _DEPTHS.index(self.depth) << 3
            | _UPGRADES.index(self.upgrade) << 5
            | int(self.is_aa) << 7
        )
        payload = _HEAD.pack(
            _VERSION,
            keys.signing_id,
            flags,
            self.intake_ms.to_bytes(6, "big"),
            self.depth_micro.to_bytes(3, "big"),
            self.upgrade_micro.to_bytes(3, "big"),
            len(cell),
        )
        payload += cell + self.segment.encode()
        signature = keys.sign(_signed(payload, request_id, user_id))
        return _text(payload + signature)


def token_length(*, cell: str, segment: str) -> int:
    """Length of a signed token of this cell and segment, in characters."""
    size_bytes = _HEAD.size + len(cell.encode()) + len(segment.encode()) + MAC_BYTES
    return -(-size_bytes * 4 // 3)


def parse_token(token: str, *, request_id: str, user_id: str, keys: AttributionKeys = UNSIGNED) -> Attribution:
    """What a token says of its request; raises ValueError for a broken, changed or unsigned one.

    One of version 1 is believed where no keys are known: it carries no signature.
    """
    if "|" in token:
        return _version_1(token, keys)
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        version, key_id, flags, intake, depth, upgrade, num_cell_bytes = _HEAD.unpack_from(data)
    except (binascii.Error, ValueError, struct.error):
        raise ValueError("is no attribution token") from None
    # The last character has bits to spare: with others in them it is not the token that was given out.
    if _text(data) != token:
        raise ValueError("is no attribution token")
    if version != _VERSION:
        raise ValueError(f"is of version {version}, not {_VERSION}")
    end = len(data) - (MAC_BYTES if key_id != UNSIGNED_ID else 0)
    keys.check(key_id, _signed(data[:end], request_id, user_id), data[end:])
    cell_end = _HEAD.size + num_cell_bytes
    depth_micro, upgrade_micro = int.from_bytes(depth, "big"), int.from_bytes(upgrade, "big")
    arm, drawn_upgrade = flags & 7, flags >> 5 & 3
    # A segment has a name, and the cell is held against the record's.
    is_whole = cell_end < end and arm < len(ARMS) and drawn_upgrade < len(_UPGRADES)
    if not (is_whole and 0 < depth_micro <= MICRO and 0 < upgrade_micro <= MICRO):
        raise ValueError("is no attribution token")
    try:
        cell, segment = data[_HEAD.size : cell_end].decode(), data[cell_end:end].decode()
    except UnicodeDecodeError:
        raise ValueError("is no attribution token") from None
    return Attribution(
        cell=cell,
        segment=segment,
        arm=ARMS[arm],
        intake_ms=int.from_bytes(intake, "big"),
        depth=_DEPTHS[flags >> 3 & 3],
        upgrade=_UPGRADES[drawn_upgrade],
        depth_micro=depth_micro,
        upgrade_micro=upgrade_micro,
        is_aa=bool(flags >> 7),
    )


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _version_1(token: str, keys: AttributionKeys) -> Attribution:
    parts = token.split("|", 5)
    if len(parts) != 6 or parts[0] != "1" or parts[2] not in ARMS:
        raise ValueError("is no attribution token")
    keys.check(UNSIGNED_ID, b"", b"")
    arm: ArmName = parts[2]
    if not (parts[4].isdecimal() and int(parts[4]) <= MAX_TIME_MS):
        raise ValueError("is no attribution token")
    intake_ms = int(parts[4])
    return Attribution(cell=parts[1], segment=segment_of(parts[5]), arm=arm, intake_ms=intake_ms)


def _signed(payload: bytes, request_id: str, user_id: str) -> bytes:
    names = (request_id.encode(), user_id.encode())
    return payload + b"".join(len(name).to_bytes(4, "big") + name for name in names)
