"""What the pipeline says of an imported log equals what numpy says of the same files, by every cell and segment."""

import csv
import os
from collections import defaultdict
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from ops.bandit_import.files import find_files
from schemas.records import Effect
from schemas.records.uplift import Contrast
from tests.unit.ops.import_makers import imported, random_log, uplift

DATA = Path(os.environ.get("INTERTIDAL_SHARED_DATA") or Path(__file__).parents[4] / "shared" / "data") / "open-bandit"
FLOOR = 0.01
NUM_BUCKETS = 64
FEATURES = ("", "user_feature_0", "user_feature_1", "user_feature_2", "user_feature_3")

Figures = dict[str, float]
# By cell and segment, then by policy: one row [bucket, weight, click] for each impression.
Impressions = dict[tuple[str, str], dict[str, list[tuple[int, float, int]]]]


def impressions(folder: Path, *, floor: float) -> Impressions:
    found: Impressions = defaultdict(lambda: defaultdict(list))
    for policy in ("random", "bts"):
        name = f"{policy}-men/men.csv"
        with (folder / name).open(newline="") as file:
            for line, row in enumerate(csv.DictReader(file), start=2):
                bucket = blake2b(f"{name}:{line}".encode(), digest_size=8, person=b"bucket").digest()[0] % NUM_BUCKETS
                # The pipeline keeps propensities in millionths.
                weight = 1e6 / min(999_999, round(1e6 * max(float(row["propensity_score"]), floor)))
                for feature in FEATURES:
                    cell = f"men.{feature}" if feature else "men"
                    for segment in ("(all)", row[feature or "position"]):
                        found[cell, segment][policy].append((bucket, weight, int(row["click"])))
    return found


def student(degrees: int, share: float) -> float:
    """What Student's t stays within by that share, by the trapezoid rule over its density."""
    at = np.linspace(0.0, 40.0, 400_001)
    density = (1.0 + at * at / degrees) ** (-(degrees + 1) / 2.0)
    within = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return float(np.interp(share * within[-1], within, at))


def expected(
    treated: list[tuple[int, float, int]], control: list[tuple[int, float, int]], *, weighted: bool
) -> Figures | None:
    """The difference of mean rewards with both intervals: delta method over buckets, normal mixture of Robbins.

    None where it rests on fewer than eight buckets' worth of users, or a hundred impressions.
    """
    means, errors, worth = [], [], []
    for rows in (treated, control):
        bucket, weight, click = np.array(rows).T
        weight = weight if weighted else np.ones_like(weight)
        mean = float((weight * click).sum() / weight.sum())
        errors.append(np.bincount(bucket.astype(int), weight * (click - mean), NUM_BUCKETS) / weight.sum())
        by_bucket = np.bincount(bucket.astype(int), weight, NUM_BUCKETS)
        worth.append(int(by_bucket.sum() ** 2 / (by_bucket**2).sum() + 1e-9))
        means.append(mean)
    if min(worth) < 8 or min(len(treated), len(control)) < 100:
        return None
    effect = means[0] - means[1]
    variance = float(((errors[0] - errors[1]) ** 2).sum()) * NUM_BUCKETS / (NUM_BUCKETS - 1)
    fixed = student(min(worth) - 1, 0.95) * variance**0.5
    # As rare under Student's t as three standard errors under the normal distribution.
    wide = variance * (student(min(worth) - 1, 0.9973002039367398) / 3.0) ** 2
    tau_squared = (0.1 * means[1]) ** 2
    always = np.inf
    if tau_squared > 0.0:
        always = (wide * (1 + wide / tau_squared) * (np.log(1 + tau_squared / wide) + 2 * np.log(20))) ** 0.5
    return {
        "mean_control": means[1],
        "effect": effect,
        "fixed_lower": effect - fixed,
        "fixed_upper": effect + fixed,
        "lower": effect - always,
        "upper": effect + always,
    }


def check(folder: Path, *, floor: float) -> int:
    """Hold all effects on clicks against numpy; returns how many had an interval."""
    said, counts = imported(find_files([folder]), min_propensity=floor)
    measured = uplift(said)
    plain = impressions(folder, floor=floor)
    num_compared = 0
    assert measured.keys() == plain.keys()
    assert counts.num_refused == counts.num_late == counts.num_duplicates == 0
    for place, by_policy in plain.items():
        record = measured[place]
        bts, random = by_policy["bts"], by_policy["random"]
        assert (record.num_requests, record.pending_requests) == (len(bts) + len(random), 0)
        effects = {(each.contrast, each.measure): each for each in record.effects}
        contrasts: tuple[tuple[Contrast, bool], ...] = (("sbm", False), ("upgrade", True))
        for contrast, weighted in contrasts:
            effect: Effect | None = effects.get((contrast, "clicks"))
            if effect is None:
                assert not (bts and random)
                continue
            assert (effect.num_treated, effect.num_control) == (len(bts), len(random))
            figures = expected(bts, random, weighted=weighted)
            if figures is None:
                assert effect.effect is None
                continue
            for name, figure in figures.items():
                got = getattr(effect, name)
                assert (got is None) == (not np.isfinite(figure)), (place, contrast, name)
                assert got is None or got == pytest.approx(figure, rel=1e-5, abs=1e-9), (place, contrast, name)
            num_compared += 1
    return num_compared


def test_a_log_that_was_made_up_is_measured_as_numpy_measures_it(tmp_path: Path) -> None:
    random_log(tmp_path / "random-men", seed=1, num_rows=500, click_share=0.1, spread=False)
    random_log(tmp_path / "bts-men", seed=2, num_rows=600, click_share=0.2, spread=True)
    # Five times overall, three positions, and the values of features that are not rare.
    assert check(tmp_path, floor=FLOOR) == 2 * (5 + 3 + 2 + 1 + 4 + 1)


@pytest.mark.chaos
@pytest.mark.skipif(not DATA.is_dir(), reason="no Open Bandit Dataset at ../shared/data or INTERTIDAL_SHARED_DATA")
@pytest.mark.timeout(900)
def test_the_open_bandit_dataset_is_measured_as_numpy_measures_it() -> None:
    assert check(DATA, floor=1e-3) >= 2 * (5 + 3 + 2 + 3 + 6 + 5)
