"""Sources: /proc as it is written, files that change, programs that end, and one that fails and ends no other."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ops.agent.readings import Reading, SourceError, readings_of_json
from ops.agent.sampler import Sampler
from ops.agent.settings import settings_of
from ops.agent.sources.command import Command
from ops.agent.sources.host import HostSource
from ops.agent.sources.open import open_sources
from ops.agent.sources.static_file import StaticFile
from ops.agent.sources.trace_file import TraceFile
from schemas.errors import RecordError

READING = {"pool": "p", "accelerator": "h200", "units": 2.0}
NOBODY: frozenset[int] = frozenset()


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


class Proc:
    """A stand-in for /proc with four cores, at 100 ticks a second each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pressure").mkdir()
        self.user = self.idle = 0
        self.own: dict[int, int] = {}
        self.tell(memory="0.00", io="0.00", cpu="90.00")
        (folder / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:     2048 kB\n")
        self.write()

    def tell(self, **avg10: str) -> None:
        for name, share in avg10.items():
            text = f"some avg10={share} avg60=0.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0 avg300=0 total=0\n"
            (self.folder / "pressure" / name).write_text(text)

    def write(self) -> None:
        cores = "".join(f"cpu{number} 0 0 0 0 0 0 0 0 0 0\n" for number in range(4))
        (self.folder / "stat").write_text(f"cpu  {self.user} 0 0 {self.idle} 0 0 0 0 0 0\n{cores}intr 1\n")
        for pid, ticks in self.own.items():
            (self.folder / str(pid)).mkdir(exist_ok=True)
            (self.folder / str(pid) / "stat").write_text(f"{pid} (a b) c) S {'0 ' * 10}{ticks - 1} 1 0 0\n")

    def pass_s(self, seconds: float, *, busy_cores: float, own_cores: float = 0.0, pid: int = 7) -> None:
        ticks = round(seconds * 100)
        self.user += round(ticks * busy_cores)
        self.idle += round(ticks * (4 - busy_cores))
        self.own[pid] = self.own.get(pid, 1) + round(ticks * own_cores)
        self.write()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_the_owners_cores_are_the_busy_ones_less_optional_works(proc: Proc) -> None:
    source = HostSource(proc=proc.folder)
    assert source.read(frozenset({7})) == []
    proc.pass_s(2.0, busy_cores=3.0, own_cores=2.0)
    (reading,) = source.read(frozenset({7}))
    assert (reading.pool, reading.units, reading.divisible, reading.memory_bytes) == ("cpu", 4.0, True, 2048 * 1024)
    assert reading.owner_units == pytest.approx(1.0, abs=0.02)
    proc.pass_s(1.0, busy_cores=3.0, own_cores=2.0)
    (reading,) = source.read(NOBODY)
    assert reading.owner_units == pytest.approx(3.0, abs=0.02)


def test_an_instant_without_a_tick_says_nothing_and_rounding_never_gives_less_than_none(proc: Proc) -> None:
    source = HostSource(proc=proc.folder)
    source.read(NOBODY)
    assert source.read(NOBODY) == []
    proc.pass_s(1.0, busy_cores=1.0, own_cores=2.0)
    assert source.read(frozenset({7}))[0].owner_units == 0.0


def test_of_the_whole_host_waiting_for_cores_is_no_pressure_and_of_the_owners_group_it_is(proc: Proc) -> None:
    proc.tell(memory="12.50", io="1.00")
    source = HostSource(proc=proc.folder)
    source.read(NOBODY)
    proc.pass_s(1.0, busy_cores=1.0)
    assert source.read(NOBODY)[0].pressure == pytest.approx(0.125)
    group = proc.folder / "group"
    group.mkdir()
    (group / "cpu.pressure").write_text("some avg10=40.00 avg60=0.00 avg300=0.00 total=1\n")
    source = HostSource(proc=proc.folder, owner_cgroup=group)
    source.read(NOBODY)
    proc.pass_s(1.0, busy_cores=1.0)
    assert source.read(NOBODY)[0].pressure == pytest.approx(0.4)


def test_pressure_that_is_asked_for_and_not_told_is_refused(proc: Proc) -> None:
    with pytest.raises(ValueError, match=r"pressures: .* irq"):
        HostSource(proc=proc.folder, pressures=["memory", "irq"])
    with pytest.raises(ValueError, match="owner_cgroup"):
        HostSource(proc=proc.folder, owner_cgroup=proc.folder)


def test_a_proc_that_cannot_be_read_is_an_error_of_the_source(proc: Proc) -> None:
    source = HostSource(proc=proc.folder)
    (proc.folder / "meminfo").write_text("nothing\n")
    with pytest.raises(SourceError, match="MemAvailable"):
        source.read(NOBODY)


def test_this_host_can_be_read() -> None:
    source = HostSource()
    source.read(NOBODY)
    deadline = 0
    while not (readings := source.read(NOBODY)):
        deadline += 1
        assert deadline < 10**6
    assert readings[0].units >= 1.0
    assert (readings[0].memory_bytes or 0) > 0


def test_a_static_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "readings.toml"
    path.write_text('[[readings]]\npool = "p"\naccelerator = "h200"\nunits = 2.0\n')
    source = StaticFile(path)
    first = source.read(NOBODY)
    assert first == [Reading(pool="p", accelerator="h200", units=2.0)]
    assert source.read(NOBODY) is first
    path.write_text('[[readings]]\npool = "p"\naccelerator = "h200"\nunits = 4\nowner_units = 1\n')
    assert [(each.units, each.owner_units) for each in source.read(NOBODY)] == [(4.0, 1.0)]
    path.write_text("[[readings]")
    with pytest.raises(SourceError, match=r"readings\.toml"):
        source.read(NOBODY)
    path.unlink()
    with pytest.raises(SourceError, match="No such file"):
        source.read(NOBODY)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"units": -1}, "units"),
        ({"pool": "../x"}, "pool"),
        ({"unit": 1}, "unit"),
        ({"pressure": 1.5}, "pressure"),
        ({"idle_cause": "lunch"}, "idle_cause"),
    ],
)
def test_a_reading_out_of_bounds_is_named(change: dict[str, object], field: str) -> None:
    with pytest.raises(RecordError, match=field):
        readings_of_json(json.dumps({**READING, **change}))


