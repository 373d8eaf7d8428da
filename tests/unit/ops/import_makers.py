"""Logs of the shape of the Open Bandit Dataset, and an import of them without a broker."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ops.bandit_import.files import LogFile, by_time
from ops.bandit_import.measure import Counts, Ingest, kinds, measured
from ops.bandit_import.records import cells_of, records_of
from ops.replay.said import Said
from schemas.framing import encode
from schemas.records import SegmentUplift
from streams.ingest.partition import RawRecord

START = datetime(2019, 11, 24, tzinfo=UTC)
NUM_ITEMS = 3
HEAD = (
    ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,user_feature_2,user_feature_3,"
    + ",".join(f"user-item_affinity_{item}" for item in range(NUM_ITEMS))
)


def row(number: int, at: datetime, *, click: int = 0, propensity: str = "0.3", labels: str = "a,b,c,d") -> str:
    item, position = number % NUM_ITEMS, 1 + number % 3
    return f"{number},{at.isoformat(sep=' ')},{item},{position},{click},{propensity},{labels},0.0,1.0,0.0"


def write_log(folder: Path, rows: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "men.csv"
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    return path


def random_log(folder: Path, *, seed: int, num_rows: int, click_share: float, spread: bool) -> Path:
    """A log of six hours; ``spread`` propensities are as unequal as those of a bandit."""
    rng = random.Random(seed)
    times = sorted(rng.uniform(0, 21_600) for _ in range(num_rows))
    rows = [
        row(
            number,
            START + timedelta(seconds=at_s),
            click=int(rng.random() < click_share),
            propensity=str(10 ** rng.uniform(-4, -0.1) if spread else 1 / NUM_ITEMS),
            labels=f"a{rng.randrange(2)},b,c{rng.randrange(4)},d{int(rng.random() < 0.01)}",
        )
        for number, at_s in enumerate(times)
    ]
    return write_log(folder, rows)


def imported(files: list[LogFile], *, min_propensity: float) -> tuple[list[Said], Counts]:
    """What an import of the files says, as its edge would have it."""
    logs: dict[str, list[RawRecord]] = {}
    for file, line, found in by_time(files):
        for topic, key, record, time_ms in records_of(file, line, found, min_propensity=min_propensity):
            log = logs.setdefault(topic, [])
            log.append(RawRecord(len(log), time_ms, key, encode(record)))
    counts, windows = Counts(), []
    for kind in kinds():
        ingest = Ingest(kind, cells_of(files[0].campaign))
        ingest.take(logs.get(kind.topic.name, []))
        windows += ingest.windows()
        counts.num_refused += ingest.num_refused
    return measured(windows, counts), counts


def uplift(said: list[Said]) -> dict[tuple[str, str], SegmentUplift]:
    return {
        (each.record.cell, each.record.segment): each.record for each in said if isinstance(each.record, SegmentUplift)
    }
