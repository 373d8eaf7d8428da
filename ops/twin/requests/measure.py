"""Measures what the twin takes for granted of a replica: the time that scoring and all beside it take on this machine.

    python -m ops.twin.requests.measure

1. Single calls of the baseline bundle on one thread, for several numbers of candidates: call_ns + candidate_ns n.
2. Whole batches of the real replica, records read from their bytes and answers framed, for several numbers of tasks:
   what is left beside their calls, batch_ns + task_ns m.

Each figure is the least CPU time of many rounds, as a neighbour on the machine can only slow one down; the lines are
fits by least squares of relative errors. They are printed, and beside them what they say of each size.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np

from ops.simulator.requests import ranking_request
from ops.simulator.world import World, WorldConfig
from ops.twin.requests.curve import ServiceCurve
from ranking.consumer.answers import Identity
from ranking.consumer.costs import CostBook
from ranking.consumer.permit import Permit
from ranking.consumer.replica import Replica, ReplicaEnds, ReplicaSettings
from ranking.consumer.scoring import Device
from ranking.consumer.task import IntakeLimits, Moment, Task, task_of
from ranking.models.inputs import CandidateChunk, Users
from ranking.models.load import load_baseline
from ranking.models.protocol import EncodedUsers
from ranking.models.scorer import Scorer
from ranking.router.work import base_work
from schemas.framing import Decoder, frame
from schemas.records import RankingAnswer, RankingWork
from schemas.topics import REQUEST_PARTITIONS

NUM_CANDIDATES = (16, 64, 128, 256, 512)
NUM_TASKS = (1, 2, 4, 8, 16)
# Small, so that a batch is one call.
CANDIDATES_PER_TASK = 16
NUM_ROUNDS = 200
_FAR_MS = 10_000_000


class _Bench:
    """One replica with the real model, and answers framed as its worker does."""

    def __init__(self) -> None:
        self._world, self._rng = World(WorldConfig()), np.random.default_rng(1)
        self._decoder = Decoder([RankingWork])
        self._limits = IntakeLimits(num_reply_partitions=REQUEST_PARTITIONS, margin_ms=0.0)
        self._scorer = Scorer(load_baseline(), num_threads=1)
        self._replica: Replica[EncodedUsers] = Replica(
            ReplicaEnds(
                device=Device(scorer=self._scorer),
                permit=Permit(None),
                clock_ns=time.monotonic_ns,
                send=self._send,
            ),
            costs=CostBook(),
            settings=ReplicaSettings(
                identity=Identity(ranker_id="measured", epoch_ms=0), cell="cell", routes=("baseline",)
            ),
        )

    def call(self, num_candidates: int) -> Callable[[], object]:
        """One scoring call for one request."""
        drawn = self._world.draw_request(self._rng, num_candidates)
        encoded = self._scorer.prepare(Users.of_requests([drawn.user_features_F], [drawn.history_ids_H]))
        chunk = CandidateChunk(
            ad_ids_N=drawn.ad_ids_N,
            bids_N=drawn.bids_N,
            retrieval_scores_N=drawn.retrieval_scores_N,
            request_of_candidate_N=np.zeros(num_candidates, dtype=np.int64),
        )
        return lambda: self._scorer.score_chunk(encoded, chunk)

    def batch(self, num_tasks: int) -> Callable[[], object]:
        """One batch, from the records' bytes to the answers'."""
        records = [self._record(number) for number in range(num_tasks)]

        def run() -> None:
            now_ms = time.time_ns() // 1_000_000
            moment = Moment(now_ns=time.monotonic_ns(), broker_ms=now_ms)
            tasks: list[Task] = []
            for record in records:
                work = self._decoder.decode(record)
                assert isinstance(work, RankingWork)
                tasks.append(
                    task_of(work, route="baseline", partition=0, append_ms=now_ms, moment=moment, limits=self._limits)
                )
            self._replica.run(tasks)

        return run

    def _record(self, number: int) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        request = ranking_request(
            self._world.draw_request(self._rng, CANDIDATES_PER_TASK),
            request_id=f"r{number}",
            cell="cell",
            intake_ms=now_ms,
            deadline_ms=now_ms + _FAR_MS,
            num_base_candidates=CANDIDATES_PER_TASK,
            num_results=8,
        )
        return frame(
            base_work(
                request,
                router="router",
                reply_partition=0,
                attempt=0,
                deadline_ms=request.deadline_ms,
                chunk_size=CANDIDATES_PER_TASK,
            )
        )

    def _send(self, _: Task, answer: RankingAnswer) -> None:
        frame(answer)


def least_ns(runs: Mapping[int, Callable[[], object]], num_rounds: int) -> dict[int, int]:
    """Least CPU time of each, in turns, so that a slow time of the machine hits all alike."""
    least = dict.fromkeys(runs, 1 << 62)
    for _ in range(num_rounds):
        for size, run in runs.items():
            start_ns = time.process_time_ns()
            run()
            least[size] = min(least[size], time.process_time_ns() - start_ns)
    return least


def line(times_ns: Mapping[int, float]) -> tuple[float, float]:
    """Intercept and slope over sizes, by least squares of relative errors; neither below 0."""
    sizes, times = np.array(list(times_ns), dtype=np.float64), np.array(list(times_ns.values()))
    (intercept, slope), *_ = np.linalg.lstsq(
        np.stack((np.ones(len(sizes)), sizes), axis=1) / times[:, None], np.ones(len(sizes)), rcond=None
    )
    return max(0.0, float(intercept)), max(0.0, float(slope))


def main() -> None:
    """Measure, fit, print."""
    bench = _Bench()
    calls = least_ns({size: bench.call(size) for size in NUM_CANDIDATES}, NUM_ROUNDS)
    call_ns, candidate_ns = line(calls)
    batches = least_ns({size: bench.batch(size) for size in NUM_TASKS}, NUM_ROUNDS)
    beside = {
        size: max(1.0, time_ns - call_ns - candidate_ns * size * CANDIDATES_PER_TASK)
        for size, time_ns in batches.items()
    }
    batch_ns, task_ns = line(beside)
    print(ServiceCurve(batch_ns=batch_ns, call_ns=call_ns, candidate_ns=candidate_ns, task_ns=task_ns))
    for size, time_ns in calls.items():
        print(f"{size} candidates: {time_ns / 1e3:.0f} us, by the line {(call_ns + candidate_ns * size) / 1e3:.0f} us")
    for size, left_ns in beside.items():
        print(f"{size} tasks beside the call: {left_ns / 1e3:.0f} us, line {(batch_ns + task_ns * size) / 1e3:.0f} us")


if __name__ == "__main__":
    main()
