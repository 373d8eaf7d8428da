"""Random raw logs that cross every border: windows, lateness, time to live, skew, declared cells, poison.

Drawn by a seeded generator record after record, so that a shorter log of the same seed is a prefix of a longer one:
a failing log shrinks to its shortest failing prefix, and thousands of records cost no more than their encoding.
"""

import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from schemas.age_classes import AGE_CLASSES_MS
from schemas.framing import encode
from schemas.records import (
    CapacityEvent,
    CellDeclaration,
    CellRevision,
    ClockRecord,
    LatencyInterval,
    ReclaimTiming,
    SegmentTraffic,
)
from streams.ingest.partition import RawRecord
from tests.unit.streams.ingest_makers import (
    LIMITS,
    TIME,
    RawLog,
    account,
    cells_in_one_partition,
    declaration,
    event,
    foreign_cell,
    histogram,
    interval,
    limits_with,
    offer,
    route,
)

# Long after the start of time, so that offers of every age fit before it.
FIRST_WINDOW = 2_000_000
START_MS = FIRST_WINDOW * TIME.window_ms
HOME, NAMES = cells_in_one_partition(4)
FOREIGN = foreign_cell(HOME)
# One cell from the start, one that begins, one whose limits change and that is retired, one that is always silent.
DECLARED: tuple[CellDeclaration, ...] = (
    declaration(NAMES[0]),
    declaration(NAMES[1], from_window=FIRST_WINDOW + 7),
    CellDeclaration(
        cell=NAMES[2],
        window_ms=TIME.window_ms,
        revisions=[
            CellRevision(from_window=FIRST_WINDOW + 2, limits=LIMITS),
            CellRevision(from_window=FIRST_WINDOW + 6, limits=limits_with(max_candidates=900)),
        ],
        until_window=FIRST_WINDOW + 11,
    ),
    declaration(NAMES[3]),
    declaration(FOREIGN),
)
SENDERS = (*NAMES[:3], *NAMES[:3], "nowhere", FOREIGN)
AHEAD_MS = (-330, -130, -40, -5, 0, 0, 30, 50, 51)
# Not said, yet to come, just begun, and such that they pass a bound of the age classes while the log runs.
SINCE_MS = (
    0,
    START_MS + 2_000,
    START_MS + 150,
    *(START_MS - from_age_ms + delay_ms for from_age_ms in AGE_CLASSES_MS for delay_ms in (101, 700, 2_000)),
)
TIMING = ReclaimTiming(accelerator="h200", reason="", flipped_ms=0, reaction_us=None, drained_us=None, num_rankers=0)

MakeRecord = Callable[[random.Random, int], Any]


def capacity_record(rng: random.Random, append_ms: int) -> CapacityEvent:
    offers = [
        offer(
            rng.choice(("h200", "a100", "cpu")),
            rng.choice((0.0, 0.1, 0.7, 2.3)),
            idle_cause=rng.choice(("off_peak", "not_ported")),
            unusable=rng.choice((None, "memory")),
            provider=rng.choice(("", "own", "cloud")),
            reclaim_at_ms=rng.choice((None, 99)),
            # Few, so that what is offered later is often what was offered before.
            offered_since_ms=rng.choice(SINCE_MS[:5] if rng.random() < 0.8 else SINCE_MS),
        )
        for _ in range(rng.randrange(4))
    ]
    return event(
        rng.choice(SENDERS),
        host=rng.choice(("h-1", "h-2")),
        kind=rng.choice(("offer", "update", "reclaim", "heartbeat", "notice")),
        offers=offers,
        reclaims=[TIMING] * rng.randrange(2),
        **_numbers(rng, append_ms),
    )


def latency_record(rng: random.Random, append_ms: int) -> LatencyInterval:
    values = [rng.choice((0.0, 0.2, 3.5, 80.0, 9_000.0)) for _ in range(rng.randrange(4))]
    return interval(
        rng.choice(SENDERS),
        source=rng.choice(("r-1", "r-2")),
        part=rng.choice(("router", "ranker")),
        latency=histogram(*values),
        routes=[route("wide", values, num_work=2, pressure=rng.random())] * rng.randrange(2),
        accounts=[account("rma", admitted=rng.randrange(6), pressure=1), account("sbm", lost=1)],
        num_requests=rng.randrange(4),
        upstream=rng.choice((None, histogram(*values))),
        segments=[
            SegmentTraffic(
                segment=name, num_requests=5, num_allowed=4, probability_micro=rng.randrange(9), num_routed=1
            )
            for name in rng.sample(("retail", "travel", "(none)", "(other)"), rng.randrange(4))
        ],
        **_numbers(rng, append_ms),
    )


def logs(make: MakeRecord, *, max_size: int = 80) -> st.SearchStrategy[list[RawRecord]]:
    """A raw partition of up to ``max_size`` records."""
    return st.builds(
        lambda seed, size: _log(random.Random(seed), make, size), st.integers(0, 2**32), st.integers(1, max_size)
    )


def _log(rng: random.Random, make: MakeRecord, size: int) -> list[RawRecord]:
    log = RawLog()
    append_ms = START_MS + rng.randrange(300)
    for _ in range(size):
        append_ms = max(0, append_ms + rng.choice((0, 0, 1, 7, 20, 45, 120, 260, -15)))
        match rng.randrange(12):
            case 0:
                log.add(ClockRecord(writer="w"), append_ms)
            case 1:
                # Poison far ahead in append time must not move the clock.
                log.add(rng.choice((None, b"", b"junk", encode(offer()))), append_ms + 5_000, key=b"k")
            case 2:
                log.add(make(rng, append_ms), append_ms, key=rng.choice((None, b"other")))
            case _:
                log.add(make(rng, append_ms), append_ms)
    return log.records


def _numbers(rng: random.Random, append_ms: int) -> dict[str, int]:
    # Sources mostly count upwards with time, start anew now and then, and repeat themselves.
    return {
        "epoch_ms": rng.choice((0, 0, 0, 0, START_MS + 400, append_ms + 80)),
        "seq": max(0, (append_ms - START_MS) // 40 + rng.randrange(-3, 4)) if rng.random() < 0.8 else rng.randrange(13),
        "at_ms": max(0, append_ms + rng.choice(AHEAD_MS)),
    }
