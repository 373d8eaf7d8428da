"""Who sends and who receives what: each part of the pipeline, and those outside who meet it at its topics."""

from dataclasses import dataclass

from schemas.topics import (
    CAPACITY_POOLS,
    CONTROL_CELLS,
    CONTROL_STATE,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    FLEET_CAPACITY,
    RANKING_ANSWERS,
    RANKING_OUTCOMES,
    RANKING_REQUESTS,
    RANKING_RESULTS,
    RANKING_WORK_BASELINE,
    RANKING_WORK_POWERFUL,
    RANKING_WORK_WIDE,
    SERVING_LATENCY,
    Topic,
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One side of the topics it touches.

    ``refuses``: those whose unreadable records it sends to dead letters; ``clocks``: those to which it
    sends clock records.
    """

    name: str
    purpose: str
    sends: tuple[Topic, ...] = ()
    receives: tuple[Topic, ...] = ()
    refuses: tuple[Topic, ...] = ()
    clocks: tuple[Topic, ...] = ()


PARTS: tuple[Part, ...] = (
    Part(name="agent", purpose="Reports the idle capacity of one host", sends=(FLEET_CAPACITY,)),
    Part(name="operator", purpose="Declares and retires cells", sends=(CONTROL_CELLS,), receives=(CONTROL_CELLS,)),
    Part(
        name="ingest",
        purpose="Closes event-time windows; tells silent partitions the time",
        sends=(CONTROL_WINDOWS,),
        clocks=(FLEET_CAPACITY, SERVING_LATENCY),
        receives=(FLEET_CAPACITY, SERVING_LATENCY, RANKING_RESULTS, RANKING_OUTCOMES, CONTROL_CELLS),
        refuses=(FLEET_CAPACITY, SERVING_LATENCY, RANKING_RESULTS, RANKING_OUTCOMES),
    ),
    Part(
        name="control",
        purpose="Makes targets and pools from windows",
        sends=(CAPACITY_POOLS, CONTROL_TARGETS, CONTROL_STATE),
        receives=(CONTROL_WINDOWS,),
        refuses=(CONTROL_WINDOWS,),
    ),
    Part(
        name="caller",
        purpose="Asks for rankings, takes the results, reports what became of them",
        sends=(RANKING_REQUESTS, RANKING_OUTCOMES),
        receives=(RANKING_RESULTS,),
    ),
    Part(
        name="router",
        purpose="Puts one result together per request",
        sends=(RANKING_WORK_BASELINE, RANKING_WORK_WIDE, RANKING_WORK_POWERFUL, RANKING_RESULTS, SERVING_LATENCY),
        # Its results too: whoever takes a partition over reads what its predecessor has published.
        receives=(RANKING_REQUESTS, RANKING_ANSWERS, RANKING_RESULTS, CONTROL_TARGETS, CONTROL_CELLS),
        refuses=(RANKING_REQUESTS, RANKING_ANSWERS, CONTROL_TARGETS),
        clocks=(SERVING_LATENCY,),
    ),
    Part(
        name="ranker",
        purpose="Scores the work of its routes",
        sends=(RANKING_ANSWERS, SERVING_LATENCY),
        clocks=(SERVING_LATENCY,),
        receives=(RANKING_WORK_BASELINE, RANKING_WORK_WIDE, RANKING_WORK_POWERFUL),
        refuses=(RANKING_WORK_BASELINE, RANKING_WORK_WIDE, RANKING_WORK_POWERFUL),
    ),
)
