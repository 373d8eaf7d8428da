"""Whether a record of control.windows can be read and believed. Pure."""

from collections.abc import Iterator

from schemas.dead_letters import RawRecord
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.partition import partition_for
from schemas.records import ControlWindow, HistogramFields, LatencyWindow
from schemas.topics import CONTROL_WINDOWS
from streams.control.facts import histogram_of
from streams.control.uplift.believe import check_measured

_DECODER = Decoder(CONTROL_WINDOWS.record_types)


def believed(record: RawRecord, *, num_partitions: int, skew_ms: int) -> ControlWindow:
    """Window in a record; raises RecordError with the reason why it is refused.

    A window that ends after its own append time, by more than the allowed skew, would make the controller deaf to every
    real window before it: it is refused like any event from the future.
    """
    window = _DECODER.decode(record.value)
    assert isinstance(window, ControlWindow)
    cell = window.cell.encode()
    if record.key != cell:
        raise RecordError("key_mismatch", f"cell {window.cell} under key {record.key!r}", field="cell")
    expected = partition_for(cell, num_partitions)
    if record.partition != expected:
        raise RecordError("wrong_partition", f"key leads to {expected}, found in {record.partition}", field="cell")
    _check_body(window)
    if window.kind != "command":
        _check_times(window, record, skew_ms=skew_ms)
    if window.kind in ("results", "outcomes"):
        check_measured(window, skew_ms=skew_ms)
    return window


def _check_body(window: ControlWindow) -> None:
    if getattr(window, window.kind) is None:
        raise RecordError("invalid_field", f"a {window.kind} window without its {window.kind}", field=window.kind)
    if window.kind == "latency":
        assert window.latency is not None
        for field, packed in _histograms(window.latency):
            try:
                histogram_of(packed)
            except ValueError as error:
                raise RecordError("invalid_field", str(error), field=f"latency.{field}") from error
    if window.kind == "command":
        command = window.command
        assert command is not None
        if command.action == "override" and command.candidate_target is None and command.coverage is None:
            raise RecordError("invalid_field", "an override of nothing", field="command.candidate_target")


def _histograms(latency: LatencyWindow) -> Iterator[tuple[str, HistogramFields]]:
    """Every histogram that a tick may read, by the field that it stands in."""
    yield "latency", latency.latency
    if latency.upstream is not None:
        yield "upstream", latency.upstream
    for route in latency.routes:
        yield f"routes.{route.part}.{route.route}.latency", route.latency
    for router in latency.routers:
        yield f"routers.{router.source}.latency", router.latency


def _check_times(window: ControlWindow, record: RawRecord, *, skew_ms: int) -> None:
    window_ms = window.end_ms - window.start_ms
    if window_ms <= 0 or window.start_ms != window.window_index * window_ms:
        raise RecordError(
            "invalid_field",
            f"window {window.window_index} cannot be [{window.start_ms}, {window.end_ms})",
            field="window_index",
        )
    if window.end_ms > record.timestamp_ms + skew_ms:
        raise RecordError(
            "future_event",
            f"ends {window.end_ms - record.timestamp_ms} ms after it was written",
            field="end_ms",
        )
