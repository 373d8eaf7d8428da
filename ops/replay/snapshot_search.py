"""Finds, for each cell, the snapshot that a replay of control begins with, and its place in control.windows."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from confluent_kafka import Consumer

from ops.replay.snapshots import Begin, Pivots, WholeStates
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.kafka.config import Config, consumer_config
from schemas.kafka.dead_letters import raw_record
from schemas.kafka.ranges import offsets_at, read_ranges, read_to_end, watermarks
from schemas.partition import partition_for
from schemas.records import ControllerSnapshot, ControlWindow
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_STATE, CONTROL_WINDOWS, Namespace
from streams.control.believe import believed
from streams.control.state import CellState, StateError
from streams.control.uplift.state import SumsError


def begins(
    config: Config, live: Namespace, *, time: TimeSettings, num_partitions: int, before_ms: int | None
) -> dict[str, Begin]:
    """State of each cell to begin with: the last snapshot of a window that ends by ``before_ms``, else the first one.

    A cell whose snapshot cannot be found in the log any more is left out. Raises BrokerError.
    """
    by_partition: dict[int, dict[str, CellState]] = {}
    for cell, state in _chosen(config, live, before_ms=before_ms).items():
        by_partition.setdefault(partition_for(cell.encode(), num_partitions), {})[cell] = state
    found: dict[str, Begin] = {}
    for partition, states in sorted(by_partition.items()):
        pivots = Pivots(states)
        for window, offset in _windows(config, live, partition, states, time=time, num_partitions=num_partitions):
            pivots.see(window, offset)
            if pivots.is_complete:
                break
        found |= pivots.found()
    return found


def _chosen(config: Config, live: Namespace, *, before_ms: int | None) -> dict[str, CellState]:
    decoder = Decoder(CONTROL_STATE.record_types)
    whole = WholeStates()
    chosen: dict[str, CellState] = {}
    for message in read_to_end(config, live.topic(CONTROL_STATE)):
        # What another release wrote, or cannot be read, is no place to begin.
        with suppress(RecordError, StateError, SumsError):
            snapshot = decoder.decode(message.value())
            assert isinstance(snapshot, ControllerSnapshot)
            state = whole.see(snapshot)
            if state is None:
                continue
            known = chosen.get(snapshot.cell)
            if before_ms is None:
                chosen.setdefault(snapshot.cell, state)
            elif (state.last_tick + 1) * state.window_ms <= before_ms and (
                known is None or state.last_tick * state.window_ms >= known.last_tick * known.window_ms
            ):
                chosen[snapshot.cell] = state
    return chosen


def _windows(
    config: Config,
    live: Namespace,
    partition: int,
    states: Mapping[str, CellState],
    *,
    time: TimeSettings,
    num_partitions: int,
) -> Iterator[tuple[ControlWindow, int]]:
    """The log of a partition from before the first of the snapshots' windows can stand in it."""
    topic = live.topic(CONTROL_WINDOWS)
    # A window is written after its end, by the broker's clock.
    from_ms = min((state.last_tick + 1) * state.window_ms for state in states.values()) - time.skew_ms
    consumer = Consumer(consumer_config(config, f"{topic}.search"))
    try:
        spans = watermarks(consumer, topic, [partition])
        start = offsets_at(consumer, topic, spans, from_ms)[partition]
    finally:
        consumer.close()
    for message in read_ranges(config, topic, {partition: (start, spans[partition][1])}):
        with suppress(RecordError):
            window = believed(raw_record(message), num_partitions=num_partitions, skew_ms=time.skew_ms)
            yield window, message.offset() or 0
