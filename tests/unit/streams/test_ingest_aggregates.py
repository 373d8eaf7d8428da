"""What capacity and latency windows sum up, and that their size and figures stay within bounds."""

from typing import Any, Literal

from schemas.framing import MAX_RECORD_BYTES, decode_as, encode
from schemas.histogram import ExponentialHistogram, merge
from schemas.records import CapacityEvent, ControlWindow, ReclaimTiming
from streams.ingest.bounds import MAX_COUNT, OTHER
from streams.ingest.capacity import CapacityCell
from streams.ingest.latency import SATURATED, LatencyCell
from tests.unit.streams.ingest_makers import (
    LIMITS,
    TIME,
    account,
    capacity_of,
    event,
    histogram,
    interval,
    latency_of,
    offer,
    route,
)


def capacity_cell() -> CapacityCell:
    return CapacityCell(window_ms=TIME.window_ms, ttl_ms=TIME.host_ttl_ms)


def accept(cell: CapacityCell | LatencyCell, record: Any, *, window: int = 10) -> None:
    cell.accept(record, window=window, append_ms=record.event_time_ms, late=False)


def as_read(window: Any, *, kind: Literal["capacity", "latency"]) -> Any:
    """The window's content after a trip through its bytes: within the bounds of its record."""
    sent = ControlWindow(
        cell="us-east", kind=kind, source_partition=0, window_index=10, start_ms=0, end_ms=1,
        capacity=window.capacity, latency=window.latency, note=window.note,
    )  # fmt: skip
    encoded = encode(sent)
    assert len(encoded) < MAX_RECORD_BYTES * 0.9
    return getattr(decode_as(encoded, ControlWindow), kind)


def test_pools_sum_up_hosts_units_and_labels_in_order_of_names() -> None:
    cell = capacity_cell()
    accept(
        cell,
        event(host="a", at_ms=1_000, kind="offer", offers=[offer("h200", 0.1), offer("h200", 0.2, unusable="memory")]),
    )
    accept(
        cell,
        event(
            host="b",
            at_ms=1_000,
            kind="offer",
            offers=[offer("a100", 4.0, reclaim_at_ms=5, provider="", idle_cause="not_ported")],
        ),
    )
    window = as_read(cell.close(10, LIMITS), kind="capacity")
    a100, h200 = window.pools
    assert (a100.accelerator, a100.num_hosts, a100.units_micro, a100.noticed_units_micro) == (
        "a100",
        1,
        4_000_000,
        4_000_000,
    )
    assert [(label.label, label.units_micro) for label in a100.providers] == [("unknown", 4_000_000)]
    assert [(label.label, label.units_micro) for label in a100.causes] == [("not_ported", 4_000_000)]
    # Floats would sum up to 300_000.00000000006; one host with two offers is one host, and one offer event.
    assert (h200.units_micro, h200.num_hosts, h200.num_offers, h200.memory_bytes) == (300_000, 1, 1, 128)
    assert [(label.label, label.units_micro) for label in h200.unusable] == [("memory", 200_000)]
    assert (window.num_hosts, window.limits) == (2, LIMITS)


def test_a_host_that_offers_less_takes_away_what_it_had_and_reclaims_are_counted() -> None:
    cell = capacity_cell()
    timing = ReclaimTiming(accelerator="h200", reason="peak", flipped_ms=1, reaction_us=5, drained_us=9, num_rankers=1)
    accept(cell, event(at_ms=1_000, offers=[offer("h200", 2.0), offer("cpu", 3.0)]))
    cell.close(10, LIMITS)
    accept(cell, event(seq=2, at_ms=1_100, kind="reclaim", offers=[offer("cpu", 3.0)], reclaims=[timing]), window=11)
    window = capacity_of(cell.close(11, LIMITS))
    assert [(pool.accelerator, pool.units_micro, pool.num_reclaims) for pool in window.pools] == [
        ("cpu", 3_000_000, 0), ("h200", 0, 1),
    ]  # fmt: skip
    assert [pool.accelerator for pool in capacity_of(cell.close(12, LIMITS)).pools] == ["cpu"]


