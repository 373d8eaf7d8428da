"""The one interface behind which all sources stand."""

from collections.abc import Sequence
from typing import Protocol

from ops.agent.readings import Reading


class Source(Protocol):
    """Read by one thread, which may take its time: a source that hangs makes its pools stale, and nothing else.

    A pool of which nothing was read for a while is taken back, so a source that knows nothing says nothing.
    """

    @property
    def name(self) -> str:
        """As in the configuration."""

    @property
    def every_s(self) -> float:
        """How often it is to be read."""

    def read(self, own_pids: frozenset[int]) -> Sequence[Reading]:
        """What is so now; what ``own_pids`` use is optional work, and not the owner's. Raises SourceError."""

    def close(self) -> None:
        """Let go of what it holds."""
