"""Times at which the owner is known to want capacity back: once, or every day. Pure; time is passed in."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from ops.agent.holds import EVERYTHING, Hold

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """One entry: ``at_ms`` once, or ``daily_at`` on ``days`` by the clock of ``zone``; the hold lasts ``for_s``."""

    name: str
    for_s: float
    at_ms: int | None = None
    daily_at: time | None = None
    days: tuple[str, ...] = DAYS
    zone: ZoneInfo = ZoneInfo("UTC")  # noqa: RUF009  # immutable
    pools: tuple[str, ...] = EVERYTHING

    def holds(self, now_ms: int) -> list[Hold]:
        """The hold in force or next to come, and the one behind it where they are a day's; none where all is over."""
        if self.at_ms is not None:
            hold = self._hold(self.at_ms)
            return [] if hold.is_over(now_ms) else [hold]
        assert self.daily_at is not None
        today = datetime.fromtimestamp(now_ms / 1e3, UTC).astimezone(self.zone).date()
        # From as many days back as a hold may still last, to a week on, in which each of the days comes.
        first = -1 - int(self.for_s // 86_400)
        found = []
        for offset in range(first, 9):
            date = today + timedelta(days=offset)
            if DAYS[date.weekday()] not in self.days:
                continue
            start = datetime.combine(date, self.daily_at, tzinfo=self.zone)
            hold = self._hold(round(start.timestamp() * 1e3))
            if not hold.is_over(now_ms):
                found.append(hold)
        return found[:2]

    def _hold(self, starts_ms: int) -> Hold:
        return Hold(
            key=f"schedule:{self.name}:{starts_ms}",
            reason=self.name,
            starts_ms=starts_ms,
            ends_ms=starts_ms + round(self.for_s * 1e3),
            pools=self.pools,
        )