def test_a_window_costs_no_look_at_hosts_that_did_not_change() -> None:
    """Ten thousand hosts that say nothing: closing windows touches none of them until they expire."""
    touched: list[str] = []

    class Watched(CapacityCell):
        def _renew(self, host: str, front: Any, oldest_ms: int) -> Any:
            touched.append("one")
            return super()._renew(host, front, oldest_ms)

    cell = Watched(window_ms=TIME.window_ms, ttl_ms=1_000)
    for number in range(10_000):
        accept(cell, event(host=f"h-{number}", at_ms=1_000))
    cell.close(10, LIMITS)
    touched.clear()
    accept(cell, event(host="h-7", seq=2, at_ms=1_100), window=11)
    for window in range(11, 19):
        cell.close(window, LIMITS)
    assert len(touched) == 1
    assert capacity_of(cell.close(19, LIMITS)).num_hosts == 10_000
    assert capacity_of(cell.close(20, LIMITS)).num_hosts_silent == 9_999
    assert capacity_of(cell.close(21, LIMITS)).num_hosts_silent == 1


def test_a_wild_fleet_still_makes_a_window_that_can_be_sent_and_read() -> None:
    cell = capacity_cell()
    for number in range(40):
        offers = [
            offer(
                f"kind-{number}-{index}-".ljust(250, "x"),
                1e12,
                memory_bytes=MAX_COUNT,
                provider=f"p-{number}-{index}".ljust(250, "y"),
            )
            for index in range(100)
        ]
        accept(cell, event(host=f"h-{number}", at_ms=1_000, kind="offer", offers=offers))
        accept(
            cell,
            event(
                host=f"g-{number}",
                at_ms=1_000,
                offers=[offer("h200", 1e12, memory_bytes=MAX_COUNT, provider=f"q-{number}")],
            ),
        )
    window = as_read(cell.close(10, LIMITS), kind="capacity")
    assert OTHER in [pool.accelerator for pool in window.pools]
    h200 = next(pool for pool in window.pools if pool.accelerator == "h200")
    assert h200.units_micro == h200.memory_bytes == MAX_COUNT
    assert len(h200.providers) == 17


def test_latency_merges_exactly_and_keeps_the_parts_apart() -> None:
    cell = LatencyCell()
    accept(
        cell,
        interval(
            source="r-1",
            at_ms=1_000,
            latency=histogram(1.0, 900.0),
            num_requests=2,
            num_errors=1,
            routes=[route("wide", [4.0], num_work=3, pressure=0.25)],
        ),
    )
    accept(
        cell,
        interval(
            source="r-1",
            seq=2,
            at_ms=1_010,
            latency=histogram(5.0),
            num_requests=1,
            routes=[route("wide", [5.0], num_lost=1, pressure=0.75)],
        ),
    )
    accept(
        cell,
        interval(
            source="k-1",
            part="ranker",
            at_ms=1_010,
            latency=histogram(7.0),
            num_requests=9,
            routes=[route("wide", [6.0], busy_us=50, units_done=8), route("baseline")],
            accounts=[account("rma", admitted=9)],
        ),
    )
    window = as_read(cell.close(10, LIMITS), kind="latency")
    # What routers say of requests, and routers alone.
    assert window.latency == histogram(1.0, 900.0, 5.0)
    assert (window.num_requests, window.num_errors, window.accounts) == (3, 1, [])
    assert (window.num_routers, window.num_rankers, window.num_intervals) == (1, 1, 3)
    assert [(r.part, r.route, r.num_reporters) for r in window.routes] == [
        ("ranker", "baseline", 1), ("ranker", "wide", 1), ("router", "wide", 1),
    ]  # fmt: skip
    of_replicas, of_routers = window.routes[1:]
    assert (of_replicas.latency, of_replicas.busy_us, of_replicas.units_done) == (histogram(6.0), 50, 8)
    assert (of_routers.latency, of_routers.num_work, of_routers.num_lost) == (histogram(4.0, 5.0), 3, 1)
    assert of_routers.max_pressure_micro == 750_000
    assert latency_of(cell.close(11, LIMITS)).num_intervals == 0


