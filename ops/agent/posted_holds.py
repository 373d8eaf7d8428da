"""Holds that were posted or signalled, kept on disk too: an agent that is started anew must not forget them.

``.posted.json`` in the runtime folder is replaced whole by a rename. The folder goes with the host's start, as do its
gates. Times are passed in.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from ops.agent.holds import Hold
from ops.agent.moments import Now
from ops.agent.readings import PoolName
from schemas.records.fields import Label, Name, TimeMs

FILE_NAME: Final = ".posted.json"
# More are no claims but a mistake of the caller's; the oldest go.
MAX_HOLDS: Final = 1_000
# As many holds as there may be, of a host's every MIG instance each, take a tenth of it.
_MAX_BYTES: Final = 1 << 24


class PostedHold(Struct, frozen=True, kw_only=True):
    """One hold. Where ``is_counted`` it lasts a while from its making on, whatever becomes of the wall clock."""

    key: Name
    reason: Label
    starts_ms: TimeMs
    ends_ms: TimeMs
    pools: list[PoolName] = []
    is_counted: bool = False


class PostedHolds:
    """The holds by their key; of two with one key the later stands. Not thread-safe."""

    def __init__(self, folder: Path | None, *, now: Now, doubt_s: float, warn: Callable[[str], None]) -> None:
        """Those kept in ``folder``, None to keep them in memory alone.

        A file that cannot be read claimed something: everything is held for ``doubt_s``.
        """
        self._path = None if folder is None else folder / FILE_NAME
        self._warn = warn
        self._holds: dict[str, PostedHold] = {}
        # When counted holds end by the monotonic clock. Between two agents the wall clock has to do.
        self._ends_mono_ns: dict[str, int] = {}
        try:
            kept = self._read()
        except (OSError, msgspec.DecodeError) as error:
            warn(f"{self._path}: {error}; all pools are held for a while")
            ends_ms = now.wall_ms + round(doubt_s * 1e3)
            kept = [
                PostedHold(key="unreadable", reason="unreadable_hold", starts_ms=0, ends_ms=ends_ms, is_counted=True)
            ]
        for hold in kept:
            self._add(hold, now)

    def put(self, hold: PostedHold, now: Now) -> None:
        """Add one, made now; it holds as well where it cannot be kept on disk."""
        self._add(hold, now)
        while len(self._holds) > MAX_HOLDS:
            self._forget(next(iter(self._holds)))
        self._keep()

    def in_force(self, now: Now) -> list[Hold]:
        """Those that are not over; the others are forgotten."""
        holds = {key: self._hold(posted, now) for key, posted in self._holds.items()}
        over = [key for key, hold in holds.items() if hold.is_over(now.wall_ms)]
        for key in over:
            self._forget(key)
            del holds[key]
        if over:
            self._keep()
        return list(holds.values())

    def _hold(self, posted: PostedHold, now: Now) -> Hold:
        ends_mono_ns = self._ends_mono_ns.get(posted.key)
        ends_ms = posted.ends_ms if ends_mono_ns is None else max(posted.starts_ms, now.wall_ms_at(ends_mono_ns))
        return Hold(
            key=posted.key, reason=posted.reason, starts_ms=posted.starts_ms, ends_ms=ends_ms, pools=tuple(posted.pools)
        )

    def _add(self, hold: PostedHold, now: Now) -> None:
        self._forget(hold.key)
        self._holds[hold.key] = hold
        if hold.is_counted:
            self._ends_mono_ns[hold.key] = now.mono_ns + (hold.ends_ms - now.wall_ms) * 1_000_000

    def _forget(self, key: str) -> None:
        self._holds.pop(key, None)
        self._ends_mono_ns.pop(key, None)

    def _read(self) -> list[PostedHold]:
        if self._path is None:
            return []
        try:
            with self._path.open("rb") as file:
                text = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return []
        return msgspec.json.decode(text, type=Annotated[list[PostedHold], Meta(max_length=MAX_HOLDS)])

    def _keep(self) -> None:
        if self._path is None:
            return
        draft = self._path.with_name(f"{FILE_NAME}.draft")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(list(self._holds.values())))
            draft.rename(self._path)
        except OSError as error:
            self._warn(f"{self._path}: {error.strerror}; what was posted would be forgotten by a restart")
