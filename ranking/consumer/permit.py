"""Whether optional work may run: looks at the gate and tells it, at once, when this replica has given way."""

import time
from collections.abc import Callable
from typing import Literal, Protocol

StopReason = Literal["gate_closed", "draining"]


class Gate(Protocol):
    """The ranker's end of a gate, as `schemas.gate_reader.GateReader` has it."""

    def is_open(self, now_ns: int | None = None) -> bool:
        """Whether optional work may run now."""

    @property
    def generation(self) -> int:
        """Flips so far; even while closed."""

    def acknowledge(self, generation: int, *, last_chunk_end_ns: int, drained_ns: int) -> None:
        """Say that a closing is obeyed."""


class Permit:
    """Looked at before every optional chunk, and now and then while idle. One thread.

    ``gate`` is None for dedicated replicas. ``release`` gives device memory back; it has when it returns.
    """

    def __init__(
        self,
        gate: Gate | None,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._gate = gate
        self._clock_ns = clock_ns
        self._release = release
        self._is_draining = False
        self._is_stopped = gate is not None
        self._last_chunk_end_ns = 0
        # A closing before this replica attached asks nothing of it.
        self._acknowledged = gate.generation if gate is not None else 0

    @property
    def last_chunk_end_ns(self) -> int:
        """End of the last optional chunk, 0 for none yet."""
        return self._last_chunk_end_ns

    @property
    def is_stopped(self) -> bool:
        """Whether the last look found that optional work may not run."""
        return self._is_stopped

    def drain(self) -> None:
        """From now on no optional work runs here."""
        self._is_draining = True

    def look(self, now_ns: int) -> StopReason | None:
        """Why optional work may not start now, None where it may. No optional chunk is running when one looks.

        A closing seen for the first time is acknowledged before anything else, answers included: 1. device memory is
        given back  2. the agent is told.
        """
        gate = self._gate
        if gate is None or gate.is_open(now_ns):
            self._is_stopped = self._is_draining
            return "draining" if self._is_draining else None
        self._is_stopped = True
        generation = gate.generation
        # Odd: the lease ran out, and the agent has yet to make a closing of it.
        if generation % 2 == 0 and generation != self._acknowledged:
            self._release()  # 1
            gate.acknowledge(generation, last_chunk_end_ns=self._last_chunk_end_ns, drained_ns=self._clock_ns())  # 2
            self._acknowledged = generation
        return "gate_closed"

    def ended(self, end_ns: int) -> None:
        """Note the end of an optional chunk."""
        self._last_chunk_end_ns = end_ns
