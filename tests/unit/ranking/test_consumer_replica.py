"""A replica without its broker: answers, pressure, intervals, and the rules of what it believes."""

import numpy as np
import pytest

from ranking.callers_mistake import mistake_in
from ranking.consumer.answers import Identity
from ranking.consumer.costs import CostBook, CostPrior
from ranking.consumer.executor import OptionalCall
from ranking.consumer.options import RankerOptions
from ranking.consumer.permit import Permit
from ranking.consumer.planner import PlanSettings
from ranking.consumer.pressure import HALF_LIFE_NS, PressureGauge
from ranking.consumer.progress import Progress
from ranking.consumer.replica import Replica, ReplicaEnds, ReplicaSettings
from ranking.consumer.scoring import Device
from ranking.consumer.task import MAX_OPTIONAL_CHUNK, IntakeLimits, Moment, Task, task_of
from ranking.consumer.trace import CallTrace
from ranking.consumer.warm_up import warm_up
from schemas.errors import RecordError
from schemas.framing import decode_as, encode
from schemas.records import RankingAnswer
from schemas.records.ranking import MAX_CANDIDATES
from schemas.settings import TimeSettings
from schemas.topics import Namespace
from tests.unit.ranking.consumer_fakes import (
    MS,
    NUM_FEATURES,
    FakeClock,
    FakeGate,
    FakeScorer,
    base_task,
    optional_task,
)

PRIOR = CostPrior(fixed_ns=100_000, per_candidate_ns=1_000)


class Bench:
    def __init__(self, *, routes=("baseline", "wide"), gate_flips_ns=(), starts_open=True, num_features=None, **scorer):
        self.clock = FakeClock()
        self.gate = FakeGate(self.clock, *gate_flips_ns, is_open=starts_open)
        self.scorer = FakeScorer(self.clock, **scorer)
        self.arrivals: list[Task] = []
        self.answers: list[RankingAnswer] = []
        self.replica = Replica(
            ReplicaEnds(
                device=Device(scorer=self.scorer),
                permit=Permit(self.gate, clock_ns=self.clock),
                clock_ns=self.clock,
                send=lambda _task, answer: self.answers.append(answer),
                peek=lambda: [self.arrivals.pop()] if self.arrivals else [],
            ),
            costs=CostBook(PRIOR),
            settings=ReplicaSettings(
                identity=Identity(ranker_id="ranker-1", epoch_ms=1_000),
                cell="us-east",
                routes=routes,
                num_features=num_features,
            ),
        )

    def run(self, *tasks):
        self.replica.run(tasks)
        return {answer.request_id: answer for answer in self.answers}


def test_an_answer_says_what_was_scored_what_was_shed_and_why():
    bench = Bench(gate_flips_ns=(150_000,))
    task = optional_task("o", values=[9, 8, 7], chunk_size=200, arrived_ms=-25, taken_ms=-20, attempt=2)
    answer = bench.run(task)["o"]
    assert decode_as(encode(answer), RankingAnswer) == answer
    assert (answer.attempt, answer.route, answer.lever, answer.cell) == (2, "wide", "rma", "us-east")
    assert (answer.ranker, answer.ranker_epoch_ms, answer.model_version) == ("ranker-1", 1_000, "v1")
    assert answer.scored_chunks == [0]
    assert np.frombuffer(answer.scores, "<f4").tolist() == list(range(200))
    assert [(s.chunk, s.reason, s.num_candidates, s.value_micro) for s in answer.sheds] == [
        (1, "gate_closed", 200, 8),
        (2, "gate_closed", 200, 7),
    ]
    assert (answer.queue_wait_us, answer.busy_us, answer.pressure) == (5_000, 300, 1.0)


def test_a_backlog_is_dropped_without_a_plan_while_fresh_work_is_done():
    bench = Bench()
    old = [optional_task(f"old{n}", values=[9, 9], arrived_ms=-500, answer_by_ms=-30) for n in range(20)]
    answers = bench.run(*old, optional_task("fresh", values=[1]), base_task("late", answer_by_ms=-30))
    assert all({s.reason for s in answers[f"old{n}"].sheds} == {"backlog"} for n in range(20))
    assert answers["fresh"].scored_chunks == [0]
    assert answers["late"].scored_chunks == [0]
    assert bench.scorer.num_prepared == 2


