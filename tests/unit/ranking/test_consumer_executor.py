"""The executor: base first, a look before every optional chunk, and every task answered exactly once."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking.consumer.costs import CostBook, CostPrior
from ranking.consumer.executor import Ends, Executor, OptionalCall
from ranking.consumer.permit import Permit
from ranking.consumer.planner import PlanSettings
from ranking.consumer.progress import Progress
from ranking.consumer.scoring import Device
from tests.unit.ranking.consumer_fakes import MS, FakeClock, FakeGate, FakeScorer, base_task, optional_task

# What the fake scorer really takes, so that predictions hold unless a test says otherwise.
TRUE_COST = CostPrior(fixed_ns=100_000, per_candidate_ns=1_000)


class Bench:
    """An executor with everything around it faked; `emitted` holds (time, progress) in the order of the answers."""

    def __init__(
        self, *, gate_flips_ns=(), starts_open=True, prior=TRUE_COST, call_size=256, arrivals=(), answer_ns=0, **scorer
    ):
        self.clock = FakeClock()
        self.answer_ns = answer_ns
        self.scorer = FakeScorer(self.clock, **scorer)
        self.gate = FakeGate(self.clock, *gate_flips_ns, is_open=starts_open)
        self.permit = Permit(self.gate, clock_ns=self.clock)
        self.arrivals = sorted(arrivals, key=lambda arrival: arrival[0])
        self.emitted: list[tuple[int, Progress]] = []
        self.optional_calls: list[OptionalCall] = []
        self.executor = Executor(
            Ends(
                device=Device(scorer=self.scorer),
                permit=self.permit,
                clock_ns=self.clock,
                emit=self.emit,
                peek=self.peek,
                on_call=self.optional_calls.append,
            ),
            costs=CostBook(prior),
            settings=PlanSettings(call_size=call_size, budget_ns=1_000 * MS),
        )

    def emit(self, progress):
        self.emitted.append((self.clock(), progress))
        self.clock.now_ns += self.answer_ns

    def peek(self):
        arrived = [task for at_ns, task in self.arrivals if at_ns <= self.clock()]
        self.arrivals = [arrival for arrival in self.arrivals if arrival[0] > self.clock()]
        return arrived

    def run(self, *tasks):
        self.executor.run(tasks)
        return {progress.task.work.request_id: progress for _, progress in self.emitted}

    def order(self):
        return [progress.task.work.request_id for _, progress in self.emitted]


def scores(progress):
    return np.frombuffer(progress.scores(), "<f4").tolist()


def test_base_work_is_scored_in_full_calls_and_answered_as_it_is_complete():
    bench = Bench(call_size=256)
    done = bench.run(*[base_task(f"b{n}", num_candidates=100, answer_by_ms=10 + n) for n in range(4)])
    assert [n for _, n in bench.scorer.calls] == [200, 200]
    assert [at_ns for at_ns, _ in bench.emitted] == [300_000, 300_000, 600_000, 600_000]
    assert scores(done["b3"]) == list(range(100))
    assert bench.scorer.num_prepared == 4


def test_a_large_base_task_is_cut_into_calls_of_bounded_size():
    bench = Bench(call_size=256)
    done = bench.run(base_task("b", num_candidates=1_000, chunk_size=300))
    assert [n for _, n in bench.scorer.calls] == [256, 256, 256, 232]
    assert done["b"].scored_chunks == [0, 1, 2, 3]
    assert scores(done["b"]) == list(range(1_000))


def test_base_work_goes_before_optional_work_and_late_base_work_after_the_rest():
    bench = Bench()
    bench.run(
        optional_task("o", values=[5, 5]),
        base_task("late", answer_by_ms=-1),
        base_task("far", answer_by_ms=50),
        base_task("near", answer_by_ms=20),
    )
    assert bench.order() == ["near", "far", "late", "o"]


def test_late_base_work_is_scored_and_never_shed():
    bench = Bench()
    done = bench.run(*[base_task(f"b{n}", answer_by_ms=-5) for n in range(5)])
    assert all(progress.scored_chunks == [0] for progress in done.values())
    assert len(done) == 5


def test_optional_chunks_run_by_value_and_the_user_is_encoded_once():
    bench = Bench(call_size=64)
    done = bench.run(optional_task("a", values=[1, 9]), optional_task("b", values=[5, 7]))
    assert bench.scorer.num_prepared == 2
    assert bench.order() == ["b", "a"]
    assert done["a"].scored_chunks == done["b"].scored_chunks == [0, 1]
    assert scores(done["a"]) == list(range(128))


def test_chunks_of_several_requests_share_a_call():
    bench = Bench(call_size=256)
    bench.run(*[optional_task(f"o{n}", values=[5, 4]) for n in range(4)])
    assert [n for _, n in bench.scorer.calls] == [256, 256]


def test_a_closed_gate_sheds_everything_without_scoring_or_encoding():
    bench = Bench(starts_open=False)
    done = bench.run(optional_task("o", values=[5, 5]), base_task("b"))
    assert done["o"].sheds == {0: "gate_closed", 1: "gate_closed"}
    assert done["b"].scored_chunks == [0]
    assert bench.scorer.num_prepared == 1


def test_a_gate_that_closes_stops_optional_work_within_one_call_and_the_rest_is_answered_at_once():
    closes_ns = 500_000
    bench = Bench(gate_flips_ns=(closes_ns,), call_size=64)
    done = bench.run(*[optional_task(f"o{n}", values=[9, 1]) for n in range(10)])
    assert [start_ns for start_ns, _ in bench.scorer.calls] == [0, 164_000, 328_000, 492_000]
    assert {at_ns for at_ns, progress in bench.emitted} == {656_000}
    assert done["o0"].scored_chunks == [0]
    assert done["o0"].sheds == {1: "gate_closed"}
    assert done["o9"].sheds == {0: "gate_closed", 1: "gate_closed"}
    # Acknowledged with the generation of the closing and the true end of the last chunk.
    assert bench.gate.acknowledged == [(2, 656_000, 656_000)]


def test_the_gate_closing_between_encoding_and_the_first_chunk_stops_it():
    bench = Bench(gate_flips_ns=(10_000,), prepare_ns=20_000)
    done = bench.run(optional_task("o", values=[5]))
    assert bench.scorer.calls == []
    assert done["o"].sheds == {0: "gate_closed"}
    assert bench.gate.acknowledged == [(2, 20_000, 20_000)]


def test_the_gate_closing_while_other_answers_are_sent_stops_the_encoding():
    bench = Bench(gate_flips_ns=(10_000,), answer_ns=20_000)
    done = bench.run(optional_task("gone", values=[5], answer_by_ms=0), optional_task("o", values=[5]))
    assert done["gone"].sheds == {0: "expired"}
    assert done["o"].sheds == {0: "gate_closed"}
    assert bench.scorer.num_prepared == 0


def test_draining_sheds_what_is_left():
    bench = Bench()
    bench.permit.drain()
    done = bench.run(optional_task("o", values=[5]), base_task("b"))
    assert done["o"].sheds == {0: "draining"}
    assert done["b"].scored_chunks == [0]


def test_base_work_that_arrives_between_chunks_goes_first():
    arrival = (1, base_task("b", answer_by_ms=2))
    bench = Bench(call_size=64, arrivals=[arrival])
    bench.run(*[optional_task(f"o{n}", values=[5] * 4) for n in range(4)])
    at_ns = next(at_ns for at_ns, progress in bench.emitted if progress.task.is_base)
    # One optional call of 64 was under way, then the two base calls: no more than one chunk of delay.
    assert at_ns == 164_000 + 164_000 + 136_000


def test_base_work_in_time_overtakes_a_late_backlog():
    backlog = [base_task(f"late{n}", num_candidates=200, answer_by_ms=-1) for n in range(5)]
    bench = Bench(arrivals=[(1, base_task("fresh", answer_by_ms=50))])
    bench.run(*backlog)
    assert bench.order()[:2] == ["late0", "fresh"]
    assert len(bench.order()) == 6


def test_a_task_about_to_be_late_is_answered_with_what_it_has():
    """The scorer is four times as slow as it is believed to be, and the task's last chunk stands far behind."""
    bench = Bench(call_size=64, fixed_ns=400_000, per_candidate_ns=4_000)
    done = bench.run(
        optional_task("short", values=[9, 1], answer_by_ms=1.5), optional_task("long", values=[5] * 4, answer_by_ms=200)
    )
    short_at_ns = next(at_ns for at_ns, p in bench.emitted if p.task.work.request_id == "short")
    assert short_at_ns <= 1.5 * MS
    assert (done["short"].scored_chunks, done["short"].sheds) == ([0], {1: "deadline"})
    assert done["long"].scored_chunks == [0, 1, 2, 3]


