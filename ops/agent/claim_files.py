"""Files by which somebody claims capacity: read at every look, never trusted to be whole. What is doubtful holds.

POOL.hold        in the runtime folder, written by `intertidal reclaim`, renamed into place
a lease file     of the owner's: the capacity is the owner's while it is there (and has been touched lately)
a notice         of a cloud or a scheduler: the capacity goes at the time that stands in it, or now
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from ops.agent.holds import EVERYTHING, Hold
from schemas.gate import gate_file_name
from schemas.records.fields import Label, TimeMs

HOLD_SUFFIX: Final = ".hold"
_MAX_BYTES: Final = 4_096
_LOCK_NAME: Final = ".holds.lock"


class HoldFile(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in a pool's hold file."""

    starts_ms: TimeMs
    ends_ms: TimeMs
    reason: Label


@dataclass(frozen=True, kw_only=True)
class LeaseFile:
    """A file of the owner's. ``ttl_s``: it counts for so long after it was touched; None for as long as it is there."""

    path: Path
    ttl_s: float | None = None
    pools: tuple[str, ...] = EVERYTHING


@dataclass(frozen=True, kw_only=True)
class NoticeFile:
    """A file that appears when the host is to be taken away."""

    path: Path
    pools: tuple[str, ...] = EVERYTHING


@contextmanager
def holds_locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Nobody else writes hold files, and no gate is opened, while the block runs.

    So a hold either is seen before a gate opens, or its writer sees the gate open. Raises BlockingIOError when it is
    not waited for, OSError. Death lets go of it.
    """
    fd = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(fd)


def write_hold(folder: Path, pool: str, hold: HoldFile) -> None:
    """Claim a pool of the host; an earlier claim by this way is never shortened by it. Raises OSError."""
    path = _hold_path(folder, pool)
    before = _hold_file(_read(path) or b"")
    if before is not None:
        starts_ms, ends_ms = min(before.starts_ms, hold.starts_ms), max(before.ends_ms, hold.ends_ms)
        hold = HoldFile(starts_ms=starts_ms, ends_ms=ends_ms, reason=hold.reason)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(msgspec.json.encode(hold))
        draft.rename(path)
    except OSError:
        # What a full disk took of it is of no use to anybody.
        draft.unlink(missing_ok=True)
        raise


def remove_hold(folder: Path, pool: str) -> bool:
    """Give a pool up; returns whether it was claimed by this way."""
    try:
        _hold_path(folder, pool).unlink()
    except FileNotFoundError:
        return False
    return True


def holds_in(folder: Path, now_ms: int) -> Iterator[Hold]:
    """Holds of the hold files in a runtime folder; those that are over are removed."""
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(HOLD_SUFFIX)]
    except FileNotFoundError:
        return
    for name in sorted(names):
        if name.startswith("."):
            continue
        text = _read(folder / name)
        if text is None:
            continue
        pool = name.removesuffix(HOLD_SUFFIX)
        said = _hold_file(text)
        if said is None:
            # Somebody wants the pool, and did not get to say until when.
            yield Hold(key=f"hold:{pool}", reason="unreadable_hold", starts_ms=0, pools=(pool,))
            continue
        hold = Hold(
            key=f"hold:{pool}", reason=said.reason, starts_ms=said.starts_ms, ends_ms=said.ends_ms, pools=(pool,)
        )
        if hold.is_over(now_ms):
            _remove_if_still(folder, name, text)
        else:
            yield hold


def is_held(folder: Path, pool: str, now_ms: int) -> bool:
    """Whether a hold file claims a pool now."""
    text = _read(_hold_path(folder, pool))
    if text is None:
        return False
    said = _hold_file(text)
    return said is None or said.starts_ms <= now_ms < said.ends_ms


def holds_of_leases(leases: Iterable[LeaseFile], now_ms: int) -> Iterator[Hold]:
    """Holds of the owner's lease files; one that has not been touched for its ``ttl_s`` is none."""
    for lease in leases:
        try:
            touched_ms = lease.path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            continue
        except OSError:
            touched_ms = now_ms
        ends_ms = None if lease.ttl_s is None else touched_ms + round(lease.ttl_s * 1e3)
        if ends_ms is None or now_ms < ends_ms:
            # The start is the same at every look, so that a file that is touched is no news.
            yield Hold(key=f"lease:{lease.path}", reason="lease_file", starts_ms=0, pools=lease.pools)


def holds_of_notices(notices: Iterable[NoticeFile]) -> Iterator[Hold]:
    """Holds of preemption notices that are there."""
    for notice in notices:
        text = _read(notice.path)
        if text is not None:
            yield Hold(
                key=f"notice:{notice.path}",
                reason="preemption",
                starts_ms=notice_time_ms(text),
                pools=notice.pools,
            )


def notice_time_ms(text: bytes) -> int:
    """When a notice says that the capacity goes: an ISO time, or ``time`` or ``at`` of a JSON object; else 0, now.

    A time without a zone is UTC, as clouds write it.
    """
    words = text.decode("utf-8", "replace").strip()
    if words.startswith("{"):
        try:
            data = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return 0
        words = next((data[key] for key in ("time", "at") if isinstance(data.get(key), str)), "")
    try:
        moment = datetime.fromisoformat(words)
    except ValueError:
        return 0
    return round((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1e3)


def _hold_file(text: bytes) -> HoldFile | None:
    """What stands in a hold file; None for what cannot be read as one."""
    try:
        said = msgspec.json.decode(text, type=HoldFile)
    except (msgspec.DecodeError, RecursionError):
        return None
    return said if said.starts_ms <= said.ends_ms else None


def _remove_if_still(folder: Path, name: str, text: bytes) -> None:
    """Remove a hold file that is over, unless somebody has just written another one in its place."""
    try:
        with holds_locked(folder, wait=False):
            if _read(folder / name) == text:
                (folder / name).unlink(missing_ok=True)
    except OSError:
        # The next look finds it again.
        return


def _hold_path(folder: Path, pool: str) -> Path:
    return folder / f"{gate_file_name(pool).removesuffix('.gate')}{HOLD_SUFFIX}"


def _read(path: Path) -> bytes | None:
    """The beginning of a file; empty for one that is there and cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError:
        return b""