def trace(folder: Path, *lines: dict[str, object]) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps({**READING, **line}) + "\n" for line in lines))
    return path


def test_a_trace_is_played_at_its_speed_and_its_end_lasts(tmp_path: Path) -> None:
    clock = Clock()
    path = trace(tmp_path, {"at_s": 0}, {"at_s": 10, "owner_units": 1}, {"at_s": 10, "pool": "q"}, {"at_s": 20})
    source = TraceFile(path, speed=2.0, clock_s=clock)
    seen = []
    for clock.s in (0.0, 4.9, 5.0, 100.0):
        seen.append({each.pool: each.owner_units for each in source.read(NOBODY)})
    assert seen == [{"p": 0.0}, {"p": 0.0}, {"p": 1.0, "q": 0.0}, {"p": 0.0, "q": 0.0}]
    source.close()


def test_a_trace_that_loops_begins_again_where_it_ended(tmp_path: Path) -> None:
    clock = Clock()
    source = TraceFile(trace(tmp_path, {"at_s": 5}, {"at_s": 10, "owner_units": 1}), loop=True, clock_s=clock)
    seen = []
    for clock.s in (0.0, 5.0, 10.0, 15.0, 20.0, 25.0):
        seen.append([each.owner_units for each in source.read(NOBODY)])
    assert seen == [[], [0.0], [1.0], [0.0], [1.0], [0.0]]


