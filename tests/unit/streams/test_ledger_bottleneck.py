"""The one word for what keeps a lever from more of a pool."""

from typing import Any

import pytest

from schemas.records import AcceleratorFit, LeverTerms, LeverUnits, ResourcePrice
from streams.control.allocator.market import RESOURCES
from streams.control.allocator.problem import GIB_BYTES, AllocatorSettings, PoolSupply
from streams.control.ledger.bottleneck import Held, bottleneck, pool_bottleneck
from tests.unit.streams.ledger_makers import unusable


def supply(**changes: Any) -> PoolSupply:
    fields: dict[str, Any] = {"accelerator": "h200", "usable_units": 10.0, "cpu_cores": 80.0, "memory_gib": 320.0}
    return PoolSupply(**fields | changes)


def held(*, cpu: float = 4.0, gib: float = 16.0, **changes: Any) -> Held:
    """Extra candidates on a unit that needs cores and memory beside it; far below its cap."""
    fit = AcceleratorFit(
        accelerator="h200", units_per_unit_s=1e5, cpu_cores_per_unit=cpu, memory_bytes_per_unit=int(gib * GIB_BYTES)
    )
    terms: dict[str, Any] = {"lever": "rma", "fits": [fit]}
    terms |= {name: changes.pop(name) for name in ("lever", "fits", "max_share") if name in changes}
    fields: dict[str, Any] = {"units_in_cell": 1.0, "usable_in_cell": 20.0}
    return Held(terms=LeverTerms(**terms), **fields | changes)


def prices(accelerator: float = 0.0, cpu: float = 0.0, memory: float = 0.0) -> list[ResourcePrice]:
    return [
        ResourcePrice(resource=name, value_s=value)
        for name, value in zip(RESOURCES, (accelerator, cpu, memory), strict=True)
    ]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "accelerator"),
        ({"cpu_cores": 39.0}, "cpu"),
        ({"memory_gib": 100.0}, "memory"),
        ({"memory_gib": 100.0, "cpu_cores": 1.0}, "cpu"),
        ({"cpu_cores": 0.0}, "cpu"),
    ],
)
def test_without_prices_it_is_the_scarcest_resource_by_units(changes: dict[str, float], word: str) -> None:
    assert bottleneck(supply(**changes), held()) == word


def test_what_a_lever_does_not_need_is_not_scarce_to_it() -> None:
    starved = supply(cpu_cores=1.0, memory_gib=1.0)
    assert bottleneck(starved, held(cpu=0.0, gib=0.0)) == "accelerator"
    assert bottleneck(starved, held(cpu=0.0, gib=0.0), prices=prices(0.1, 5.0, 5.0)) == "accelerator"


@pytest.mark.parametrize(
    ("price", "word"),
    [
        (prices(accelerator=3.0), "accelerator"),
        # A core is cheaper than an accelerator, but a unit needs four of them.
        (prices(accelerator=3.0, cpu=1.0), "cpu"),
        (prices(accelerator=5.0, cpu=1.0), "accelerator"),
        (prices(accelerator=3.0, memory=0.2), "memory"),
        (prices(), "value"),
    ],
)
def test_with_prices_it_is_what_is_dearest_to_the_lever(price: list[ResourcePrice], word: str) -> None:
    # By units alone it would be the cores.
    assert bottleneck(supply(cpu_cores=1.0), held(), prices=price) == word
    assert bottleneck(supply(cpu_cores=1.0), held(), prices=price[::-1]) == word


def test_no_accelerator_that_it_runs_on_comes_first() -> None:
    assert bottleneck(supply(accelerator="l4"), held(loop_reason="upstream")) == "compatibility"


@pytest.mark.parametrize("reason", ["upstream", "network", "dependent"])
def test_what_the_loop_declares_comes_before_what_is_scarce(reason: str) -> None:
    assert bottleneck(supply(usable_units=0.0), held(loop_reason=reason)) == reason


@pytest.mark.parametrize("reason", ["steady", "rising", "capacity", ""])
def test_other_words_of_the_loop_say_nothing_of_the_pool(reason: str) -> None:
    assert bottleneck(supply(), held(loop_reason=reason)) == "accelerator"


@pytest.mark.parametrize(
    ("label", "word"),
    [
        ("model_format", "compatibility"), ("memory", "memory"), ("missing_cpu", "cpu"), ("too_short", "survival"),
        ("network", "network"), ("dependent", "dependent"), ("of another release", "accelerator"),
    ],
)  # fmt: skip
def test_a_pool_of_no_use_says_why(label: str, word: str) -> None:
    idle = [unusable("zzz", 9.0), unusable(label, 5.0), unusable("memory", 0.0)]
    assert bottleneck(supply(usable_units=0.0), held(), unusable=idle) == word
    assert bottleneck(supply(usable_units=0.0), held()) == "accelerator"


def test_more_that_is_of_no_use_than_of_use_is_named_instead_of_accelerators() -> None:
    for price in ([], prices(accelerator=1.0)):
        few, many = ([unusable("missing_cpu", units), unusable("memory", 1.0)] for units in (9.0, 11.0))
        assert bottleneck(supply(), held(), unusable=few, prices=price) == "accelerator"
        assert bottleneck(supply(), held(), unusable=many, prices=price) == "cpu"
    assert bottleneck(supply(memory_gib=1.0), held(), unusable=[unusable("missing_cpu", 99.0)]) == "memory"


def test_a_pool_too_short_lived_for_a_start_is_named_where_the_allocator_does_not_start() -> None:
    assert bottleneck(supply(survives={"rma": 0.2}), held()) == "survival"
    assert bottleneck(supply(survives={"rma": 0.21}), held()) == "accelerator"
    assert bottleneck(supply(survives={"sbm": 0.0}), held()) == "accelerator"
    bold = AllocatorSettings(lost_start_cost=0.0)
    assert bottleneck(supply(survives={"rma": 0.2}), held(), settings=bold) == "accelerator"


def test_a_lever_at_its_cap_is_kept_by_its_cap() -> None:
    dear = prices(accelerator=9.0)
    assert bottleneck(supply(), held(max_share=0.5, units_in_cell=10.0), prices=dear) == "cap"
    assert bottleneck(supply(), held(max_share=0.5, units_in_cell=9.9), prices=dear) == "accelerator"
    assert bottleneck(supply(), held(max_share=0.0, units_in_cell=0.0)) == "cap"
    # All there is is no cap.
    assert bottleneck(supply(), held(units_in_cell=20.0)) == "accelerator"


def test_the_word_for_a_pool_is_that_of_the_lever_that_has_most_of_it() -> None:
    rma = LeverUnits(lever="rma", units_micro=3, bottleneck="cpu")
    sbm = LeverUnits(lever="sbm", units_micro=5, bottleneck="accelerator")
    foreign = LeverUnits(lever="precompute", units_micro=0, bottleneck="compatibility")
    assert pool_bottleneck([foreign, rma, sbm]) == "accelerator"
    assert pool_bottleneck([foreign, rma]) == "cpu"
    assert pool_bottleneck([foreign]) == "compatibility"
    assert pool_bottleneck([]) == ""
