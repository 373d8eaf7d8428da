"""What the windows of a raw partition are, straight from the definitions: slow, stateless, and written apart.

It looks at the whole log for every question, and shares no code with the processor but the decoding of records.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from schemas.age_classes import AGE_CLASSES_S
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.partition import partition_for
from schemas.records import CellDeclaration, ClockRecord, ControlWindow
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY
from streams.ingest.partition import RawRecord
from tests.unit.streams.ingest_makers import capacity_of

Seen = tuple[int, int, bool, Any]  # append time, window, late, record


def accepted_and_refused(
    raws: Sequence[RawRecord], *, home: int, num_partitions: int, time: TimeSettings, cells: Sequence[CellDeclaration]
) -> tuple[list[Seen], list[Seen], dict[int, str], list[int]]:
    """Accepted records, duplicates, reasons of refusals by offset, and the clock after each record that counts."""
    decoder = Decoder(FLEET_CAPACITY.record_types)
    declared = {cell.cell: cell for cell in cells}
    counted: list[Seen] = []
    refused: dict[int, str] = {}
    clocks: list[int] = []
    for raw in raws:
        append_ms = max([*clocks[-1:], raw.append_ms])
        try:
            record: Any = decoder.decode(raw.value)
        except RecordError as error:
            refused[raw.offset] = error.reason
            continue
        if isinstance(record, ClockRecord):
            clocks.append(append_ms)
            continue
        first_open = max(0, (append_ms - time.lateness_ms) // time.window_ms)
        window = max(record.event_time_ms // time.window_ms, first_open)
        key = record.cell.encode()
        if raw.key != key:
            refused[raw.offset] = "key_mismatch"
        elif partition_for(key, num_partitions) != home:
            refused[raw.offset] = "wrong_partition"
        elif max(record.event_time_ms, record.epoch_ms) > append_ms + time.skew_ms:
            refused[raw.offset] = "future_event"
        elif record.cell not in declared or declared[record.cell].limits_at(window) is None:
            refused[raw.offset] = "unknown_cell"
        else:
            clocks.append(append_ms)
            counted.append((append_ms, window, record.event_time_ms // time.window_ms < first_open, record))
    accepted: list[Seen] = []
    duplicates: list[Seen] = []
    for index, seen in enumerate(counted):
        append_ms, _, _, record = seen
        again = any(
            (earlier.cell, earlier.host) == (record.cell, record.host)
            and at_ms >= append_ms - time.host_ttl_ms
            and (earlier.epoch_ms, earlier.seq) >= (record.epoch_ms, record.seq)
            for at_ms, _, _, earlier in counted[:index]
        )
        (duplicates if again else accepted).append(seen)
    return accepted, duplicates, refused, clocks


def capacity_figures(
    raws: Sequence[RawRecord], *, home: int, num_partitions: int, time: TimeSettings, cells: Sequence[CellDeclaration]
) -> dict[tuple[str, int], dict[str, Any]]:
    """The figures of every capacity window of a raw partition, by cell and window."""
    accepted, duplicates, _, clocks = accepted_and_refused(
        raws, home=home, num_partitions=num_partitions, time=time, cells=cells
    )
    figures = {}
    for window in range(*_closed(clocks, time)):
        for cell in cells:
            limits = cell.limits_at(window)
            if limits is None or partition_for(cell.cell.encode(), num_partitions) != home:
                continue
            mine = [seen for seen in accepted if seen[3].cell == cell.cell]
            before, now = _hosts(mine, window - 1, time), _hosts(mine, window, time)
            inside = [seen for seen in mine if seen[1] == window]
            figures[cell.cell, window] = {
                "limits": limits,
                "num_hosts": len(now),
                "num_hosts_silent": len(before.keys() - now.keys()),
                "num_events": len(inside),
                "num_late": sum(late for _, _, late, _ in inside),
                "num_duplicates": sum(1 for _, w, _, r in duplicates if w == window and r.cell == cell.cell),
                "pools": _pools(before, now, inside, end_ms=(window + 1) * time.window_ms),
            }
    return figures


def figures_of(window: ControlWindow) -> dict[str, Any]:
    """The same figures as a window states them."""
    capacity = capacity_of(window)
    pools = {}
    for pool in capacity.pools:
        pools[pool.accelerator] = {
            "num_hosts": pool.num_hosts,
            "units": pool.units_micro,
            "cpu_cores": pool.cpu_cores_micro,
            "memory": pool.memory_bytes,
            "noticed": pool.noticed_units_micro,
            "num_offers": pool.num_offers,
            "num_reclaims": pool.num_reclaims,
            "causes": {label.label: label.units_micro for label in pool.causes},
            "unusable": {label.label: label.units_micro for label in pool.unusable},
            "providers": {label.label: label.units_micro for label in pool.providers},
            "ages": {aged.from_age_s: aged.units_micro for aged in pool.ages if aged.units_micro},
            "age_unit_ms": pool.age_unit_ms,
            "taken": {aged.from_age_s: aged.taken_micro for aged in pool.ages if aged.taken_micro},
            "num_hosts_silent": pool.num_hosts_silent,
            "silent_units": pool.silent_units_micro,
        }
    names = ("limits", "num_hosts", "num_hosts_silent", "num_events", "num_late", "num_duplicates")
    return {name: getattr(capacity, name) for name in names} | {"pools": pools}


def _closed(clocks: Sequence[int], time: TimeSettings) -> tuple[int, int]:
    if not clocks:
        return 0, 0
    first, last = (max(0, (clock_ms - time.lateness_ms) // time.window_ms) for clock_ms in (clocks[0], clocks[-1]))
    return first, last


def _hosts(accepted: Sequence[Seen], window: int, time: TimeSettings) -> dict[str, Any]:
    """The record that counts of each host that is alive at a window's end."""
    end_ms = (window + 1) * time.window_ms
    hosts: dict[str, Any] = {}
    for append_ms, belongs_to, _, record in accepted:
        if belongs_to <= window and append_ms >= end_ms - time.host_ttl_ms:
            held = hosts.get(record.host)
            if held is None or (record.epoch_ms, record.seq) > (held.epoch_ms, held.seq):
                hosts[record.host] = record
    return hosts


