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
                weight = 1.0 / min(0.999999, max(float(row["propensity_score"]), floor))
                for feature in FEATURES:
                    cell = f"men.{feature}" if feature else "men"
                    for segment in ("(all)", row[feature or "position"]):
                        found[cell, segment][policy].append((bucket, weight, int(row["click"])))
    return found


def student(degrees: int) -> float:
    """Quantile 0.975 of Student's t, by the trapezoid rule over its density."""
    at = np.linspace(0.0, 20.0, 400_001)
    density = (1.0 + at * at / degrees) ** (-(degrees + 1) / 2.0)
    share = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    # Of the whole line; beyond the grid by the density's own tail.
    tail = degrees ** ((degrees + 1) / 2.0) * 20.0**-degrees / degrees / (at[1] - at[0])
    return float(np.interp(0.95 * (share[-1] + tail), share, at))


def expected(
    treated: list[tuple[int, float, int]], control: list[tuple[int, float, int]], *, weighted: bool
) -> Figures:
    """The difference of mean rewards, with both intervals: delta method over buckets, normal mixture of Robbins."""
    means, errors, buckets = [], [], []
    for rows in (treated, control):
        bucket, weight, click = np.array(rows).T
        weight = weight if weighted else np.ones_like(weight)
        mean = float((weight * click).sum() / weight.sum())
        errors.append(np.bincount(bucket.astype(int), weight * (click - mean), NUM_BUCKETS) / weight.sum())
        means.append(mean)
        buckets.append(len(np.unique(bucket)))
    effect = means[0] - means[1]
    variance = float(((errors[0] - errors[1]) ** 2).sum()) * NUM_BUCKETS / (NUM_BUCKETS - 1)
    quantile = student(min(buckets) - 1)
    fixed = quantile * variance**0.5
    wide = variance * (quantile / 1.959963984540054) ** 2
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
        for contrast, weighted in (("sbm", False), ("upgrade", True)):
            effect: Effect | None = effects.get((contrast, "clicks"))
            if effect is None:
                assert not (bts and random)
                continue
            assert (effect.num_treated, effect.num_control) == (len(bts), len(random))
            if min(len(bts), len(random)) < 100:
                assert effect.effect is None
                continue
            figures = expected(bts, random, weighted=weighted)
            assert effect.mean_control == pytest.approx(figures.pop("mean_control"), rel=1e-4)
            for name, figure in figures.items():
                got = getattr(effect, name)
                if np.isfinite(figure):
                    # Weights are kept in millionths: those of the smallest propensities to four digits.
                    assert got == pytest.approx(figure, rel=1e-4 if weighted else 1e-6, abs=1e-6), (
                        place,
                        contrast,
                        name,
                    )
                else:
                    assert got is None
            num_compared += 1
    return num_compared


def test_a_log_that_was_made_up_is_measured_as_numpy_measures_it(tmp_path: Path) -> None:
    random_log(tmp_path / "random-men", seed=1, num_rows=500, click_share=0.1, spread=False)
    random_log(tmp_path / "bts-men", seed=2, num_rows=600, click_share=0.2, spread=True)
    # Overall, the positions, and the values of features that are not rare.
    assert check(tmp_path, floor=FLOOR) == 2 * (5 + 3 + 2 + 1 + 4 + 1)


@pytest.mark.chaos
@pytest.mark.skipif(not DATA.is_dir(), reason="no Open Bandit Dataset at ../shared/data or INTERTIDAL_SHARED_DATA")
@pytest.mark.timeout(900)
def test_the_open_bandit_dataset_is_measured_as_numpy_measures_it() -> None:
    assert check(DATA, floor=1e-3) >= 2 * (5 + 3 + 2 + 3 + 6 + 5)
