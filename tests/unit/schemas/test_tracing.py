"""Trace context in headers, as the W3C recommendation has it."""

import pytest

from schemas.tracing import TraceContext, trace_from

VALID = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_context_survives_its_header() -> None:
    context = TraceContext.new()
    assert trace_from([context.header()]) == context


def test_a_child_keeps_the_trace_and_has_a_span_of_its_own() -> None:
    parent = trace_from([("traceparent", VALID)])
    assert parent is not None
    child = parent.child()
    assert child.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert child.span_id != parent.span_id


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00-xyz",
        b"ff" + VALID[2:],
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01",
        VALID.upper(),
        b"\xff\xfe",
    ],
)
def test_an_invalid_header_is_no_context(value: bytes | None) -> None:
    assert trace_from([("traceparent", value)]) is None
    assert trace_from(None) is None