@pytest.mark.parametrize(("text", "why"), [("{}\n", "line 1.*pool"), ('{"at_s": 5}\n', "line 1"), ("\nx\n", "line 2")])
def test_a_trace_that_breaks_off_says_nothing_from_there_on(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    source = TraceFile(path)
    for _ in range(2):
        with pytest.raises(SourceError, match=why):
            source.read(NOBODY)


def test_a_trace_whose_times_go_back_is_refused(tmp_path: Path) -> None:
    clock = Clock()
    clock.s = 0.0
    source = TraceFile(trace(tmp_path, {"at_s": 1}, {"at_s": 0}), clock_s=clock)
    clock.s = 5.0
    with pytest.raises(SourceError, match="line 2: at_s"):
        source.read(NOBODY)


def read_until_new(source: Command) -> Sequence[Reading]:
    """What the program prints next: it is another process, and has the machine's time to do so."""
    for _ in range(10**7):
        if readings := source.read(NOBODY):
            return readings
    raise AssertionError("the program printed nothing")


def test_a_command_is_listened_to_and_ended(tmp_path: Path) -> None:
    program = (
        "import json, sys\n"
        "print('no reading', flush=True)\n"
        "for units in (1, 2):\n"
        "    print(json.dumps({'pool': 'p', 'accelerator': 'h200', 'units': units}), flush=True)\n"
        "sys.stdout.flush(); import time; time.sleep(600)\n"
    )
    source = Command([sys.executable, "-c", program])
    units = [each.units for each in read_until_new(source)]
    while units[-1] != 2.0:
        units += [each.units for each in read_until_new(source)]
    assert source.num_bad_lines == 1
    # What it said once it does not say again: a program that hangs grows stale.
    assert source.read(NOBODY) == []
    process = source._process
    assert process is not None
    source.close()
    assert process.returncode is not None


def test_a_command_that_ends_is_started_again_after_a_growing_pause() -> None:
    clock = Clock()
    source = Command([sys.executable, "-c", "print()"], clock_s=clock)
    starts = []
    for clock.s in (0.0, 0.5, 1.0, 2.9, 3.0, 6.9, 7.0):
        before = source._start_at_s
        with pytest.raises(SourceError, match="started again"):
            read_until_new(source)
        if source._start_at_s != before:
            starts.append(clock.s)
    assert starts == [0.0, 1.0, 3.0, 7.0]


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(SourceError, match="no-such-program: No such file"):
        Command(["/no-such-program"]).read(NOBODY)


class Scripted:
    """A source that says what it is told to; None fails."""

    def __init__(self, name: str, every_s: float, says: list[list[Reading] | None]) -> None:
        self.name = name
        self.every_s = every_s
        self.says = says
        self.seen_pids: frozenset[int] = NOBODY

    def read(self, own_pids: frozenset[int]) -> Sequence[Reading]:
        self.seen_pids = own_pids
        readings = self.says.pop(0) if self.says else []
        if readings is None:
            raise SourceError(f"{self.name}: out of order")
        return readings

    def close(self) -> None:
        self.says = []


def test_each_source_is_read_when_it_is_due_and_a_bad_one_ends_no_other() -> None:
    clock = Clock()
    woken: list[float] = []
    reading = readings_of_json(json.dumps(READING))
    good = Scripted("good", 1.0, [reading] * 9)
    bad = Scripted("bad", 2.0, [None, None, reading])
    sampler = Sampler([good, bad], wake=lambda: woken.append(clock.s), clock_s=clock)
    sampler.own_pids = frozenset({5})
    for clock.s in (0.0, 0.5, 1.0, 2.0):
        assert {sampler.read_due(good), sampler.read_due(bad)} <= {0.5, 1.0, 1.5, 2.0}
    assert good.seen_pids == {5}
    assert woken == [0.0, 1.0, 2.0]
    assert sampler.take() == reading
    assert sampler.take() == []
    assert (sampler.num_failures, dict(sampler.problems)) == ({"good": 0, "bad": 2}, {"bad": "bad: out of order"})
    clock.s = 4.0
    assert sampler.read_due(bad) == 2.0
    assert sampler.problems == {}


def test_the_configuration_names_the_sources(tmp_path: Path) -> None:
    text = 'cell = "c"\n[sources.host]\nevery_s = 2.0\n[sources.command]\nargv = ["x"]\n[sources.static]\npath = "s"\n'
    sources = open_sources(settings_of(text, folder=tmp_path).sources)
    assert [(source.name, source.every_s) for source in sources] == [("host", 2.0), ("static", 1.0), ("command", 1.0)]
