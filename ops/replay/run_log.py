"""The log of a run: its manifest, how far each partition is, and the states of its controllers. Pure.

    key                       value (JSON, but for states)
    manifest                  what the run is made of
    progress/PART/PARTITION   where to go on
    start/CELL, state/CELL    state that a cell's controller begins with, and its state now, as the live table has it
    .../CELL/SEGMENT          what is measured of a segment, beside the state of its cell

Progress and states are written in one transaction with the records that they are of. So whoever reads the log after a
crash finds exactly what has been said, and no record is said twice or left out.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

import schemas
import streams
from streams.control.state import CellState, decode_state, encode_state, with_segments
from streams.control.uplift.state import SegmentSums, decode_sums, encode_sums

MANIFEST_KEY: Final = b"manifest"
VERSION: Final = 1
_PROGRESS: Final = "progress/"
_STATE: Final = "state/"
_START: Final = "start/"


class RunLogError(ValueError):
    """A log of a run that cannot be gone on from; the message is one sentence."""


class SourceSpan(Struct, frozen=True, kw_only=True):
    """What is read of one partition of a source topic: ``[start, end)``.

    Of a raw partition windows are said from ``first_window`` on and refusals from ``said_from`` on: what lies before is
    read only to know what ingest knew by then.
    """

    partition: int
    start: int
    end: int
    said_from: int = 0
    first_window: int | None = None


class Manifest(Struct, frozen=True, kw_only=True):
    """What a run is made of. ``spans`` are by the contract's name of the source topic, ``time`` the time settings.

    ``passed`` gives, of the cells that begin with a snapshot, the offset of control.windows up to which it knows the
    log, ``pools_said`` the last window whose pools were said before. ``changes`` says which settings or code a later
    resume had, in order.
    """

    version: int = VERSION
    run: str
    created_ms: int
    parts: list[str]
    code: str
    time: dict[str, int]
    num_partitions: int
    spans: dict[str, list[SourceSpan]]
    passed: dict[str, int] = {}
    pools_said: dict[str, int] = {}
    changes: list[str] = []


class Place(Struct, frozen=True, kw_only=True):
    """Where to go on in one source partition, as a commit of ingest has it."""

    offset: int
    metadata: str = ""


class PartProgress(Struct, frozen=True, kw_only=True):
    """How far one part is in one partition. ``end`` is that of its input, once that is known."""

    places: dict[str, Place] = {}
    num_read: int = 0
    num_said: int = 0
    num_refused: int = 0
    is_done: bool = False


class RunLog(Struct, kw_only=True):
    """Everything that a log of a run holds, or one partition of it."""

    manifest: Manifest | None = None
    progress: dict[tuple[str, int], PartProgress] = {}
    states: dict[str, CellState] = {}


def read_run_log(latest: Mapping[bytes, bytes]) -> RunLog:
    """The log from its last value of each key; raises RunLogError for what another release has written."""
    log = RunLog()
    starts: dict[str, CellState] = {}
    segments: dict[str, dict[str, SegmentSums]] = {}
    try:
        for key, value in latest.items():
            name = key.decode()
            if key == MANIFEST_KEY:
                log.manifest = msgspec.json.decode(value, type=Manifest)
            elif name.startswith(_PROGRESS):
                part, _, partition = name.removeprefix(_PROGRESS).partition("/")
                log.progress[part, int(partition)] = msgspec.json.decode(value, type=PartProgress)
            elif name.startswith((_STATE, _START)):
                # No cell's name has a slash.
                kind, cell, *segment = name.split("/", 2)
                if segment:
                    segments.setdefault(f"{kind}/{cell}", {})[segment[0]] = decode_sums(value)
                else:
                    (log.states if name.startswith(_STATE) else starts)[cell] = decode_state(value)
    except ValueError as error:
        raise RunLogError(f"the log of the run cannot be read: {error}") from error
    if log.manifest is not None and log.manifest.version != VERSION:
        raise RunLogError(f"the run is of version {log.manifest.version}, this release goes on with {VERSION}")
    for kind, states in ((_START, starts), (_STATE, log.states)):
        for cell, state in states.items():
            states[cell] = with_segments(state, segments.get(f"{kind}{cell}", {}))
    log.states = {**starts, **log.states}
    return log


def progress_key(part: str, partition: int) -> bytes:
    return f"{_PROGRESS}{part}/{partition}".encode()


def state_records(state: CellState) -> dict[bytes, bytes]:
    """Keys and values of a state."""
    return _records(_STATE, state)


def start_records(state: CellState) -> dict[bytes, bytes]:
    """Keys and values of the state that a cell begins with."""
    return _records(_START, state)


def _records(kind: str, state: CellState) -> dict[bytes, bytes]:
    segments = sorted(state.measured.segments.items())
    beside = {f"{kind}{state.cell}/{name}".encode(): encode_sums(sums) for name, sums in segments}
    return {**beside, f"{kind}{state.cell}".encode(): encode_state(state)}


def code_version() -> str:
    """Fingerprint of the code that decides what a replay says: the contract and the processors."""
    digest = hashlib.sha256()
    for package in (schemas, streams):
        folder = Path(package.__path__[0])
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder.parent).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def differences(manifest: Manifest, *, parts: list[str], time: Mapping[str, int], code: str) -> list[str]:
    """What is not as it was when the run began, or was last gone on with, a sentence each."""
    found = []
    if parts != manifest.parts:
        found.append(f"parts are {','.join(parts)}, were {','.join(manifest.parts)}")
    found += [
        f"{name} is {value}, was {manifest.time.get(name)}"
        for name, value in time.items()
        if manifest.time.get(name) != value
    ]
    if code != manifest.code:
        found.append(f"code is {code}, was {manifest.code}")
    return found
