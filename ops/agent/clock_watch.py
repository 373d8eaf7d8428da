"""Notices when the wall clock jumps: it is compared with the monotonic one, which cannot. Pure."""

from typing import Final

from ops.agent.moments import Now

_JUMP_MS: Final = 1_000


class ClockWatch:
    """Drift is followed; a step of more than a second between two looks is a jump."""

    def __init__(self, now: Now) -> None:
        self._offset_ms = _offset_ms(now)

    def jumped_ms(self, now: Now) -> int:
        """By how much the wall clock jumped since the last look; 0 where it did not."""
        before_ms, self._offset_ms = self._offset_ms, _offset_ms(now)
        moved_ms = self._offset_ms - before_ms
        return moved_ms if abs(moved_ms) > _JUMP_MS else 0


def _offset_ms(now: Now) -> int:
    return now.wall_ms - now.mono_ns // 1_000_000
