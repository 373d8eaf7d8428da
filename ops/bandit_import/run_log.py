"""The log of an import: what it is made of, and how far it is. Pure.

key        value (JSON)
manifest   the files and settings; with it the import has begun
progress   rows that are durable, and whether they were measured: written in one transaction with what it is of
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from ops.bandit_import.measure import Counts
from ops.bandit_import.survey import FileSurvey

MANIFEST_KEY: Final = b"manifest"
PROGRESS_KEY: Final = b"progress"
VERSION: Final = 1


class ImportLogError(ValueError):
    """A log of an import that cannot be gone on from; the message is one sentence."""


class Source(Struct, frozen=True, kw_only=True):
    """One file by what it holds, wherever it lies."""

    file: str
    policy: str
    sha256: str
    num_rows: int


class Manifest(Struct, frozen=True, kw_only=True):
    """What an import is made of."""

    version: int = VERSION
    campaign: str
    sources: list[Source]
    min_propensity: float


class Progress(Struct, frozen=True, kw_only=True):
    """How far an import is. ``num_rows`` of the rows by time are durable, with ``num_records`` that they led to.

    ``measured`` stands once windows and uplift are durable.
    """

    num_rows: int = 0
    num_records: int = 0
    measured: Counts | None = None


def manifest_of(campaign: str, files: Sequence[FileSurvey], *, min_propensity: float) -> Manifest:
    """The manifest of a log that was looked at."""
    sources = [Source(file=each.file, policy=each.policy, sha256=each.sha256, num_rows=each.num_rows) for each in files]
    return Manifest(campaign=campaign, sources=sources, min_propensity=min_propensity)


def read_import_log(latest: Mapping[bytes, bytes]) -> tuple[Manifest | None, Progress]:
    """The log from its last value of each key; raises ImportLogError for what another release has written."""
    try:
        manifest = msgspec.json.decode(latest[MANIFEST_KEY], type=Manifest) if MANIFEST_KEY in latest else None
        progress = msgspec.json.decode(latest.get(PROGRESS_KEY, b"{}"), type=Progress)
    except msgspec.DecodeError as error:
        raise ImportLogError(f"the log of the import cannot be read: {error}") from error
    if manifest is not None and manifest.version != VERSION:
        raise ImportLogError(f"the import is of version {manifest.version}, this release goes on with {VERSION}")
    return manifest, progress


def difference(began: Manifest, now: Manifest) -> str:
    """What is not as it was when the import began, in one sentence; empty where all is."""
    if began.min_propensity != now.min_propensity:
        return f"--min-propensity is {now.min_propensity:g}, was {began.min_propensity:g}"
    return "" if began == now else "the files are not those that it began with"
