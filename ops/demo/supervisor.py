"""Keeps child processes running: starts them, restarts one that dies, stops them in order."""

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ops.parent_death import dies_with_me

# A part that dies this often within this time will not be saved by one more start.
_MAX_QUICK_DEATHS: Final = 5
_QUICK_S: Final = 3.0


class PartFailed(Exception):
    """A part cannot be kept running; the message names it, its log, and the log's last line."""


@dataclass(frozen=True, kw_only=True)
class PartCommand:
    """How one part is started. A part that is not ``restarted`` may end by itself."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    restarted: bool = True


@dataclass
class _Child:
    command: PartCommand
    process: subprocess.Popen[bytes]
    started_s: float
    quick_deaths: int = 0
    stopping: bool = False


@dataclass
class Supervisor:
    """Children of this process, by name. They die with it, however it dies."""

    log_dir: Path
    clock: Callable[[], float] = time.monotonic
    restarts: Counter[str] = field(default_factory=Counter)
    _children: dict[str, _Child] = field(default_factory=dict)

    def start(self, command: PartCommand) -> None:
        """Start a part; its output goes to ``<name>.log``."""
        self._children[command.name] = _Child(command, self._spawn(command), self.clock())

    def pid(self, name: str) -> int | None:
        """Process id of a part that runs, else None."""
        child = self._children.get(name)
        return child.process.pid if child is not None and child.process.poll() is None else None

    def command(self, name: str) -> PartCommand:
        """How a part was started."""
        return self._children[name].command

    def started(self, name: str) -> bool:
        """Whether the part was ever started."""
        return name in self._children

    def exit_code(self, name: str) -> int | None:
        """Exit code of a part that has ended, else None."""
        return self._children[name].process.poll()

    def log_path(self, name: str) -> Path:
        return self.log_dir / f"{name}.log"

    def check(self) -> list[str]:
        """Restart the parts that died and return their names; raises PartFailed when one keeps dying."""
        restarted = []
        for name, child in self._children.items():
            if child.stopping or child.process.poll() is None or not child.command.restarted:
                continue
            quick = self.clock() - child.started_s < _QUICK_S
            child.quick_deaths = child.quick_deaths + 1 if quick else 0
            if child.quick_deaths >= _MAX_QUICK_DEATHS:
                raise PartFailed(f"{name} keeps ending ({self._why(name)}); log: {self.log_path(name)}")
            child.process = self._spawn(child.command)
            child.started_s = self.clock()
            self.restarts[name] += 1
            restarted.append(name)
        return restarted

    def stop(self, names: Iterable[str] | None = None, *, timeout_s: float = 15.0) -> list[str]:
        """Stop parts together, SIGTERM first, SIGKILL after ``timeout_s``; returns those that had to be killed."""
        children = [self._children[name] for name in (self._children if names is None else names)]
        for child in children:
            child.stopping = True
            if child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM)
        deadline = self.clock() + timeout_s
        killed = []
        for child in children:
            try:
                child.process.wait(max(0.0, deadline - self.clock()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
                killed.append(child.command.name)
        return killed

    def _spawn(self, command: PartCommand) -> subprocess.Popen[bytes]:
        with self.log_path(command.name).open("ab") as log:
            return subprocess.Popen(
                command.argv,
                env={**command.environ, **dies_with_me()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A session of its own: an interrupt from the terminal is ours to hand on, in order.
                start_new_session=True,
            )

    def _why(self, name: str) -> str:
        lines = self.log_path(name).read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "no output")
        return f"exit code {self.exit_code(name)}: {last.strip()[:300]}"