def test_a_merged_histogram_is_that_of_all_values_in_any_order() -> None:
    values = [0.0, 0.01, 3.0, 250.0, 80_000.0, 3.1]
    for order in (values, values[::-1]):
        cell = LatencyCell()
        for number, value in enumerate(order):
            accept(cell, interval(seq=number, at_ms=1_000, latency=histogram(value)))
        merged = merge([ExponentialHistogram.from_fields(**_fields(histogram(value))) for value in values])
        assert _fields(latency_of(cell.close(10, LIMITS)).latency) == dict(merged.to_fields())


def test_accounts_add_up_by_lever_and_reason() -> None:
    cell = LatencyCell()
    accept(
        cell,
        interval(
            source="r-1",
            at_ms=1_000,
            accounts=[account("sbm", admitted=1), account("rma", admitted=5, late=1, pressure=2)],
        ),
    )
    accept(cell, interval(source="r-2", at_ms=1_000, accounts=[account("rma", lost=3, pressure=1, deadline=4)]))
    window = as_read(cell.close(10, LIMITS), kind="latency")
    assert window.accounts == [
        account("rma", admitted=5, late=1, lost=3, deadline=4, pressure=3),
        account("sbm", admitted=1),
    ]


def test_totals_beyond_their_bounds_are_left_out_and_said() -> None:
    huge = histogram(1.0)
    huge = type(huge)(**_fields(huge) | {"counts": (2**53).to_bytes(8, "little"), "count": 2**53})
    cell = LatencyCell()
    for number in range(2):
        accept(
            cell,
            interval(
                seq=number,
                at_ms=1_000,
                latency=huge,
                num_requests=MAX_COUNT,
                accounts=[account("rma", admitted=MAX_COUNT // 10)],
            ),
        )
    closed = cell.close(10, LIMITS)
    window = as_read(closed, kind="latency")
    assert closed.note == SATURATED
    assert (window.latency.count, window.num_requests) == (2**53, MAX_COUNT)


def test_many_reasons_stand_together() -> None:
    cell = LatencyCell()
    for number in range(200):
        accept(cell, interval(seq=number, at_ms=1_000, accounts=[account("rma", **{f"reason-{number:03d}": number})]))
    (rma,) = as_read(cell.close(10, LIMITS), kind="latency").accounts
    assert len(rma.sheds) == 65
    assert rma.offered == sum(shed.units for shed in rma.sheds) == sum(range(200))
    assert next(shed.units for shed in rma.sheds if shed.reason == OTHER) == sum(range(136))


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_events_are_snapshots() -> None:
    """Each event replaces what its host said before, whole."""
    cell = capacity_cell()
    events: list[CapacityEvent] = [event(seq=seq, at_ms=1_000 + seq, offers=[offer(f"kind-{seq}")]) for seq in range(3)]
    for record in events:
        accept(cell, record)
    assert [pool.accelerator for pool in capacity_of(cell.close(10, LIMITS)).pools] == ["kind-2"]


def test_what_is_of_no_use_takes_nothing_away_when_it_is_announced_to_go() -> None:
    cell = capacity_cell()
    offers = [offer("a100", 4.0), offer("a100", 3.0, unusable="memory", reclaim_at_ms=5)]
    accept(cell, event(host="a", at_ms=1_000, kind="offer", offers=offers))
    (pool,) = as_read(cell.close(10, LIMITS), kind="capacity").pools
    assert (pool.units_micro, pool.noticed_units_micro) == (7_000_000, 0)
