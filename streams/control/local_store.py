"""The folder of the local table: one process at a time, and nothing damaged in it.

The table is a copy of its changelog, so a damaged database is moved aside and read anew from the changelog.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocksdict import AccessType, Options, Rdict

LOCK_FILE = "in-use.lock"
DATABASE_GLOB = "*.db"


@contextmanager
def sole_user(data_dir: Path) -> Iterator[None]:
    """Hold the folder for this process; the kernel lets go of it when the process dies, however it dies.

    Raises ValueError when another process holds it or it cannot be written.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ValueError(f"data folder {data_dir}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"data folder {data_dir} is in use by another control agent") from None
        yield
    finally:
        os.close(descriptor)


def set_aside_damaged(tables_dir: Path, *, label: str) -> list[Path]:
    """Rename each database that cannot be read to its end to ``<name>.damaged-<label>``; returns the new paths."""
    aside = []
    for path in sorted(tables_dir.glob(DATABASE_GLOB)):
        if _is_readable(path):
            continue
        target = path.with_name(f"{path.name}.damaged-{label}")
        path.rename(target)
        aside.append(target)
    return aside


def _is_readable(path: Path) -> bool:
    """Whether every entry can be read; a table has an entry per cell, so that this takes milliseconds."""
    try:
        database = Rdict(str(path), options=Options(raw_mode=True), access_type=AccessType.read_only())
        try:
            entries = database.iter()
            entries.seek_to_first()
            while entries.valid():
                entries.next()
            # A block that fails its checksum looks like the end of the table: only this tells the two apart.
            entries.status()
        finally:
            database.close()
    except Exception:  # noqa: BLE001  # the binding raises plain Exception, whatever is wrong with the files
        return False
    return True
