"""Memory that runs out and models that fail: optional work gives way, base work is scored by whatever still can."""

from typing import Any

import numpy as np
import pytest

from ranking.consumer.costs import CostBook, CostPrior
from ranking.consumer.executor import Ends, Executor
from ranking.consumer.permit import Permit
from ranking.consumer.planner import PlanSettings
from ranking.consumer.progress import Progress
from ranking.consumer.scoring import GROWS_AFTER_CALLS, Device
from tests.unit.ranking.consumer_fakes import FakeClock, FakeScorer, base_task, optional_task

CALL_SIZE = 256


class FullDevice(FakeScorer):
    """Runs out of memory in calls of more than ``holds`` candidates, and where told to in encoding."""

    def __init__(self, clock: FakeClock, *, holds: int = 10**9, encodes: bool = True, version: str = "v1") -> None:
        super().__init__(clock)
        self.holds = holds
        self.encodes = encodes
        self.version = version
        self.tried: list[int] = []

    def prepare(self, users: Any) -> Any:
        if not self.encodes:
            raise MemoryError
        return super().prepare(users)

    def score_chunk(self, encoded: Any, chunk: Any) -> Any:
        self.tried.append(len(chunk))
        if len(chunk) > self.holds:
            raise MemoryError
        return super().score_chunk(encoded, chunk)


class Bench:
    def __init__(self, scorer: FullDevice, fallback: FullDevice | None = None) -> None:
        self.clock, self.scorer = scorer.clock, scorer
        self.num_released = 0
        self.done: dict[str, Progress] = {}
        self.executor = Executor(
            Ends(
                device=Device(scorer=scorer, fallback=fallback, release=self.release),
                permit=Permit(None),
                clock_ns=self.clock,
                emit=self.emit,
            ),
            costs=CostBook(CostPrior(fixed_ns=100_000, per_candidate_ns=1_000)),
            settings=PlanSettings(call_size=CALL_SIZE),
        )

    def release(self) -> None:
        self.num_released += 1

    def emit(self, progress: Progress) -> None:
        assert progress.task.work.request_id not in self.done
        self.done[progress.task.work.request_id] = progress

    def run(self, *tasks: Any) -> dict[str, Progress]:
        self.executor.run(tasks)
        return self.done


def scores(progress: Progress) -> list[float]:
    return np.frombuffer(progress.scores(), "<f4").tolist()  # type: ignore[no-any-return]


def test_base_work_is_scored_in_smaller_calls_where_memory_is_short() -> None:
    bench = Bench(FullDevice(FakeClock(), holds=40))
    done = bench.run(*[base_task(f"b{number}", num_candidates=100) for number in range(3)])
    for progress in done.values():
        assert (progress.error, scores(progress)) == ("", list(range(100)))
        assert progress.model_version == "v1"
    assert bench.num_released > 0


def test_optional_work_gives_way_where_memory_is_short_also_for_base_work() -> None:
    bench = Bench(FullDevice(FakeClock(), holds=70))
    extras = [optional_task(f"o{number}", values=[3, 2]) for number in range(3)]
    done = bench.run(base_task("b", num_candidates=100), *extras)
    assert scores(done["b"]) == list(range(100))
    for number in range(3):
        assert done[f"o{number}"].sheds == {0: "out_of_memory", 1: "out_of_memory"}
    assert len(done) == 4
    # The next batch is tried again, and finds calls that fit.
    done = bench.run(*[optional_task(f"p{number}", values=[3, 2]) for number in range(3)])
    assert all(done[f"p{number}"].sheds == {0: "out_of_memory", 1: "out_of_memory"} for number in range(3))
    done = bench.run(*[optional_task(f"q{number}", values=[3, 2]) for number in range(3)])
    assert all(done[f"q{number}"].scored_chunks == [0, 1] for number in range(3))


@pytest.mark.parametrize("encodes", [True, False])
def test_memory_that_runs_out_in_optional_work_sheds_all_that_is_left_at_once(encodes: bool) -> None:
    bench = Bench(FullDevice(FakeClock(), holds=0, encodes=encodes))
    done = bench.run(*[optional_task(f"o{number}", values=[3, 2, 1]) for number in range(6)])
    assert [progress.sheds for progress in done.values()] == [dict.fromkeys(range(3), "out_of_memory")] * 6
    assert bench.num_released == 1
    assert len(bench.scorer.tried) == (1 if encodes else 0)


@pytest.mark.parametrize(("holds", "encodes"), [(0, True), (10**9, False)])
def test_base_work_falls_back_to_the_other_model_and_says_so(holds: int, encodes: bool) -> None:
    clock = FakeClock()
    bench = Bench(FullDevice(clock, holds=holds, encodes=encodes), FullDevice(clock, version="baseline-7"))
    done = bench.run(*[base_task(f"b{number}", num_candidates=300) for number in range(3)])
    for progress in done.values():
        assert (progress.error, progress.model_version) == ("", "baseline-7")
        assert scores(progress) == list(range(300))


def test_base_work_that_nothing_can_score_is_answered_with_the_error() -> None:
    clock = FakeClock()
    bench = Bench(FullDevice(clock, holds=0), FullDevice(clock, holds=0))
    done = bench.run(base_task("b"), optional_task("o", values=[1]))
    assert done["b"].error.startswith("MemoryError")
    assert (done["b"].scored_chunks, done["b"].scores()) == ([], b"")
    assert done["o"].sheds == {0: "out_of_memory"}


def test_one_task_is_scored_by_one_model_alone() -> None:
    """Its second call fails: what the first one scored is scored anew by the model that scores the rest."""
    clock = FakeClock()
    scorer = FullDevice(clock)
    scorer.fails = lambda _, ad_ids: bool((ad_ids >= CALL_SIZE).any())
    other = FullDevice(clock, version="other")
    done = Bench(scorer, other).run(base_task("b", num_candidates=400))
    assert (done["b"].model_version, scores(done["b"])) == ("other", list(range(400)))
    assert sum(other.tried) == 400


def test_calls_become_smaller_where_memory_is_short_and_grow_again() -> None:
    scorer = FullDevice(FakeClock(), holds=100)
    bench = Bench(scorer)
    bench.run(*[base_task(f"a{number}", num_candidates=256) for number in range(4)])
    scorer.tried.clear()
    bench.run(*[base_task(f"b{number}", num_candidates=64) for number in range(8)])
    assert max(scorer.tried) <= 100
    scorer.holds = 10**9
    for number in range(3 * GROWS_AFTER_CALLS):
        bench.run(base_task(f"c{number}", num_candidates=64))
    scorer.tried.clear()
    bench.run(*[base_task(f"d{number}", num_candidates=64) for number in range(8)])
    assert scorer.tried == [256, 256]
