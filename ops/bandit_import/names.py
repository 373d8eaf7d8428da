"""What an import is called, which topics it writes, and the settings under which its log is read. Pure."""

from typing import Final

from ops.replay.names import IMPORTED, SHADOW, check_run_name, run_log
from schemas.records import CellDeclaration, CellLimits, CellRevision
from schemas.settings import MeasurementSettings, TimeSettings
from schemas.topics import (
    CAPACITY_POOLS,
    CONTROL_CELLS,
    CONTROL_STATE,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    RANKING_OUTCOMES,
    RANKING_RESULTS,
    SEGMENT_UPLIFT,
    Namespace,
    PlannedTopic,
    Topic,
)

_HOUR_MS: Final = 3_600_000
# A log of a week has few rows a minute: windows and cohorts are of an hour. Old logs are the same on every machine, so
# their settings are not those of the environment.
TIME: Final = TimeSettings(window_ms=_HOUR_MS)
MEASUREMENT: Final = MeasurementSettings(cohort_ms=_HOUR_MS, attribution_ms=_HOUR_MS)
# Rows have one order, that of time; with more partitions it would have to be put together again.
NUM_PARTITIONS: Final = 1

_WRITTEN: Final[tuple[Topic, ...]] = (RANKING_RESULTS, RANKING_OUTCOMES, CONTROL_WINDOWS, SEGMENT_UPLIFT)
# Nothing is ever in them: who reads a pipeline looks into these too.
_EMPTY: Final[tuple[Topic, ...]] = (CAPACITY_POOLS, CONTROL_TARGETS, CONTROL_STATE)
_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "message.timestamp.type": "CreateTime"}
_COMPACTED: Final = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}


def import_namespace(live: Namespace, run: str) -> Namespace:
    """Namespace of an import; raises ValueError for a name that is none, and inside a replay or an import."""
    check_run_name(run)
    if SHADOW in live.prefix or IMPORTED in live.prefix:
        raise ValueError(f"namespace {live.prefix} is that of a replay or an import; import beside a pipeline")
    return Namespace(f"{live.prefix}{IMPORTED}{run}.")


def import_topics(space: Namespace) -> list[PlannedTopic]:
    """The topics of an import: they keep the producer's time, and stay until they are deleted."""
    assert IMPORTED in space.prefix, space
    planned = [
        PlannedTopic(
            name=space.topic(topic),
            num_partitions=NUM_PARTITIONS,
            config=dict(_COMPACTED if topic.compacted else _KEPT),
        )
        for topic in (*_WRITTEN, *_EMPTY, CONTROL_CELLS)
    ]
    return [*planned, PlannedTopic(name=run_log(space), num_partitions=NUM_PARTITIONS, config=dict(_COMPACTED))]


def declaration(cell: str) -> CellDeclaration:
    """A cell of an import as it is declared: for all time, steered by nobody."""
    limits = CellLimits(base_candidates=1, max_candidates=1, latency_limit_ms=1.0)
    return CellDeclaration(
        cell=cell,
        window_ms=TIME.window_ms,
        revisions=[CellRevision(from_window=0, limits=limits)],
        note="imported",
    )