def test_a_tight_chunk_runs_in_a_smaller_call_rather_than_not_at_all():
    bench = Bench(call_size=256)
    done = bench.run(
        optional_task("tight", values=[9], answer_by_ms=0.2), optional_task("loose", values=[1] * 3, answer_by_ms=50)
    )
    assert done["tight"].scored_chunks == [0]
    assert [n for _, n in bench.scorer.calls] == [64, 192]


def test_expired_work_is_never_run():
    bench = Bench()
    done = bench.run(optional_task("o", values=[5, 5], answer_by_ms=0))
    assert done["o"].sheds == {0: "expired", 1: "expired"}
    assert bench.scorer.calls == []


def has_marked_user(users_BF, _ad_ids):
    return bool((users_BF[:, 0] == 1.0).any())


MARKED = np.array([1, 0, 0, 0], dtype="<f4").tobytes()


def test_one_task_that_cannot_be_scored_takes_no_other_with_it():
    bench = Bench(fails=has_marked_user)
    done = bench.run(
        base_task("bad-base", user_features=MARKED),
        *[base_task(f"b{n}") for n in range(3)],
        optional_task("bad", values=[9, 9], user_features=MARKED),
        *[optional_task(f"o{n}", values=[5, 5]) for n in range(3)],
    )
    assert "RuntimeError: the model cannot score this" in done["bad-base"].error
    assert done["bad"].sheds == {0: "model_error", 1: "model_error"}
    for name in ("b0", "b1", "b2"):
        assert (done[name].error, done[name].scored_chunks) == ("", [0])
    for name in ("o0", "o1", "o2"):
        assert done[name].scored_chunks == [0, 1]
    assert len(bench.emitted) == 8


