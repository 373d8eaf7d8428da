"""From a finished task to its answer."""

from dataclasses import dataclass

from ranking.consumer.progress import Progress
from schemas.records import ChunkShed, RankingAnswer


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who answers."""

    ranker_id: str
    epoch_ms: int


def answer_of(progress: Progress, *, identity: Identity, model_version: str, pressure: float) -> RankingAnswer:
    """The answer to a complete task: scores of the scored chunks, and each other chunk with its reason."""
    task, work = progress.task, progress.task.work
    return RankingAnswer(
        request_id=work.request_id,
        attempt=work.attempt,
        route=work.route,
        cell=work.cell,
        lever=work.lever,
        ranker=identity.ranker_id,
        ranker_epoch_ms=identity.epoch_ms,
        work_partition=task.partition,
        model_version=progress.model_version or model_version,
        scored_chunks=[] if progress.error else progress.scored_chunks,
        scores=b"" if progress.error else progress.scores(),
        sheds=[
            ChunkShed(
                chunk=chunk,
                reason=reason,
                num_candidates=task.chunk_num_candidates(chunk),
                value_micro=work.chunk_values_micro[chunk],
            )
            for chunk, reason in sorted(progress.sheds.items())
        ],
        queue_wait_us=max(0, (task.taken_ns - task.arrived_ns) // 1_000),
        busy_us=progress.busy_ns // 1_000,
        pressure=pressure,
        error=progress.error,
    )
