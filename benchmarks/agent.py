"""The fleet agent as a process: what it takes of a core and of memory, with the broker there and with it away.

It watches the host's cores and eight devices that a file describes, with a gate each, at the default heartbeat. The
broker that is away leaves it with a full spool and a full client. CPU time is that of all its threads, by the kernel's
scheduler; memory is what is resident.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.measurement import Measurement
from benchmarks.plan import Plan
from benchmarks.stage import on_kafka
from ops.agent.host_reporter import HostReporter
from ops.agent.readings import Reading
from ops.agent.spool import BEATS, Spool
from ops.telemetry.progress import progress
from schemas.framing import encode
from schemas.kafka.config import BOOTSTRAP_ENV
from schemas.records import Offer

NAME = "agent"

NUM_DEVICES = 8
TOTAL_S, TOTAL_S_QUICK, TOTAL_S_TINY = 60.0, 15.0, 1.0
SPOOL_MIB = 64
# Imports, the first readings, a full client: what is measured begins behind it.
SETTLE_S, SETTLE_S_TINY = 5.0, 0.5
START_LIMIT_S = 60.0
NOBODY = "127.0.0.1:1"
_MIB = 1 << 20


def measure(plan: Plan) -> list[Measurement]:
    """Per cent of a core in each of several stretches of the time, and the largest memory at the end of one."""
    found = []
    if not plan.tiny:
        with on_kafka() as stage:
            found += _measure(plan, stage.environ, stage.folder / "agent", "broker there")
    with tempfile.TemporaryDirectory(prefix="intertidal-bench-") as name:
        folder = Path(name) / "agent"
        if not plan.tiny:
            _fill(folder / "state" / "spool")
        found += _measure(plan, {**os.environ, BOOTSTRAP_ENV: NOBODY}, folder, "broker away, spool full")
    return found


def _measure(plan: Plan, environ: Mapping[str, str], folder: Path, how: str) -> list[Measurement]:
    folder.mkdir(exist_ok=True, parents=True)
    stretch_s = plan.choose(TOTAL_S, TOTAL_S_QUICK, TOTAL_S_TINY) / plan.num_turns
    shares: list[float] = []
    sizes: list[float] = []
    with _agent(folder, environ) as pid, progress(f"agent, {how}", total=plan.num_turns) as advance:
        time.sleep(plan.choose(SETTLE_S, SETTLE_S, SETTLE_S_TINY))
        for _ in range(plan.num_turns):
            before_ns, begun_s = _cpu_ns(pid), time.perf_counter()
            time.sleep(stretch_s)
            shares.append((_cpu_ns(pid) - before_ns) / 1e7 / (time.perf_counter() - begun_s))
            sizes.append(_resident_bytes(pid) / _MIB)
            advance(1)
    what = f"fleet agent, {NUM_DEVICES} devices and the cores, {how}"
    return [
        Measurement(name=f"{what}, CPU", unit="% of a core", values=shares, goal="below 1"),
        Measurement(name=f"{what}, memory", unit="MiB", values=sizes, goal="below 80"),
    ]


@contextmanager
def _agent(folder: Path, environ: Mapping[str, str]) -> Iterator[int]:
    """Process id of an agent that has offered its first pool."""
    readings = [
        Reading(pool=f"h200-{number}", accelerator="h200", units=1.0, device_memory_bytes=1 << 36)
        for number in range(NUM_DEVICES)
    ]
    (folder / "readings.json").write_bytes(msgspec.json.encode(readings))
    (folder / "agent.toml").write_text(
        f'cell = "us-east"\nhost = "bench"\nruntime_dir = "run"\nstate_dir = "state"\nspool_mib = {SPOOL_MIB}\n'
        'policy.idle_for_s = 0.0\n[sources.host]\n[sources.static]\npath = "readings.json"\n'
    )
    command = [sys.executable, "-m", "ops.cli", "run", "agent", "--config", str(folder / "agent.toml")]
    with (folder / "agent.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stderr=log)
    try:
        limit_s = time.monotonic() + START_LIMIT_S
        while b"offered" not in (folder / "agent.log").read_bytes():
            if process.poll() is not None or time.monotonic() > limit_s:
                raise RuntimeError(f"the agent does not start: {(folder / 'agent.log').read_text()}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _fill(folder: Path) -> None:
    """A spool that has to drop something for whatever comes."""
    reporter = HostReporter(cell="us-east", host="bench", epoch_ms=0)
    for number in range(NUM_DEVICES):
        offer = Offer(accelerator="h200", units=1.0, cpu_cores=8.0, memory_bytes=1 << 35, idle_cause="off_peak")
        reporter.put(f"h200-{number}", offer)
    spool = Spool(folder, limit_bytes=SPOOL_MIB * _MIB)
    body = encode(reporter.record("heartbeat", now_ms=0))
    while not spool.num_dropped[BEATS]:
        spool.append(BEATS, body)
    spool.close()


def _cpu_ns(pid: int) -> int:
    """Time that all threads of a process have run, in nanoseconds."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
