"""What a replay at its default rate costs the base answers of a live dedicated replica on the same machine.

One dedicated replica is given base work at a steady rate all the time. Beside it a replay runs, over a log of the past
that lasts for all blocks, in processes of the priority that it gives itself; in every other block it is stopped
(SIGSTOP), in the others it goes on. Times are wall-clock times, from handing the work to the client to the answer.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from benchmarks.bootstrap import ratio_of_percentiles
from benchmarks.ingest import TIME
from benchmarks.measurement import Measurement
from benchmarks.plan import Plan, alternate
from benchmarks.replay import filled
from benchmarks.stage import Stage, on_kafka
from benchmarks.work_sender import WorkSender
from ops.replay.runs import Runs, status_of
from ops.replay_cli import DEFAULT_RATE
from ranking.models.load import BASELINE_WORLD_BUNDLE
from schemas.kafka.config import NAMESPACE_ENV
from schemas.topics import Namespace

NAME: Final = "beside_replay"

RUN: Final = "beside"
NUM_BASE: Final = 100
WORK_PER_S: Final = 40
NUM_BLOCKS, NUM_BLOCKS_QUICK = 20, 6
BLOCK_S, BLOCK_S_QUICK = 3.0, 1.5
# The log holds what 1,000 records a second make of it; it is read at the replay's rate, with time to spare.
LOG_RECORDS_PER_S: Final = 1_000
SPARE: Final = 1.5
# Interpreters of the replay and of its workers are up by then.
STARTING_S: Final = 8.0
MOST: Final = 1.1


def measure(plan: Plan) -> list[Measurement]:
    """p99 of base answers beside a replay and beside a stopped one, ms, and the ratio with its interval."""
    if plan.tiny:
        return []
    num_blocks, block_s = plan.choose(NUM_BLOCKS, NUM_BLOCKS_QUICK, 0), plan.choose(BLOCK_S, BLOCK_S_QUICK, 0.0)
    lasts_s = round(SPARE * (num_blocks * block_s + STARTING_S) * DEFAULT_RATE / LOG_RECORDS_PER_S)
    with on_kafka() as stage, filled(stage, lasts_s) as past:
        return _measure(stage, past, num_blocks=num_blocks, block_s=block_s)


def _measure(stage: Stage, past: Namespace, *, num_blocks: int, block_s: float) -> list[Measurement]:
    bundle = str(BASELINE_WORLD_BUNDLE)
    stage.start("dedicated", "benchmarks.replica", stage.namespace.prefix, bundle, "dedicated", "baseline", "0")
    sender = WorkSender(stage, num_base=NUM_BASE, num_optional=NUM_BASE)
    sender.await_first("baseline")
    beside_ms: list[list[float]] = []
    alone_ms: list[list[float]] = []

    def p99_ms(blocks_ms: list[list[float]]) -> float:
        blocks_ms.append(sender.run(block_s, work_per_s=WORK_PER_S))
        return float(np.percentile(blocks_ms[-1], 99))

    with _replaying(stage, past) as group:

        def beside() -> float:
            os.killpg(group, signal.SIGCONT)
            try:
                return p99_ms(beside_ms)
            finally:
                os.killpg(group, signal.SIGSTOP)

        p99s_ms, alone_p99s_ms = alternate(beside, lambda: p99_ms(alone_ms), num_turns=num_blocks, name=NAME)
        num_read, is_done = _how_far(stage, past)
    if is_done:
        raise RuntimeError("the replay was done before the last block")
    ratio = ratio_of_percentiles(beside_ms, alone_ms, percentile=99)
    what = f"base answers beside a replay of {DEFAULT_RATE:,.0f} records/s at most"
    return [
        Measurement(
            name=f"{what} ({num_read:,} read meanwhile), p99 of a block",
            unit="ms",
            values=p99s_ms,
            reference="beside a stopped one",
            reference_values=alone_p99s_ms,
        ),
        Measurement(
            name=f"{what}, p99 of all blocks over that without, 95 % interval",
            unit="ratio",
            values=list(ratio),
            goal=f"its lower end at most {MOST:g}: {'missed' if ratio.low > MOST else 'met'}",
        ),
    ]


@contextmanager
def _replaying(stage: Stage, past: Namespace) -> Iterator[int]:
    """A replay as anybody starts it, stopped as soon as it reads; its process group."""
    command: Sequence[str] = (sys.executable, "-m", "ops.cli", "replay", RUN, "--go", "--json")
    environ = {**stage.environ, NAMESPACE_ENV: past.prefix, **TIME.to_env()}
    with (stage.folder / "replay.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline_s = time.monotonic() + 60.0
        while _how_far(stage, past)[0] == 0:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the replay did not begin: {(stage.folder / 'replay.log').read_text()[-500:]}")
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGSTOP)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _how_far(stage: Stage, past: Namespace) -> tuple[int, bool]:
    """Records read so far, and whether that is all."""
    log = Runs(stage.config("bench-how-far"), past).find(RUN)
    if log is None or log.manifest is None:
        return 0, False
    status = status_of(log.manifest, log)
    return status.num_read, status.state == "done"