def test_a_scoring_error_answers_base_work_and_sheds_optional_work():
    bench = Bench(fails=lambda users, ads: True)
    answers = bench.run(base_task("b"), optional_task("o", values=[3]))
    assert answers["b"].error.startswith("RuntimeError")
    assert (answers["b"].scored_chunks, answers["b"].scores) == ([], b"")
    assert [s.reason for s in answers["o"].sheds] == ["model_error"]
    assert answers["o"].error == ""


def test_a_user_that_the_model_does_not_take_is_named_and_fails_nobody_else():
    bench = Bench(num_features=NUM_FEATURES)
    wrong = np.zeros(3, dtype="<f4").tobytes()
    answers = bench.run(
        base_task("good", num_candidates=10),
        base_task("wrong", num_candidates=10, user_features=wrong),
        optional_task("extras", values=[1], user_features=wrong),
    )
    assert mistake_in(answers["wrong"].error) == f"user_features holds 3 values, v1 takes {NUM_FEATURES}"
    assert answers["wrong"].scores == b""
    assert [shed.reason for shed in answers["extras"].sheds] == ["error"]
    assert (answers["good"].error, answers["good"].scored_chunks) == ("", [0])
    # The good one was not even tried a second time.
    assert bench.scorer.calls == [(0, 10)]


def test_a_failure_is_no_mistake_of_the_caller():
    bench = Bench(fails=lambda users, ad_ids: True)
    assert mistake_in(bench.run(base_task("b"))["b"].error) == ""


def test_pressure_is_full_behind_a_closed_gate_on_opportunistic_routes_alone():
    bench = Bench(gate_flips_ns=(1,), starts_open=True)
    bench.clock.now_ns = 10
    assert not bench.replica.idle()
    answers = bench.run(base_task("b"), optional_task("o", values=[3]))
    assert answers["o"].pressure == 1.0
    assert answers["b"].pressure < 0.5
    [interval] = bench.replica.close_interval(2_000, num_waiting=0, cpu_share=0.0)
    assert {route.route: route.pressure == 1.0 for route in interval.routes} == {"baseline": False, "wide": True}


def test_an_interval_counts_the_work_of_each_route_and_cell():
    bench = Bench()
    bench.run(
        base_task("b", num_candidates=100),
        optional_task("o", values=[9, 8], arrived_ms=-10, taken_ms=-4),
        optional_task("other", values=[1], cell="eu-west"),
        optional_task("gone", values=[1], answer_by_ms=-30),
    )
    own, other = bench.replica.close_interval(2_000, num_waiting=3, cpu_share=0.5)
    assert (own.cell, own.part, own.source, own.seq, own.num_waiting) == ("us-east", "ranker", "ranker-1", 0, 3)
    assert own.accounts == []
    baseline, wide = own.routes
    assert (baseline.num_work, baseline.num_answered, baseline.units_done) == (1, 1, 100)
    assert (wide.num_work, wide.num_answered, wide.num_late, wide.units_done) == (2, 2, 1, 128)
    assert wide.queue_wait.count == wide.latency.count == 2
    assert baseline.busy_us == 200
    assert (other.cell, other.routes[0].units_done, other.num_waiting) == ("eu-west", 64, 0)
    # Idle: the own cell alone, numbered on, with its routes, so that silence of a live replica is not its death.
    [idle] = bench.replica.close_interval(3_000, num_waiting=0, cpu_share=0.0)
    assert (idle.cell, idle.seq, idle.interval_ms) == ("us-east", 1, 1_000)
    assert [(route.route, route.model_version) for route in idle.routes] == [("baseline", "v1"), ("wide", "v1")]
    # Numbering of the other cell goes on where it was.
    bench.run(optional_task("again", values=[1], cell="eu-west"))
    assert [record.seq for record in bench.replica.close_interval(4_000, num_waiting=0, cpu_share=0.0)] == [2, 1]


