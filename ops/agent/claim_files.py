"""Files by which somebody claims capacity: read at every look, never trusted to be whole. What is doubtful holds.

POOL.hold        in the runtime folder, written by `intertidal reclaim`, renamed into place
a lease file     of the owner's: the capacity is the owner's while it is there (and has been touched lately)
a notice         of a cloud or a scheduler: the capacity goes at the time that stands in it, or now
"""

import os
from collections.abc import Iterable, Iterator
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


def write_hold(folder: Path, pool: str, hold: HoldFile) -> None:
    """Claim a pool of the host; an earlier claim by this way is replaced. Raises OSError."""
    path = _hold_path(folder, pool)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(hold))
    draft.rename(path)


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
        try:
            said = msgspec.json.decode(text, type=HoldFile)
            hold = Hold(
                key=f"hold:{pool}",
                reason=said.reason,
                starts_ms=said.starts_ms,
                ends_ms=said.ends_ms,
                pools=(pool,),
            )
        except (msgspec.DecodeError, ValueError):
            # Somebody wants the pool, and did not get to say until when.
            yield Hold(key=f"hold:{pool}", reason="unreadable_hold", starts_ms=0, pools=(pool,))
            continue
        if hold.is_over(now_ms):
            (folder / name).unlink(missing_ok=True)
        else:
            yield hold


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
        except msgspec.DecodeError:
            return 0
        words = next((data[key] for key in ("time", "at") if isinstance(data.get(key), str)), "")
    try:
        moment = datetime.fromisoformat(words)
    except ValueError:
        return 0
    return round((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1e3)


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
