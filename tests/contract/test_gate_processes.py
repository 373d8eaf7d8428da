"""The gate between real processes: a flip is seen and stays seen, and a killed agent's lease runs out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from schemas import gate
from schemas.gate import FlipReason
from schemas.gate_reader import GateReader
from schemas.gate_writer import GateWriter

POOL = "us-east-h200"
NUM_FLIPS = 100

# Looks without pause. A run is an unbroken row of looks that found the gate open: the time after its first look
# and before its last one. It beats once per run, so that the agent knows that it was seen open. A look is disordered
# when it found the gate open while the generation, read before and after it, said closed.
LOOKING = """
import json, sys, time
from schemas.gate_reader import GateReader

reader, num_runs, runs = GateReader(sys.argv[1]), int(sys.argv[2]), []
num_looks = num_disordered = 0
acknowledged, was_open = 0, False
while len(runs) < num_runs or acknowledged < 2 * num_runs:
    generation_before = reader.generation
    before_ns = time.monotonic_ns()
    now_open = reader.is_open(before_ns)
    num_looks += 1
    if now_open:
        num_disordered += generation_before % 2 == 0 and reader.generation == generation_before
        last_ns = before_ns
        if not was_open:
            runs.append([time.monotonic_ns(), last_ns])
            reader.heartbeat()
        runs[-1][1] = last_ns
    elif generation := reader.closing_to_acknowledge():
        reader.acknowledge(generation, last_chunk_end_ns=last_ns, drained_ns=time.monotonic_ns())
        acknowledged = generation
    was_open = now_open
print(json.dumps({"runs": runs, "num_looks": num_looks, "num_disordered": num_disordered}))
reader.close()
"""

HOLDING_OPEN = """
import sys
from schemas.gate_writer import GateWriter

writer = GateWriter(sys.argv[1])
while writer.open(lease_s=float(sys.argv[2])):
    pass
"""


@contextmanager
def process(program: str, folder: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    root = str(Path(gate.__file__).parents[1])
    child = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=os.environ | {"INTERTIDAL_RUNTIME_DIR": str(folder), "PYTHONPATH": root},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def until(condition: Callable[[], bool], child: subprocess.Popen[str], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert child.poll() is None, f"the child ended with {child.returncode}"
        assert time.monotonic() < deadline_s, "nothing happened in time"
        os.sched_yield()


def test_a_hundred_flips_between_two_processes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    opened_ns, closed_ns, reactions_ns = [], [], []
    with GateWriter(POOL, folder=folder) as writer, process(LOOKING, folder, POOL, NUM_FLIPS) as child:
        until(lambda: len(writer.rankers()) == 1, child)
        for _ in range(NUM_FLIPS):
            opened_ns.append(time.monotonic_ns())
            writer.open(lease_s=60)
            until(lambda: writer.rankers()[0].heartbeat_ns >= opened_ns[-1], child)
            generation = writer.close()
            closed_ns.append(time.monotonic_ns())

            report = writer.wait_drained(20, sleep=lambda _: os.sched_yield())
            assert report.generation == generation
            assert [drain.pid for drain in report.drained] == [child.pid]
            assert not report.pending_pids
            reactions_ns.append(report.drained[0].drained_after_ns)
        output, _ = child.communicate(timeout=20)
        assert child.returncode == 0
        assert writer.rankers() == ()

    seen = json.loads(output)
    # One unbroken run per opening: never closed while it was open, never open again after it was seen closed.
    assert len(seen["runs"]) == NUM_FLIPS
    for (first_ns, last_ns), opening_ns, closing_ns in zip(seen["runs"], opened_ns, closed_ns, strict=True):
        assert first_ns >= opening_ns
        assert last_ns <= closing_ns, "a look begun after the flip was done still found the gate open"
    assert seen["num_looks"] > 2 * NUM_FLIPS
    assert seen["num_disordered"] == 0
    assert all(reaction_ns >= 0 for reaction_ns in reactions_ns)


def test_the_lease_of_a_killed_agent_runs_out(tmp_path: Path) -> None:
    folder, lease_s = tmp_path / "run", 5.0
    with process(HOLDING_OPEN, folder, POOL, lease_s) as agent, GateReader(POOL, folder=folder) as reader:
        until(reader.is_open, agent)
        generation = reader.generation
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait(timeout=20)
        killed_ns = time.monotonic_ns()
        assert reader.is_open(killed_ns), "the agent is gone, its word stands until the lease is over"

        while True:
            now_ns = time.monotonic_ns()
            if not reader.is_open(now_ns):
                break
            assert now_ns <= killed_ns + int(lease_s * 1e9), "open beyond the lease"
        closed_for_good = [reader.is_open() for _ in range(10_000)]
        assert not any(closed_for_good)
        assert reader.generation == generation

        # The kernel has dropped the killed agent's lock; the next agent takes over, closed.
        with GateWriter(POOL, folder=folder) as successor:
            assert (reader.is_open(), reader.reason) == (False, FlipReason.AGENT_RESTARTED)
            assert reader.generation > generation
            successor.open(lease_s=60)
            assert reader.is_open()


def test_many_rankers_at_once_get_a_slot_each(tmp_path: Path) -> None:
    """Claims are made under a lock; the loser of a race tries again at a later look."""
    folder = tmp_path / "run"
    claim = (
        "import sys; from schemas.gate_reader import GateReader; reader = GateReader(sys.argv[1])\n"
        "while not reader.is_attached: reader.is_open()\n"
        "print(reader.is_attached, flush=True); sys.stdin.read()"
    )
    with GateWriter(POOL, folder=folder) as writer:
        with ExitStack() as stack:
            children = [stack.enter_context(process(claim, folder, POOL)) for _ in range(4)]
            for child in children:
                assert child.stdout is not None
                assert child.stdout.readline() == "True\n"
            assert sorted(slot.pid for slot in writer.rankers()) == sorted(child.pid for child in children)

        writer.open(lease_s=60)
        writer.close()
        assert len(writer.wait_drained(0.0).dead_pids) == 4
