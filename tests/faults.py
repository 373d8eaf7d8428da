"""What can go wrong with a running pipeline: parts killed, parts stopped for a while, the broker away for a while."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ops.broker.local import LocalBroker
from ops.demo.pipeline import Pipeline


class Fault(Protocol):
    """Something that goes wrong at one moment and, ``lasts_s`` later, no longer does."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def lasts_s(self) -> float: ...

    def begin(self, pipeline: Pipeline) -> None: ...

    def end(self, pipeline: Pipeline) -> None: ...


@dataclass(frozen=True)
class Kill:
    """Parts get SIGKILL; the supervisor starts them again."""

    names: tuple[str, ...]
    lasts_s: float = 0.0

    def begin(self, pipeline: Pipeline) -> None:
        signal_parts(pipeline, self.names, signal.SIGKILL)

    def end(self, pipeline: Pipeline) -> None:
        pass


@dataclass(frozen=True)
class Freeze:
    """Parts get SIGSTOP, and SIGCONT when it is over: to all others they are dead, then they rise from the dead."""

    names: tuple[str, ...]
    lasts_s: float

    def begin(self, pipeline: Pipeline) -> None:
        signal_parts(pipeline, self.names, signal.SIGSTOP)

    def end(self, pipeline: Pipeline) -> None:
        signal_parts(pipeline, self.names, signal.SIGCONT)


@dataclass(frozen=True)
class Away:
    """The broker is stopped, or killed, and started again with the same data on the same port."""

    broker: LocalBroker
    lasts_s: float
    is_killed: bool
    names: tuple[str, ...] = ("broker",)

    def begin(self, pipeline: Pipeline) -> None:
        assert (self.broker.kill if self.is_killed else self.broker.stop)(), "the broker was not running"

    def end(self, pipeline: Pipeline) -> None:
        self.broker.start()


@dataclass(frozen=True)
class Deed:
    """A fault that is one call, such as a part that joins or leaves."""

    names: tuple[str, ...]
    act: Callable[[Pipeline], object]
    lasts_s: float = 0.0

    def begin(self, pipeline: Pipeline) -> None:
        self.act(pipeline)

    def end(self, pipeline: Pipeline) -> None:
        pass


@dataclass(frozen=True)
class Planned:
    """A fault that begins ``after_s`` after the one before is over, once the parts it ``needs`` are ready."""

    after_s: float
    fault: Fault
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Happened:
    """A fault that is over, and when every part that it struck was ready again; milliseconds since the epoch."""

    fault: Fault
    began_ms: int
    ended_ms: int
    well_ms: int | None


def told(fault: Fault) -> str:
    """A fault in a few words."""
    return f"{type(fault).__name__.lower()} {' '.join(fault.names)}" + (
        f", {fault.lasts_s:.1f} s" * bool(fault.lasts_s)
    )


def signal_parts(pipeline: Pipeline, names: tuple[str, ...], number: signal.Signals) -> None:
    """Send a signal to each of the parts; all of them have to run."""
    for name in names:
        pid = pipeline.supervisor.pid(name)
        assert pid is not None, f"{name} was not running"
        os.kill(pid, number)