def _pools(
    before: dict[str, Any], now: dict[str, Any], inside: Sequence[Seen], *, end_ms: int
) -> dict[str, dict[str, Any]]:
    offers = [(host, offer) for host, record in now.items() for offer in record.offers]
    paths = {host: _path(host, before, now, inside) for host in before.keys() | now.keys()}
    # A host that fell silent took with it what it had said last.
    silent = [(host, offer) for host, path in paths.items() if path[-1] is None for offer in path[-2].offers]
    taken = _taken(paths, end_ms=end_ms)
    num_offers = Counter(name for *_, r in inside if r.kind == "offer" for name in {o.accelerator for o in r.offers})
    num_reclaims = Counter(timing.accelerator for *_, r in inside for timing in r.reclaims)
    pools = {}
    named = {offer.accelerator for _, offer in [*offers, *silent]}
    for name in named | num_offers.keys() | num_reclaims.keys() | taken.keys():
        mine = [(host, offer) for host, offer in offers if offer.accelerator == name]
        gone = [(host, offer) for host, offer in silent if offer.accelerator == name]
        usable = [(host, offer) for host, offer in mine if offer.unusable is None]
        pools[name] = {
            "num_hosts": len({host for host, _ in mine}),
            "units": sum(_micro(offer.units) for _, offer in mine),
            "cpu_cores": sum(_micro(offer.cpu_cores) for _, offer in mine),
            "memory": sum(offer.memory_bytes for _, offer in mine),
            "noticed": sum(_micro(offer.units) for _, offer in usable if offer.reclaim_at_ms is not None),
            "num_offers": num_offers[name],
            "num_reclaims": num_reclaims[name],
            "causes": _by(mine, lambda offer: offer.idle_cause),
            "unusable": _by([pair for pair in mine if pair[1].unusable is not None], lambda offer: offer.unusable),
            "providers": _by(mine, lambda offer: offer.provider or "unknown"),
            "ages": _by(usable, lambda offer: _age_class_s(_age_ms(offer.offered_since_ms, end_ms))),
            "age_unit_ms": sum(_micro(o.units) * _age_ms(o.offered_since_ms, end_ms) for _, o in usable) // 1_000_000,
            "taken": dict(taken.get(name, {})),
            "num_hosts_silent": len({host for host, _ in gone}),
            "silent_units": sum(_micro(offer.units) for _, offer in gone if offer.unusable is None),
        }
    return pools


def _taken(paths: dict[str, list[Any]], *, end_ms: int) -> dict[str, Counter[int]]:
    """Usable units lost in the window, by accelerator and age class in seconds."""
    taken: dict[str, Counter[int]] = {}
    for path in paths.values():
        for one, other in pairwise(path):
            at_ms = other.event_time_ms if other else end_ms
            left = _usable(other) if other else Counter()
            for (name, since_ms), units in (_usable(one) - left).items():
                taken.setdefault(name, Counter())[_age_class_s(_age_ms(since_ms, at_ms))] += units
    return taken


def _path(host: str, before: dict[str, Any], now: dict[str, Any], inside: Sequence[Seen]) -> list[Any]:
    """Records of a host from what counted at the window's start to what counts at its end, None where it is silent."""
    first, last = before.get(host), now.get(host)
    return [*([first] if first else []), *_told(host, first, last, inside), last]


def _told(host: str, first: Any, last: Any, inside: Sequence[Seen]) -> list[Any]:
    """The window's records that take something back, and those before them, between what counted and what counts."""
    mine = [record for *_, record in inside if record.host == host]
    taking = {index for index, record in enumerate(mine) if record.kind in ("update", "reclaim")}
    told = [record for index, record in enumerate(mine) if index in taking or index + 1 in taking]
    return sorted(
        (r for r in told if (not first or _order(r) > _order(first)) and (not last or _order(r) < _order(last))),
        key=_order,
    )


def _order(record: Any) -> tuple[int, int]:
    return record.epoch_ms, record.seq


def _usable(record: Any) -> Counter[tuple[str, int]]:
    units: Counter[tuple[str, int]] = Counter()
    for offer in record.offers:
        if offer.unusable is None:
            units[offer.accelerator, offer.offered_since_ms] += _micro(offer.units)
    return units


def _age_ms(since_ms: int, at_ms: int) -> int:
    # An offer that does not say since when is as young as can be.
    return max(0, at_ms - since_ms) if since_ms else 0


def _age_class_s(age_ms: int) -> int:
    return max(from_age_s for from_age_s in AGE_CLASSES_S if from_age_s * 1_000 <= age_ms)


def _by(offers: Sequence[tuple[str, Any]], label: Any) -> dict[Any, int]:
    totals: Counter[Any] = Counter()
    for _, offer in offers:
        totals[label(offer)] += _micro(offer.units)
    return {name: units for name, units in totals.items() if units}


def _micro(quantity: float) -> int:
    return round(quantity * 1_000_000)
