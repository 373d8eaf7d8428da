"""What a run is called, and the only topics that it may write. Pure."""

import re
from typing import Final

from schemas.topics import (
    CAPACITY_POOLS,
    CONTROL_CELLS,
    CONTROL_STATE,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    FLEET_CAPACITY,
    SEGMENT_UPLIFT,
    SERVING_LATENCY,
    Namespace,
    PlannedTopic,
    Topic,
    dead_letter_config,
)

SHADOW: Final = "replay."
# Old logs that were imported: shadow topics as well.
IMPORTED: Final = "import."
# Without a dot: whoever deletes the topics of `replay.a.` must not meet those of another run.
_RUN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
# What a run says, and whose refused records it keeps.
OUTPUTS: Final[tuple[Topic, ...]] = (CONTROL_WINDOWS, CONTROL_TARGETS, CAPACITY_POOLS, SEGMENT_UPLIFT, CONTROL_STATE)
REFUSED: Final[tuple[Topic, ...]] = (FLEET_CAPACITY, SERVING_LATENCY, CONTROL_WINDOWS)
RUN_LOG: Final = "run"
# A run is small beside its source, and is kept until somebody deletes it.
_KEPT: Final = {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
_COMPACTED: Final = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}


def run_namespace(live: Namespace, run: str) -> Namespace:
    """Namespace of a run of a pipeline; raises ValueError for a name that is none and for a run of a run."""
    check_run_name(run)
    if SHADOW in live.prefix:
        raise ValueError(f"namespace {live.prefix} is that of a replay; a replay is made of a live pipeline only")
    return Namespace(f"{live.prefix}{SHADOW}{run}.")


def check_run_name(run: str) -> None:
    """Raise ValueError for a name that no run may have."""
    if not _RUN.fullmatch(run):
        raise ValueError(f"{run!r} is no name of a run: up to 40 of a-z, 0-9, - and _, a letter or digit first")


def run_log(space: Namespace) -> str:
    """Topic of a run's manifest, its progress and the states of its controllers."""
    return space.prefix + RUN_LOG


def run_of(live: Namespace, topic: str) -> str | None:
    """The run whose log a topic is; None for any other topic."""
    before, after = live.prefix + SHADOW, f".{RUN_LOG}"
    if not (topic.startswith(before) and topic.endswith(after)):
        return None
    run = topic[len(before) : -len(after)]
    return run if _RUN.fullmatch(run) else None


def require_shadow(space: Namespace, topic: str) -> None:
    """The last fence: an assertion that a topic is one of a run, before anything is sent to it."""
    assert SHADOW in space.prefix or IMPORTED in space.prefix, space
    assert topic.startswith(space.prefix), topic


def shadow_topics(space: Namespace, *, num_partitions: int) -> list[PlannedTopic]:
    """The topics of a run; those keyed by cell have as many partitions as the source, so that cells stay in place.

    None of the outputs is compacted: whoever compares needs every target, not the last one.
    """
    require_shadow(space, space.prefix)
    outputs = [
        PlannedTopic(
            name=space.topic(topic),
            num_partitions=1 if topic.num_partitions == 1 else num_partitions,
            config=dict(_KEPT),
        )
        for topic in OUTPUTS
    ]
    refused = [
        PlannedTopic(
            name=space.dead_letters(topic), num_partitions=1, config={**dead_letter_config(), "retention.ms": "-1"}
        )
        for topic in REFUSED
    ]
    return [
        *outputs,
        *refused,
        PlannedTopic(name=space.topic(CONTROL_CELLS), num_partitions=1, config=dict(_COMPACTED)),
        PlannedTopic(name=run_log(space), num_partitions=num_partitions, config=dict(_COMPACTED)),
    ]
