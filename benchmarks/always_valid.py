"""``python -m benchmarks.always_valid``: what intervals and the check of the split are worth, on simulated users."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.simulated_users import GAIN_BOTH, GAIN_ONE, GAIN_OTHER, Floats, Looks, crowd, drawn, looked_at
from benchmarks.simulated_users import split_p_values as p_values
from ops.telemetry.progress import progress
from streams.control.uplift.statistics.sample_ratio import MISMATCH_P

NUM_LOOKS = 100
# Shares of the arms by default: holdout, none, rma, sbm, both (docs/routing.md).
SHARES_A = np.array([0.01, 0.0099, 0.0891, 0.0891, 0.8019])


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Shares of simulated experiments, and the median ratio of half-widths at the last look."""

    ever_missed: float
    fixed_ever_missed: float
    worst_look_missed: float
    found: float
    width_ratio: float


def even_and_uneven(
    num: int, users: tuple[int, int], *, lift: float = 0.0, rate: float = 3.0, seed: int = 1
) -> Figures:
    """Experiments of two arms; the first earns ``lift`` more of all values. What is missed is the true difference."""
    rng = np.random.default_rng(seed)
    crowd_UKL = crowd(rng, num_users=4 * sum(users), num_looks=NUM_LOOKS, rate=rate)
    requests_L, value_L, _, _ = crowd_UKL.sum(axis=0, dtype=np.float64).reshape(4, NUM_LOOKS)
    truth_L = lift * value_L / requests_L
    seen: list[Looks] = []
    with progress(f"users {users[0]} + {users[1]}", total=num) as advance:
        for _ in range(num):
            sums = drawn(rng, crowd_UKL, users)
            groups = [(sums[0, 0], sums[0, 1] * (1.0 + lift)), (sums[1, 0], sums[1, 1])]
            seen.append(looked_at(groups, (1.0, -1.0)))
            advance(1)
    return _figures(seen, truth_L)


def _figures(seen: Sequence[Looks], truth_L: Floats) -> Figures:
    """What became of many experiments with one truth."""
    misses_EL = np.array([looks.misses(truth_L) for looks in seen])
    ratios = [looks.last_ratio for looks in seen]
    return Figures(
        ever_missed=float(misses_EL.any(axis=1).mean()),
        fixed_ever_missed=float(np.mean([looks.fixed_misses(truth_L).any() for looks in seen])),
        worst_look_missed=float(misses_EL.mean(axis=0).max()),
        found=float(np.mean([looks.effect_L[-1] - looks.half_L[-1] > 0.0 for looks in seen])),
        width_ratio=float(np.nanmedian(ratios)),
    )


def levers(num: int, *, users: int = 3_000, num_looks: int = 40, seed: int = 2) -> dict[str, Figures]:
    """Four arms under value-aware shedding and drift: each contrast, by what was assigned and (``naive``) delivered."""
    rng = np.random.default_rng(seed)
    crowd_UKL = crowd(rng, num_users=8 * users, num_looks=num_looks)
    requests_L, _, precious_L, gainful_L = crowd_UKL.sum(axis=0, dtype=np.float64).reshape(4, num_looks)
    worth_L = gainful_L / requests_L
    gains = {"none": 0.0, "one": GAIN_ONE, "other": GAIN_OTHER, "both": GAIN_BOTH}
    contrasts = {
        "one": (("one", "none"), (1.0, -1.0)),
        "other": (("other", "none"), (1.0, -1.0)),
        "both": (("both", "none"), (1.0, -1.0)),
        "interaction": (("both", "one", "other", "none"), (1.0, -1.0, -1.0, 1.0)),
    }
    seen: dict[str, list[Looks]] = {name: [] for name in (*contrasts, "naive")}
    with progress("levers", total=num) as advance:
        for _ in range(num):
            sums = drawn(rng, crowd_UKL, [users] * 4, num_kinds=4)
            arms = {
                arm: (sums[at, 0], sums[at, 1] + gain * sums[at, 3]) for at, (arm, gain) in enumerate(gains.items())
            }
            for name, (groups, signs) in contrasts.items():
                seen[name].append(looked_at([arms[group] for group in groups], signs))
            served = (sums[1, 2], sums[1, 3] * (1.0 + GAIN_ONE))
            others = (sums[0, 0] + sums[1, 0] - sums[1, 2], sums[0, 1] + sums[1, 1] - sums[1, 3])
            seen["naive"].append(looked_at([served, others], (1.0, -1.0)))
            advance(1)
    truths = {
        name: sum(s * gains[g] for s, g in zip(signs, groups, strict=True))
        for name, (groups, signs) in contrasts.items()
    }
    # As delivered the truth would be what a served request gains.
    delivered_L = GAIN_ONE * gainful_L / precious_L
    return {
        name: _figures(looks, delivered_L if name == "naive" else truths[name] * worth_L)
        for name, looks in seen.items()
    }


def mismatches(num: int, num_users: int, shares_A: Floats, *, told_A: Floats, seed: int = 3) -> float:
    """Share of experiments whose split is ever distrusted: users are in arms by ``shares_A``, told are ``told_A``."""
    rng = np.random.default_rng(seed)
    crowd_UKL = crowd(rng, num_users=num_users + num_users // 4, num_looks=NUM_LOOKS, rate=0.3)
    alarms = 0
    with progress(f"split of {num_users} users", total=num) as advance:
        for _ in range(num):
            sums = drawn(rng, crowd_UKL, rng.multinomial(num_users, shares_A / shares_A.sum()).tolist(), num_kinds=1)
            alarms += bool((p_values(sums[:, 0], told_A) < MISMATCH_P).any())
            advance(1)
    return alarms / num


def moved(arm: int, by: float) -> Floats:
    """Default shares, of which those of one arm are smaller by so much; its users are lost."""
    shares_A = SHARES_A.copy()
    shares_A[arm] -= by
    return shares_A


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num", type=int, default=2_000, help="experiments of each kind")
    num = parser.parse_args(arguments).num
    for users in ((1_000, 1_000), (4_000, 100), (4_000, 10)):
        print(f"A/A of {users[0]} and {users[1]} users, {NUM_LOOKS} looks: {even_and_uneven(num, users)}")
    for lift in (0.2, 0.3, 0.5):
        print(f"lift of {lift:.0%}, 1,000 users each: {even_and_uneven(num // 4, (1_000, 1_000), lift=lift)}")
    for name, found in levers(num // 4).items():
        print(f"{name}: {found}")
    half_A = np.array([0.5, 0.5])
    for num_users in (300, 1_000, 4_000):
        print(f"fair split of {num_users} users: {mismatches(num, num_users, SHARES_A, told_A=SHARES_A):.2%}")
    for num_users in (8_000, 16_000, 40_000):
        shares_A = np.array([0.48, 0.52])
        print(
            f"two points of a half, {num_users} users: {mismatches(num // 20, num_users, shares_A, told_A=half_A):.0%}"
        )
    print(f"holdout lost, 8000 users: {mismatches(num // 20, 8_000, moved(0, 0.01), told_A=SHARES_A):.0%}")
    print(f"two points of rma lost, 16000: {mismatches(num // 20, 16_000, moved(2, 0.02), told_A=SHARES_A):.0%}")


if __name__ == "__main__":
    main()
