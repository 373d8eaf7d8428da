"""One instant by both clocks of a host: records carry the wall clock's, intervals go by the monotonic one."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Now:
    """Milliseconds since the Unix epoch, and nanoseconds of the host's CLOCK_MONOTONIC, which gates go by too."""

    wall_ms: int
    mono_ns: int

    def wall_ms_at(self, mono_ns: int) -> int:
        """The wall clock's time of a recent moment of the monotonic clock."""
        return self.wall_ms - round((self.mono_ns - mono_ns) / 1e6)


def system_now() -> Now:
    """This moment by the system's clocks."""
    return Now(wall_ms=time.time_ns() // 1_000_000, mono_ns=time.monotonic_ns())