def test_base_work_that_peek_brings_is_counted_like_the_rest():
    bench = Bench()
    bench.arrivals = [base_task("b")]
    answers = bench.run(optional_task("o", values=[9, 8]))
    assert answers["b"].scored_chunks == [0]
    [interval] = bench.replica.close_interval(2_000, num_waiting=0, cpu_share=0.0)
    assert [(route.route, route.num_work) for route in interval.routes] == [("baseline", 1), ("wide", 1)]


def test_draining_sheds_optional_work_with_its_reason():
    bench = Bench()
    bench.replica.drain()
    assert not bench.replica.idle()
    answers = bench.run(optional_task("o", values=[3]), base_task("b"))
    assert [s.reason for s in answers["o"].sheds] == ["draining"]
    assert answers["b"].scored_chunks == [0]


class TestPermit:
    def test_without_a_gate_optional_work_may_run_until_draining(self):
        permit = Permit(None)
        assert permit.look(0) is None
        permit.drain()
        assert permit.look(0) == "draining"

    def test_a_closing_is_acknowledged_once_after_memory_was_given_back(self):
        clock = FakeClock()
        gate = FakeGate(clock, 50, is_open=True)

        def release():
            clock.now_ns += 7

        permit = Permit(gate, clock_ns=clock, release=release)
        assert permit.look(0) is None
        clock.now_ns = 40
        permit.ended(40)
        clock.now_ns = 60
        assert permit.look(60) == "gate_closed"
        assert permit.look(70) == "gate_closed"
        assert gate.acknowledged == [(2, 40, 67)]

    def test_a_closing_from_before_it_came_asks_nothing_of_it(self):
        clock = FakeClock(100)
        gate = FakeGate(clock, 50, is_open=True)
        permit = Permit(gate, clock_ns=clock)
        assert permit.look(100) == "gate_closed"
        assert gate.acknowledged == []

    def test_a_lease_that_ran_out_stops_work_and_is_acknowledged_when_the_agent_closes(self):
        clock = FakeClock()
        gate = FakeGate(clock, 10, is_open=False)
        permit = Permit(gate, clock_ns=clock)
        clock.now_ns = 20
        assert permit.look(20) is None
        gate.lease_ended = True
        assert permit.look(20) == "gate_closed"
        assert permit.is_stopped
        assert gate.acknowledged == []
        gate.flips_ns.append(20)
        assert permit.look(20) == "gate_closed"
        assert gate.acknowledged == [(2, 0, 20)]


class TestPressure:
    def test_it_is_the_share_of_the_time_that_is_used_up(self):
        gauge = PressureGauge()
        gauge.observe([optional_task("o", values=[1], arrived_ms=-20, answer_by_ms=80)], now_ns=0, ahead_ns=30 * MS)
        assert gauge.value(0) == pytest.approx(0.5)

    def test_it_rises_at_once_and_falls_slowly(self):
        gauge = PressureGauge()
        pressed = [optional_task("o", values=[1], arrived_ms=-90, answer_by_ms=10)]
        calm = [optional_task("o", values=[1], arrived_ms=0, answer_by_ms=100)]
        gauge.observe(pressed, now_ns=0, ahead_ns=0)
        assert gauge.value(0) == pytest.approx(0.9)
        gauge.observe(calm, now_ns=0, ahead_ns=0)
        assert gauge.value(0) == pytest.approx(0.9 * 0.7)
        assert gauge.value(HALF_LIFE_NS) == pytest.approx(0.9 * 0.7 / 2)

    def test_it_stays_in_its_bounds(self):
        gauge = PressureGauge()
        assert gauge.value(5) == 0.0
        gauge.observe([], now_ns=0, ahead_ns=MS)
        assert gauge.value(5) == 0.0
        gauge.observe([optional_task("o", values=[1], arrived_ms=-90, answer_by_ms=-95)], now_ns=0, ahead_ns=0)
        assert gauge.value(0) == 1.0


