"""Children are restarted when they die, stopped when asked, and never outlive their supervisor."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.demo.supervisor import PartCommand, PartFailed, Supervisor

WAITS = "import signal; signal.sigwait([signal.SIGTERM])"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path)
    yield supervisor
    supervisor.stop(timeout_s=0.0)


def command(name: str, code: str, *, restarted: bool = True) -> PartCommand:
    return PartCommand(name=name, argv=(sys.executable, "-c", code), environ=os.environ, restarted=restarted)


def wait_for_death(supervisor: Supervisor, name: str) -> None:
    deadline = time.monotonic() + 10
    while supervisor.pid(name) is not None:
        assert time.monotonic() < deadline, f"{name} still runs"


def pid_of(supervisor: Supervisor, name: str) -> int:
    pid = supervisor.pid(name)
    assert pid is not None
    return pid


def check_until_it_fails(supervisor: Supervisor, name: str) -> None:
    for _ in range(10):
        wait_for_death(supervisor, name)
        supervisor.check()


def test_a_killed_part_is_started_again_and_counted(supervisor: Supervisor) -> None:
    supervisor.start(command("a", WAITS))
    first = pid_of(supervisor, "a")
    os.kill(first, signal.SIGKILL)
    wait_for_death(supervisor, "a")
    assert supervisor.check() == ["a"]
    assert pid_of(supervisor, "a") != first
    assert supervisor.restarts == {"a": 1}


def test_a_part_that_may_end_is_left_alone(supervisor: Supervisor) -> None:
    supervisor.start(command("a", "raise SystemExit(3)", restarted=False))
    wait_for_death(supervisor, "a")
    assert supervisor.check() == []
    assert supervisor.exit_code("a") == 3


def test_a_part_that_keeps_dying_is_named_with_its_last_words(supervisor: Supervisor) -> None:
    supervisor.start(command("a", "raise SystemExit('no such setting')"))
    with pytest.raises(PartFailed, match=r"a keeps ending \(exit code 1: no such setting\)"):
        check_until_it_fails(supervisor, "a")


def test_a_part_that_does_not_stop_is_killed_and_named(supervisor: Supervisor) -> None:
    supervisor.start(command("good", WAITS))
    supervisor.start(command("stubborn", STUBBORN))
    deadline = time.monotonic() + 10
    while "up" not in supervisor.log_path("stubborn").read_text():
        assert time.monotonic() < deadline
    assert supervisor.stop(timeout_s=1.0) == ["stubborn"]
    assert supervisor.check() == []


def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    child = f"from ops.parent_death import obey_supervisor; obey_supervisor(); print('up', flush=True); {WAITS}"
    parent = (
        "import os, sys, time; from pathlib import Path; from ops.demo.supervisor import *;"
        f"s = Supervisor(Path({str(tmp_path)!r}));"
        f"s.start(PartCommand(name='c', argv=(sys.executable, '-c', {child!r}), environ=os.environ));"
        "print(s.pid('c'), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        child_pid = int(supervisor.stdout.readline())
        deadline = time.monotonic() + 10
        while "up" not in (tmp_path / "c.log").read_text():
            assert time.monotonic() < deadline
        supervisor.kill()
    while Path(f"/proc/{child_pid}/stat").exists() and " Z " not in Path(f"/proc/{child_pid}/stat").read_text():
        assert time.monotonic() < deadline, "the child outlived its supervisor"
