"""Ingest of one capacity partition, beside a bare loop that only reads and decodes the same records.

Both take the same records from memory, chunk by chunk and by turns, each first in every other chunk. The ratio says
what is left of the decoder's rate once windows, order, expiry and sums are kept as well. A chunk is one heartbeat of
the whole fleet: 2,000 hosts of one cell, 8 offers each, 724 bytes a record.
"""

import time
from collections.abc import Callable

from benchmarks.measurement import Measurement
from ops.telemetry.progress import progress
from schemas.framing import Decoder, encode
from schemas.records import CapacityEvent, CellDeclaration, CellLimits, CellRevision, Offer
from schemas.records.fields import IdleCause
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY
from streams.ingest.capacity import CapacityKind
from streams.ingest.cells import Cells
from streams.ingest.partition import PartitionProcessor, RawRecord

NUM_HOSTS = 2_000
RECORD_BYTES = 724
NUM_TURNS = 5
# Of each turn; even, so that each side is first as often and, with windows of two heartbeats, all turns close as many.
NUM_CHUNKS, NUM_CHUNKS_QUICK = 12, 4
# Until as many hosts fall out of the horizon as come in: one time to live.
NUM_WARM_UP_CHUNKS = 6

CELL = "us-east"
TIME = TimeSettings()
START_MS = 1_700_000_000_000
# A number that Avro writes in two bytes, as most of a long-lived agent's are: records keep their length.
FIRST_SEQ = 100
ACCELERATORS = ("nvidia-h200", "nvidia-h100", "nvidia-a100", "nvidia-l40s", "nvidia-l4", "amd-mi300x", "tpu-v5e", "cpu")
CAUSES: tuple[IdleCause, ...] = ("off_peak", "ahead_of_models", "region_imbalance", "not_ported")
PROVIDER = "own-datacentre-us-east-01a"

OffersOf = Callable[[int, int], list[Offer]]


def measure(*, quick: bool) -> list[Measurement]:
    """Records per CPU second of the processor and of the bare loop, for heartbeats that repeat and that change."""
    variants: tuple[tuple[str, OffersOf], ...] = (
        ("ingest, heartbeats repeat their offers", _same_offers),
        ("ingest, every offer changes", _new_offers),
    )
    return [_compare(name, offers_of, NUM_CHUNKS_QUICK if quick else NUM_CHUNKS) for name, offers_of in variants]


def _compare(name: str, offers_of: OffersOf, num_chunks: int) -> Measurement:
    cells = Cells(window_ms=TIME.window_ms)
    limits = CellLimits(base_candidates=100, max_candidates=500, latency_limit_ms=200.0)
    cells.declare(
        CellDeclaration(cell=CELL, window_ms=TIME.window_ms, revisions=[CellRevision(from_window=0, limits=limits)])
    )
    processor = PartitionProcessor(CapacityKind(), 0, num_partitions=1, time=TIME, cells=cells)
    decoder = Decoder(FLEET_CAPACITY.record_types)

    def process(records: list[RawRecord]) -> None:
        out = processor.process(records)
        assert not out.refusals, out.refusals[0].error
        assert not out.num_duplicates

    def decode(records: list[RawRecord]) -> None:
        for record in records:
            decoder.decode(record.value)

    for number in range(NUM_WARM_UP_CHUNKS):
        process(_chunk(number, offers_of))
    processed: list[float] = []
    decoded: list[float] = []
    first = NUM_WARM_UP_CHUNKS
    with progress(name, total=NUM_TURNS * num_chunks) as advance:
        for turn in range(NUM_TURNS):
            process_ns = decode_ns = 0
            for number in range(first + turn * num_chunks, first + (turn + 1) * num_chunks):
                records = _chunk(number, offers_of)
                if number % 2:
                    process_ns += _cpu_ns(process, records)
                    decode_ns += _cpu_ns(decode, records)
                else:
                    decode_ns += _cpu_ns(decode, records)
                    process_ns += _cpu_ns(process, records)
                advance(1)
            processed.append(num_chunks * NUM_HOSTS / process_ns * 1e9)
            decoded.append(num_chunks * NUM_HOSTS / decode_ns * 1e9)
    return Measurement(
        name=name,
        unit="records/CPU s",
        values=processed,
        reference="read and decode only",
        reference_values=decoded,
    )


def _cpu_ns(work: Callable[[list[RawRecord]], None], records: list[RawRecord]) -> int:
    start_ns = time.process_time_ns()
    work(records)
    return time.process_time_ns() - start_ns


def _chunk(number: int, offers_of: OffersOf) -> list[RawRecord]:
    """One heartbeat of every host, spread evenly over the time between two."""
    key = CELL.encode()
    records = []
    for host in range(NUM_HOSTS):
        now_ms = START_MS + number * TIME.heartbeat_ms + host * TIME.heartbeat_ms // NUM_HOSTS
        event = CapacityEvent(
            cell=CELL,
            host=f"host-{host:06}.r-{host // 40:04}.us-east.example",
            epoch_ms=START_MS,
            seq=FIRST_SEQ + number,
            event_time_ms=now_ms,
            kind="heartbeat",
            offers=offers_of(host, number),
        )
        value = encode(event)
        assert len(value) == RECORD_BYTES, len(value)
        records.append(RawRecord(number * NUM_HOSTS + host, now_ms, key, value))
    return records


def _same_offers(host: int, _number: int) -> list[Offer]:
    # As in a real fleet, few different machines: what one host offers, many offer.
    return _offers(units=1.0 + host % 8, extra_bytes=0)


def _new_offers(host: int, number: int) -> list[Offer]:
    # No offer was ever made before, by this host or another: nothing can be shared.
    return _offers(units=1.0 + (host + number) % 8, extra_bytes=number * NUM_HOSTS + host)


def _offers(*, units: float, extra_bytes: int) -> list[Offer]:
    return [
        Offer(
            accelerator=accelerator,
            units=units,
            cpu_cores=8.0 * units,
            memory_bytes=(64 << 30) + extra_bytes,
            idle_cause=CAUSES[place % len(CAUSES)],
            provider=PROVIDER,
            offered_since_ms=START_MS,
        )
        for place, accelerator in enumerate(ACCELERATORS)
    ]
