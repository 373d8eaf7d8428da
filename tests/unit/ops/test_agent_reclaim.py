"""`intertidal reclaim` on a fake clock: it waits for the last ranker's word, with an agent, without one, in vain."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ops import cli
from ops.agent.claim_files import holds_in
from ops.agent.reclaim import Host, PoolReclaim, pools_of, reclaim
from ops.agent.wake import Wake, knock
from schemas.gate import FlipReason, GateError
from schemas.gate_reader import GateReader
from schemas.gate_writer import GateWriter

MS = 1_000_000
POOL = "h200-0"


class Stage:
    """A host whose agent and rankers act while the command sleeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ns = 1_000 * MS
        self.acts: list[tuple[int, Callable[[], object]]] = []
        self.writers: list[GateWriter] = []
        self.readers: list[GateReader] = []

    def agent(self, pool: str = POOL) -> GateWriter:
        self.writers.append(GateWriter(pool, folder=self.folder, clock_ns=self.clock))
        self.writers[-1].open(lease_s=60.0)
        return self.writers[-1]

    def ranker(self, pool: str = POOL) -> GateReader:
        self.readers.append(GateReader(pool, folder=self.folder, clock_ns=self.clock))
        return self.readers[-1]

    def at(self, ms: int, act: Callable[[], object]) -> None:
        self.acts.append((1_000 * MS + ms * MS, act))

    def clock(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)
        due = [entry for entry in self.acts if entry[0] <= self.now_ns]
        self.acts = [entry for entry in self.acts if entry[0] > self.now_ns]
        for _, act in due:
            act()

    def reclaim(self, *pools: str, timeout_s: float | None = 5.0) -> list[PoolReclaim]:
        host = Host(folder=self.folder, clock_ns=self.clock, wall_ms=lambda: 10_000, sleep=self.sleep)
        done = reclaim(pools or (POOL,), host, for_s=60.0, reason="launch", timeout_s=timeout_s)
        assert done.is_drained == all(each.state == "drained" for each in done.pools)
        return done.pools

    def acknowledge(self, reader: GateReader, chunk_end_ms: int) -> None:
        reader.acknowledge(reader.generation, last_chunk_end_ns=1_000 * MS + chunk_end_ms * MS, drained_ns=self.now_ns)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "run")
    yield stage
    for reader in stage.readers:
        reader.close()
    for writer in stage.writers:
        writer.shutdown()


def test_it_returns_when_the_last_ranker_has_given_its_memory_back(stage: Stage) -> None:
    agent = stage.agent()
    first, second = stage.ranker(), stage.ranker()
    stage.at(10, agent.close)
    stage.at(14, lambda: stage.acknowledge(first, 12))
    stage.at(40, lambda: stage.acknowledge(second, 20))
    (pool,) = stage.reclaim()
    assert pool == PoolReclaim(
        pool=POOL,
        state="drained",
        had_agent=True,
        waited_ms=40.0,
        closed_ms=10.0,
        last_chunk_ms=10.0,
        drained_ms=30.0,
        num_rankers=2,
        dead_pids=[],
        pending_pids=[],
    )
    (hold,) = holds_in(stage.folder, 10_000)
    assert (hold.pools, hold.reason, hold.ends_ms) == ((POOL,), "launch", 70_000)


def test_a_gate_that_is_just_being_flipped_is_not_taken_for_closed(stage: Stage) -> None:
    agent = stage.agent()
    # Attached while it is open: of the closing before it owes no word, of the one under way it does.
    ranker = stage.ranker()
    stage.at(10, lambda: agent._file.put_open(False))
    stage.at(20, lambda: agent._flip_closed(agent._file, FlipReason.RECLAIMED))
    stage.at(30, lambda: stage.acknowledge(ranker, 25))
    assert stage.reclaim()[0].waited_ms == 30.0