def test_users_of_different_width_are_told_apart():
    bench = Bench()
    done = bench.run(base_task("good"), base_task("wide", user_features=b"\0" * 64), base_task("other"))
    # The fake takes any width; only together they cannot be encoded.
    assert all(progress.scored_chunks == [0] for progress in done.values())


TASKS = st.lists(
    st.one_of(
        st.builds(
            lambda values, chunk, answer_by_ms, marked: dict(
                values=values,
                chunk_size=chunk,
                answer_by_ms=answer_by_ms,
                **({"user_features": MARKED} if marked else {}),
            ),
            st.lists(st.integers(0, 9), min_size=1, max_size=6),
            st.sampled_from([1, 64, 300]),
            st.sampled_from([-1, 0.3, 1, 5, 100]),
            st.booleans(),
        ),
        st.builds(
            lambda n, answer_by_ms, marked: dict(
                num_candidates=n, answer_by_ms=answer_by_ms, **({"user_features": MARKED} if marked else {})
            ),
            st.integers(1, 700),
            st.sampled_from([-1, 1, 100]),
            st.booleans(),
        ),
    ),
    max_size=10,
)


def task_of(number, fields):
    return (optional_task if "values" in fields else base_task)(f"t{number:02}", **fields)


@given(
    TASKS,
    TASKS,
    st.lists(st.integers(0, 4 * MS), max_size=4),
    st.booleans(),
    st.sampled_from([0.25, 1.0, 4.0]),
)
def test_every_chunk_ends_once_and_none_starts_behind_a_closed_gate(batch, arriving, flips, starts_open, belief):
    arrivals = [
        (number * 400_000, base_task(f"a{number:02}", **fields))
        for number, fields in enumerate(arriving)
        if "values" not in fields
    ]
    prior = CostPrior(fixed_ns=100_000 * belief, per_candidate_ns=1_000 * belief)
    bench = Bench(
        gate_flips_ns=tuple(sorted(set(flips))),
        starts_open=starts_open,
        prior=prior,
        arrivals=arrivals,
        fails=has_marked_user,
    )
    tasks = [task_of(number, fields) for number, fields in enumerate(batch)]
    taken = len(bench.arrivals)
    bench.run(*tasks)
    taken -= len(bench.arrivals)

    assert len(bench.emitted) == len(tasks) + taken
    assert max(Counter(bench.order()).values(), default=1) == 1
    for _, progress in bench.emitted:
        task = progress.task
        if task.is_base:
            marked = task.work.user_features == MARKED
            assert progress.sheds == {}
            assert bool(progress.error) == marked
            assert marked or progress.scored_chunks == list(range(task.num_chunks))
        else:
            assert not progress.error
            assert sorted([*progress.scored_chunks, *progress.sheds]) == list(range(task.num_chunks))
            assert len(progress.scores()) == 4 * progress.num_scored
    for call in bench.optional_calls:
        assert bench.gate.is_open(call.looked_ns)
    num_optional_scored = sum(call.num_candidates for call in bench.optional_calls)
    assert num_optional_scored >= sum(p.num_scored for _, p in bench.emitted if not p.task.is_base)


@given(TASKS)
def test_base_work_is_answered_as_if_it_were_alone(batch):
    """With an exact clock: nothing optional in the batch may move a base answer by a nanosecond."""
    tasks = [task_of(number, fields) for number, fields in enumerate(batch)]

    def base_times(chosen):
        bench = Bench()
        bench.run(*chosen)
        return [(at_ns, p.task.work.request_id) for at_ns, p in bench.emitted if p.task.is_base]

    assert base_times(tasks) == base_times([task for task in tasks if task.is_base])


def test_predictions_follow_the_measured_cost():
    bench = Bench(prior=CostPrior(fixed_ns=10_000_000, per_candidate_ns=0), call_size=256)
    for number in range(300):
        bench.run(base_task(f"b{number}", num_candidates=256))
    assert bench.executor.rates().candidate_ns == pytest.approx((100_000 + 256_000) / 256, rel=0.1)
