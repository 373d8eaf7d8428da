"""All that the owner claims, from wherever it is said: files, posts, a signal, the schedule."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ops.agent.claim_files import holds_in, holds_of_leases, holds_of_notices
from ops.agent.holds import Hold
from ops.agent.settings import AgentSettings


class Claims:
    """Looked at by the agent's loop; a signal's handler may call ``signalled``."""

    def __init__(self, settings: AgentSettings, folder: Path, posted: Callable[[int], list[Hold]]) -> None:
        self._settings = settings
        self._folder = folder
        self._posted = posted
        self._is_signalled = False
        self._by_signal: Hold | None = None
        # Keys and starts of the holds that were in force at the last look.
        self._begun: set[tuple[str, int]] = set()

    def signalled(self) -> None:
        """SIGUSR1: all pools are wanted back now."""
        self._is_signalled = True

    def look(self, now_ms: int) -> tuple[Hold, ...]:
        """Every hold that is in force or yet to come. Raises OSError for a runtime folder that cannot be read."""
        if self._is_signalled:
            self._is_signalled = False
            ends_ms = now_ms + round(self._settings.hold_s * 1e3)
            self._by_signal = Hold(key="signal", reason="signal", starts_ms=0, ends_ms=ends_ms)
        if self._by_signal is not None and self._by_signal.is_over(now_ms):
            self._by_signal = None
        return self._kept_begun(self._all(now_ms), now_ms)

    def _kept_begun(self, holds: tuple[Hold, ...], now_ms: int) -> tuple[Hold, ...]:
        """What has begun stays begun until it is over or gone, also where the wall clock is set back behind it."""
        latest_ms = now_ms + self._settings.claims.early_ms
        self._begun = {
            (hold.key, hold.starts_ms)
            for hold in holds
            if hold.starts_ms <= latest_ms or (hold.key, hold.starts_ms) in self._begun
        }
        return tuple(
            replace(hold, starts_ms=0) if (hold.key, hold.starts_ms) in self._begun else hold for hold in holds
        )

    def _all(self, now_ms: int) -> tuple[Hold, ...]:
        return (
            *([self._by_signal] if self._by_signal is not None else []),
            *holds_in(self._folder, now_ms),
            *holds_of_leases(self._settings.leases, now_ms),
            *holds_of_notices(self._settings.notices),
            *self._posted(now_ms),
            *(hold for entry in self._settings.schedule for hold in entry.holds(now_ms)),
        )
