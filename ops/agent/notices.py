"""What is posted to the agent on loopback, or signalled: that capacity goes now, or at a time.

    POST /reclaim   {"pools": ["h200-0"], "at": "2026-03-01T12:00:00Z", "for": "10m", "reason": "launch"}

Every field may be left out: all pools, now, as long as the configuration says, `notice`.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from ops.agent.holds import Hold
from ops.agent.moments import Now
from ops.agent.posted_holds import PostedHold, PostedHolds
from ops.agent.readings import PoolName
from ops.telemetry.logs import get_log
from ops.times import iso_time, parse_duration_s, parse_time_ms
from schemas.records.fields import Label

_LOG = get_log(__name__)

PATH = "/reclaim"
# Of whoever needs more, the configuration is to say so: a lease file, or nothing offered.
MAX_HOLD_S = 86_400.0 * 31


class Notice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """The body of a post."""

    pools: list[PoolName] = []
    at: str | None = None
    for_: str | None = None
    reason: Label = "notice"


class Notices:
    """Holds that were posted or signalled; any thread may post, another one takes them."""

    def __init__(
        self,
        *,
        hold_s: float,
        now: Callable[[], Now],
        wake: Callable[[], None],
        known: Callable[[], Collection[str]] | None = None,
        folder: Path | None = None,
    ) -> None:
        """``known`` gives the pools that there are; None: any may be named. ``folder`` keeps holds over a restart."""
        self._known = known
        self._hold_s = hold_s
        self._now = now
        self._wake = wake
        self._lock = threading.Lock()
        self._holds = PostedHolds(folder, now=now(), doubt_s=hold_s, warn=_LOG.warning)
        self._num_posted = 0

    def post(self, body: bytes) -> tuple[int, Mapping[str, object]]:
        """Status and answer: 202 and when it begins and ends, or 400 and what is wrong."""
        now = self._now()
        now_ms = now.wall_ms
        try:
            notice = msgspec.json.decode(body or b"{}", type=Notice)
            starts_ms = now_ms if notice.at is None else parse_time_ms(notice.at, now_ms=now_ms)
            for_s = self._hold_s if notice.for_ is None else parse_duration_s(notice.for_)
            if for_s > MAX_HOLD_S:
                raise ValueError(f"for: more than {MAX_HOLD_S / 86_400:g} days")
            if starts_ms < 0:
                raise ValueError(f"at: {notice.at} is before 1970")
            ends_ms = max(starts_ms, now_ms) + round(for_s * 1e3)
            answer = {"starts": iso_time(starts_ms), "ends": iso_time(ends_ms)}
        except (msgspec.DecodeError, ValueError, OverflowError, OSError, RecursionError) as error:
            return 400, {"error": str(error)}
        unknown = sorted(set(notice.pools) - set(self._known())) if self._known is not None else []
        if unknown:
            return 400, {"error": f"pools: there is no {unknown[0]} here"}
        with self._lock:
            self._num_posted += 1
            hold = PostedHold(
                key=f"posted:{now_ms}:{self._num_posted}",
                reason=notice.reason,
                starts_ms=0 if notice.at is None else starts_ms,
                ends_ms=ends_ms,
                pools=sorted(set(notice.pools)),
                is_counted=notice.at is None,
            )
            self._holds.put(hold, now)
        self._wake()
        return 202, answer

    def signalled(self, now: Now) -> None:
        """SIGUSR1: all pools are wanted back now, for as long as the configuration says."""
        ends_ms = now.wall_ms + round(self._hold_s * 1e3)
        with self._lock:
            self._holds.put(
                PostedHold(key="signal", reason="signal", starts_ms=0, ends_ms=ends_ms, is_counted=True), now
            )

    def holds(self, now: Now) -> list[Hold]:
        """Those that are not over."""
        with self._lock:
            return self._holds.in_force(now)
