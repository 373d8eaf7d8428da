"""Campaign files in the folders of a log, whose policy chose in each, and all their rows by time."""

import hashlib
import heapq
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ranking.models.training.open_bandit_rows import BadRow, BanditRow, OpenBanditError, read_rows
from schemas.records.measurement import ArmName

Policy = Literal["random", "bts"]
# The uniform random policy is what the other one is held against.
ARM_OF: Final[dict[Policy, ArmName]] = {"random": "none", "bts": "sbm"}
_NOT_A_CAMPAIGN: Final = "item_context.csv"
_CAMPAIGN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# It is part of the ids of requests.
_MAX_NAME: Final = 100
_BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """One campaign file of one policy. ``name`` is its path from the folder on that names the policy."""

    path: Path
    name: str
    policy: Policy
    campaign: str

    def sha256(self) -> str:
        """What the file holds, in short; raises OpenBanditError."""
        digest = hashlib.sha256()
        try:
            with self.path.open("rb") as file:
                while block := file.read(_BLOCK_BYTES):
                    digest.update(block)
        except OSError as error:
            raise OpenBanditError(f"{self.path}: {error.strerror}") from error
        return digest.hexdigest()


class Line(NamedTuple):
    """A line of a file: its number, and what it says."""

    file: LogFile
    number: int
    row: BanditRow | BadRow


def find_files(folders: Sequence[Path]) -> list[LogFile]:
    """The campaign files under the folders, by name; raises OpenBanditError.

    The policy is the first word of the name of the folder that they lie in, or of one above it, as in ``random-men``
    and ``bts/men``.
    """
    found: dict[Path, LogFile] = {}
    for folder in folders:
        paths = sorted(path.resolve() for path in folder.rglob("*.csv") if path.name != _NOT_A_CAMPAIGN)
        if not paths:
            raise OpenBanditError(f"{folder}: no campaign file, such as men.csv, in it or below")
        found |= {path: _file(path) for path in paths}
    campaigns = sorted({file.campaign for file in found.values()})
    if len(campaigns) > 1:
        raise OpenBanditError(f"files of the campaigns {', '.join(campaigns)}: give those of one")
    if not _CAMPAIGN.fullmatch(campaigns[0]):
        raise OpenBanditError(f"{campaigns[0]!r} is no name of a campaign: up to 64 of a-z, 0-9, - and _")
    names = Counter(file.name for file in found.values())
    twice = [name for name, num in sorted(names.items()) if num > 1]
    if twice:
        raise OpenBanditError(f"two files are called {twice[0]}: their rows could not be told apart")
    return sorted(found.values(), key=lambda file: file.name)


def lines_of(file: LogFile) -> Iterator[Line]:
    """All lines of a file, in their order; raises OpenBanditError."""
    for number, row in read_rows(file.path):
        yield Line(file, number, row)


def by_time(files: Sequence[LogFile]) -> Iterator[tuple[LogFile, int, BanditRow]]:
    """The rows of all files by time, with file and line: always in the same order, since of equals the first file's
    comes first. A row that stands behind a later one of its file comes when its place there does.
    """
    yield from heapq.merge(*map(_rows, files), key=lambda found: found[2].time)


def _rows(file: LogFile) -> Iterator[tuple[LogFile, int, BanditRow]]:
    for _, number, row in lines_of(file):
        if isinstance(row, BanditRow):
            yield file, number, row


def _file(path: Path) -> LogFile:
    folders = path.parts[:-1]
    for at in range(len(folders) - 1, -1, -1):
        word = re.split(r"[-_.]", folders[at].lower(), maxsplit=1)[0]
        policy = next((policy for policy in ARM_OF if policy == word), None)
        if policy is not None:
            name = "/".join(path.parts[at:])
            if len(name) > _MAX_NAME:
                raise OpenBanditError(f"{path}: its name from {folders[at]} on is longer than {_MAX_NAME} characters")
            return LogFile(path=path, name=name, policy=policy, campaign=path.stem)
    raise OpenBanditError(f"{path}: no folder above it is called random or bts: whose choice was it?")
