"""How much of each pool each lever has: the allocator's last shares of today's units. Pure.

The allocator runs every so many ticks, and at once when a pool appears, vanishes or falls to nothing. In between a
reclaim acts in its own tick, as the split is shares, not units. Where the allocator cannot be asked (its solver is not
installed, or it raises) the last split stays in force and says so; without one nobody gets anything.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec
from msgspec import Struct

from schemas.records import AcceleratorFit, LeverTerms, ValueCurve
from schemas.records.fields import Count, Label, Lever, Name, Text
from streams.control.allocator.allocation import Allocation
from streams.control.allocator.problem import GIB_BYTES, AllocatorSettings, LeverOption, PoolSupply, Problem
from streams.control.facts import CapacityFacts, PoolFacts
from streams.control.settings import MICRO, ControlSettings

NO_CPU = "missing_cpu"
TERMS_BYTES = 8


class Split(Struct, frozen=True, kw_only=True):
    """The split in force. ``accelerators`` had usable units when it was made, ``age_ticks`` ago.

    ``terms`` is a digest of the levers' terms then: an operator's change acts at once. ``trouble`` says why the
    allocator could not be asked since.
    """

    allocation: Allocation | None = None
    accelerators: tuple[Name, ...] = ()
    terms: bytes = b""
    age_ticks: Count = 0
    trouble: Text = ""

    @property
    def mode(self) -> Label:
        """How the split in force was made."""
        return self.allocation.mode if self.allocation is not None and not self.trouble else "kept"

    @property
    def detail(self) -> str:
        """What binds it, after what is wrong with it."""
        said = self.allocation.detail if self.allocation is not None else "nobody has anything yet"
        return f"{self.trouble}; {said}" if self.trouble else said


# Units of each pool, by accelerator, that each lever has.
Granted = Mapping[str, Mapping[Lever, float]]
# Value curves by lever, and those of nobody.
Curves = Mapping[Lever, tuple[ValueCurve, ...]]
NO_CURVES: Curves = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class LeverSupply:
    """What one lever has of all pools, in units, and the mean curve of these units (0 where there are none)."""

    units: float
    curve_units_per_unit_s: float


@dataclass(frozen=True, kw_only=True)
class Corrections:
    """How many times faster than its curves each lever was measured, the most work per second that counts of it, and
    the value curves that were measured.
    """

    speeds: Mapping[Lever, float]
    most_work_units_s: Mapping[Lever, float]
    curves: Curves = field(default_factory=dict)


def resplit(split: Split, capacity: CapacityFacts, corrections: Corrections, *, settings: ControlSettings) -> Split:
    """The split of this tick: made anew when that is due."""
    usable = tuple(sorted(pool.accelerator for pool in capacity.pools if pool.usable_units_micro > 0))
    is_due = split.allocation is None or split.age_ticks + 1 >= settings.allocator_ticks
    terms = digest_of(capacity.limits.levers)
    if not is_due and usable == split.accelerators and terms == split.terms:
        return msgspec.structs.replace(split, age_ticks=split.age_ticks + 1)
    try:
        # Here and not above: the solver is needed only where there is something to split.
        from streams.control.allocator.allocate import allocate

        allocation = allocate(_problem(capacity, corrections, settings.allocator), last=split.allocation)
    except (ImportError, ValueError, ArithmeticError, RuntimeError) as error:
        return Split(
            allocation=split.allocation,
            accelerators=usable,
            terms=terms,
            trouble=f"the allocator cannot be asked, the last split is kept: {type(error).__name__}: {error}"[:1_000],
        )
    return Split(allocation=allocation, accelerators=usable, terms=terms)


def digest_of(levers: Sequence[LeverTerms]) -> bytes:
    """What tells the terms of today from those that a split was made under."""
    return hashlib.sha256(msgspec.msgpack.encode(levers)).digest()[:TERMS_BYTES]


def granted(split: Split, capacity: CapacityFacts) -> Granted:
    """Units of today's pools by the split in force, within the cores and memory of today."""
    return {pool.accelerator: _units(split, pool, capacity.limits.levers) for pool in capacity.pools}