def test_a_pool_that_was_closed_before_is_free_at_once_or_when_its_rankers_are(stage: Stage) -> None:
    agent = stage.agent()
    ranker = stage.ranker()
    agent.close()
    stage.at(6, lambda: stage.acknowledge(ranker, 0))
    (pool,) = stage.reclaim()
    assert (pool.state, pool.waited_ms, pool.closed_ms) == ("drained", 6.0, 0.0)
    assert stage.reclaim()[0].waited_ms == 0.0


def test_several_pools_are_taken_at_once_and_the_last_is_waited_for(stage: Stage) -> None:
    one, other = stage.agent("a"), stage.agent("b")
    stage.at(10, one.close)
    stage.at(30, other.close)
    assert [(each.pool, each.state, each.waited_ms) for each in stage.reclaim("a", "b")] == [
        ("a", "drained", 10.0),
        ("b", "drained", 30.0),
    ]
    assert pools_of(stage.folder) == ["a", "b"]


def test_what_does_not_happen_in_time_is_said_as_it_is(stage: Stage) -> None:
    agent = stage.agent()
    stage.ranker()
    (pool,) = stage.reclaim(timeout_s=0.1)
    assert (pool.state, pool.closed_ms, pool.waited_ms) == ("open", None, 100.0)
    agent.close()
    (pool,) = stage.reclaim(timeout_s=0.1)
    assert (pool.state, len(pool.pending_pids), pool.drained_ms) == ("draining", 1, None)


def test_without_an_agent_the_gate_is_closed_from_here_and_rankers_are_waited_for(stage: Stage) -> None:
    stage.agent()._file.close()
    stage.writers.clear()
    ranker = stage.ranker()
    assert ranker.is_open()
    stage.at(8, lambda: stage.acknowledge(ranker, 4))
    (pool,) = stage.reclaim()
    assert (pool.state, pool.had_agent, pool.waited_ms, pool.closed_ms) == ("drained", False, 8.0, 0.0)
    assert (ranker.is_open(), ranker.reason) == (False, FlipReason.AGENT_RESTARTED)
    # The lock is let go: the next agent can take it.
    stage.agent()


def test_a_pool_without_a_gate_is_refused_before_anything_is_done(stage: Stage) -> None:
    stage.agent()
    with pytest.raises(GateError, match=r"other\.gate: does not exist"):
        stage.reclaim(POOL, "other")
    assert list(holds_in(stage.folder, 10_000)) == []


def test_a_knock_wakes_the_agent_however_long_its_folders_name_is(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    assert not knock(folder)
    wake = Wake()
    wake.open_door(folder)
    assert knock(folder)
    wake.wait(600.0)
    wake.set()
    wake.wait(600.0)
    wake.close()
    assert not knock(folder)
    assert not knock(tmp_path / "none")


def test_the_command_says_how_long_it_took_and_gives_up_what_it_held(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with GateWriter(POOL, folder=tmp_path / "run"):
        told = ["--runtime-dir", str(tmp_path / "run")]
        assert cli.main(["reclaim", POOL, "--wait", *told]) == 0
        assert "h200-0: free after " in capsys.readouterr().out
        assert cli.main(["reclaim", "--all", "--json", "--wait", *told]) == 0
        assert msgspec.json.decode(capsys.readouterr().out)["pools"][0]["state"] == "drained"
        assert cli.main(["reclaim", "--all", "--release", *told]) == 0
        assert capsys.readouterr().out == "h200-0: given up\n"
    assert list(holds_in(tmp_path / "run", 0)) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("p", "--for", "32d"), 2, "31 days"),
        ((), 2, "POOL"),
        (("p", "--all"), 2, "POOL"),
        (("p", "--timeout", "5"), 2, "no duration"),
        (("p",), 1, "does not exist"),
        (("--all",), 1, "no gates"),
        (("../p",), 1, "pool '../p'"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: tuple[str, ...], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reclaim", *arguments, "--runtime-dir", str(tmp_path)]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_folder_that_takes_no_claim_is_said_and_nothing_is_left_in_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.agent()

    def full(path: Path, _data: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(GateError, match=rf"{stage.folder}.*No space left on device.*SIGUSR1"):
        stage.reclaim()
    assert not [path.name for path in stage.folder.iterdir() if ".hold." in path.name]