class TestIntake:
    LIMITS = IntakeLimits(num_reply_partitions=8, margin_ms=3.0)
    MOMENT = Moment(now_ns=1_000 * MS, broker_ms=50_000.0)

    def take(self, work, route):
        return task_of(work, route=route, partition=4, append_ms=49_990, moment=self.MOMENT, limits=self.LIMITS)

    def test_times_move_from_the_brokers_clock_to_the_monotonic_one(self):
        task = self.take(optional_task("o", values=[1, 2], deadline_ms=50_100).work, "wide")
        assert (task.arrived_ns, task.taken_ns) == (990 * MS, 1_000 * MS)
        assert task.answer_by_ns == 1_097 * MS
        assert (task.partition, task.num_candidates, task.num_chunks) == (4, 128, 2)
        assert self.take(base_task("b", deadline_ms=50_100).work, "baseline").answer_by_ns == 1_100 * MS

    @pytest.mark.parametrize(
        ("work", "route", "reason", "field"),
        [
            (base_task("b").work, "wide", "invalid_field", "route"),
            (base_task("b", lever="rma").work, "baseline", "invalid_field", "lever"),
            (optional_task("o", values=[1], lever=None).work, "wide", "invalid_field", "lever"),
            (base_task("b", reply_partition=8).work, "baseline", "invalid_field", "reply_partition"),
            (base_task("b", num_candidates=MAX_CANDIDATES + 1).work, "baseline", "too_large", "ad_ids"),
            (
                optional_task("o", values=[1], chunk_size=MAX_OPTIONAL_CHUNK + 1).work,
                "wide",
                "too_large",
                "chunk_size",
            ),
        ],
    )
    def test_work_that_cannot_be_believed_is_refused(self, work, route, reason, field):
        with pytest.raises(RecordError) as refused:
            self.take(work, route)
        assert (refused.value.reason, refused.value.field) == (reason, field)


def test_no_chunk_ends_twice():
    progress = Progress(optional_task("o", values=[1, 2], chunk_size=2))
    progress.put(0, np.zeros(2, dtype=np.float32))
    with pytest.raises(AssertionError):
        progress.shed(0, "value")
    progress.shed(1, "value")
    with pytest.raises(AssertionError):
        progress.shed(1, "deadline")
    assert progress.is_complete


def test_warming_up_runs_the_model_and_teaches_its_cost():
    clock = FakeClock()
    scorer = FakeScorer(clock, fixed_ns=50_000, per_candidate_ns=300)
    costs = CostBook(CostPrior())
    before = costs.of("v1").predict_ns(256)
    warm_up(scorer, costs=costs, clock_ns=clock, num_features=4, call_size=256)
    assert scorer.calls
    assert max(n for _, n in scorer.calls) == 256
    assert costs.of("v1").predict_ns(256) < before / 2


def test_a_trace_is_one_line_a_call(tmp_path):
    trace = CallTrace(tmp_path / "trace")
    trace.note(OptionalCall(1, 2, 256))
    trace.note(OptionalCall(3, 4, 0))
    trace.flush()
    assert (tmp_path / "trace").read_text().splitlines() == [
        '{"looked_ns": 1, "end_ns": 2, "num_candidates": 256}',
        '{"looked_ns": 3, "end_ns": 4, "num_candidates": 0}',
    ]
    trace.close()


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        ({"routes": ()}, "routes"),
        ({"routes": ("wide", "wide")}, "routes"),
        ({"routes": ("sideways",)}, "sideways"),
        ({"routes": ("baseline", "powerful")}, "together"),
        ({"routes": ("wide",), "static_member": True}, "static"),
        ({"margin_ms": -1.0}, "margin_ms"),
        ({"notice_s": 0.0}, "notice_s"),
    ],
)
def test_options_that_do_not_go_together_are_refused(overrides, word, tmp_path):
    given = {"routes": ("baseline",), **overrides}
    with pytest.raises(ValueError, match=word):
        RankerOptions(
            namespace=Namespace(),
            time=TimeSettings(),
            ranker_id="ranker-1",
            cell="us-east",
            bundle=tmp_path,
            plan=PlanSettings(),
            **given,
        )
