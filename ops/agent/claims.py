"""All that the owner claims, from wherever it is said: files, posts, a signal, the schedule."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ops.agent.claim_files import holds_in, holds_of_leases, holds_of_notices
from ops.agent.holds import Hold
from ops.agent.settings import AgentSettings


class Claims:
    """Looked at by the agent's loop."""

    def __init__(self, settings: AgentSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        # Keys and starts of the holds that were in force at the last look.
        self._begun: set[tuple[str, int]] = set()

    def look(self, now_ms: int, posted: Iterable[Hold] = ()) -> tuple[Hold, ...]:
        """Every hold that is in force or yet to come; ``posted`` are those that were posted or signalled.

        Raises OSError for a runtime folder that cannot be read.
        """
        return self._kept_begun((*self._in_files(now_ms), *posted), now_ms)

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

    def _in_files(self, now_ms: int) -> tuple[Hold, ...]:
        return (
            *holds_in(self._folder, now_ms),
            *holds_of_leases(self._settings.leases, now_ms),
            *holds_of_notices(self._settings.notices),
            *(hold for entry in self._settings.schedule for hold in entry.holds(now_ms)),
        )
