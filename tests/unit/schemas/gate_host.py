"""A host with a gate, on a fake clock and with fake processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.gate import (
    GateHeader,
    RankerSlot,
    unpack_gate,
)
from schemas.gate_reader import GateReader
from schemas.gate_writer import GateWriter

BOOT = bytes(range(16))
POOL = "us-east.3-h200"


class Host:
    """One host with a fake monotonic clock and fake processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / f"{POOL}.gate"
        self.now_ns = 1_000_000_000
        self.started = {os.getpid(): 77}
        self.boot = BOOT

    def clock_ns(self) -> int:
        return self.now_ns

    def pass_s(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def writer(self) -> GateWriter:
        return GateWriter(
            POOL, folder=self.folder, clock_ns=self.clock_ns, starts=self.started.get, host_boot_id=self.boot
        )

    def reader(self) -> GateReader:
        return GateReader(
            POOL, folder=self.folder, clock_ns=self.clock_ns, starts=self.started.get, host_boot_id=self.boot
        )

    def read(self) -> tuple[GateHeader, tuple[RankerSlot, ...]]:
        return unpack_gate(self.path, self.path.read_bytes())

    def rewrite_slots(self, change: Callable[[int, RankerSlot], RankerSlot]) -> None:
        header, slots = self.read()
        image = header.pack() + b"".join(change(n, slot).pack() for n, slot in enumerate(slots))
        with self.path.open("r+b") as file:
            file.write(image)


@contextmanager
def killed(writer: GateWriter) -> Iterator[None]:
    """Leave the file as a killed agent leaves it, and drop its lock as the kernel does."""
    image = writer.path.read_bytes()
    writer.shutdown()
    with writer.path.open("r+b") as file:
        file.write(image)
    yield