def supply_of(units: Granted, levers: Sequence[LeverTerms], lever: Lever) -> LeverSupply:
    """What a lever has of all pools of the cell; nothing where it is not among ``levers``."""
    held = work = 0.0
    for terms in levers:
        for fit in terms.fits if terms.lever == lever else ():
            pool_units = units.get(fit.accelerator, {}).get(lever, 0.0)
            held += pool_units
            work += pool_units * fit.units_per_unit_s
    return LeverSupply(units=held, curve_units_per_unit_s=work / held if held > 0.0 else 0.0)


def fit_on(terms: LeverTerms, accelerator: str) -> AcceleratorFit | None:
    """How the lever runs on an accelerator, None where it does not."""
    return next((fit for fit in terms.fits if fit.accelerator == accelerator), None)


def pool_supply(pool: PoolFacts, levers: Sequence[LeverTerms]) -> PoolSupply:
    """The pool as the allocator is told of it."""
    cpu_cores, memory_gib = _beside(pool)
    return PoolSupply(
        accelerator=pool.accelerator,
        usable_units=pool.usable_units_micro / MICRO,
        cpu_cores=cpu_cores,
        memory_gib=memory_gib,
        survives={
            terms.lever: survives for terms, survives in zip(levers, pool.survives, strict=True) if survives is not None
        },
    )


def _units(split: Split, pool: PoolFacts, levers: Sequence[LeverTerms]) -> dict[Lever, float]:
    if split.allocation is None:
        return {}
    usable = pool.usable_units_micro / MICRO
    fits = {terms.lever: fit for terms in levers if (fit := fit_on(terms, pool.accelerator)) is not None}
    units = {lever: usable * split.allocation.share(pool.accelerator, lever) for lever in fits}
    cpu_cores, memory_gib = _beside(pool)
    for have, needs in (
        (cpu_cores, {lever: fit.cpu_cores_per_unit for lever, fit in fits.items()}),
        (memory_gib, {lever: fit.memory_bytes_per_unit / GIB_BYTES for lever, fit in fits.items()}),
    ):
        used = sum(units[lever] * need for lever, need in needs.items())
        if used > have:
            units = {lever: held * have / used if needs[lever] > 0.0 else held for lever, held in units.items()}
    return units


def _problem(capacity: CapacityFacts, corrections: Corrections, settings: AllocatorSettings) -> Problem:
    limits = capacity.limits
    return Problem(
        pools=tuple(pool_supply(pool, limits.levers) for pool in capacity.pools),
        levers=tuple(
            LeverOption(
                terms=_as_measured(terms, corrections.speeds.get(terms.lever, 1.0)),
                curves=corrections.curves.get(terms.lever, ()),
                max_work_units_s=corrections.most_work_units_s.get(terms.lever),
            )
            for terms in limits.levers
        ),
        settings=dataclasses.replace(settings, utilisation=limits.utilisation),
    )


def _beside(pool: PoolFacts) -> tuple[float, float]:
    """Cores and GiB beside the usable units of a pool.

    They come with hosts, so units of no use, or about to go, take theirs with them; but for those that miss cores.
    """
    snapshot = pool.snapshot
    without_cores_micro = sum(reason.units_micro for reason in snapshot.unusable if reason.label == NO_CPU)
    with_cores_micro = snapshot.units_micro - without_cores_micro
    part = min(1.0, pool.usable_units_micro / with_cores_micro) if with_cores_micro > 0 else 0.0
    return part * snapshot.cpu_cores_micro / MICRO, part * snapshot.memory_bytes / GIB_BYTES


def _as_measured(terms: LeverTerms, factor: float) -> LeverTerms:
    if factor == 1.0:
        return terms
    fits = [msgspec.structs.replace(fit, units_per_unit_s=factor * fit.units_per_unit_s) for fit in terms.fits]
    return msgspec.structs.replace(terms, fits=fits)
