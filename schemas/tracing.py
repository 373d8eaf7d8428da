"""W3C trace context in Kafka headers (https://www.w3.org/TR/trace-context/)."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

TRACEPARENT = "traceparent"
_PATTERN = re.compile(r"^(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$")

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class TraceContext:
    """Trace of one request: 16-byte trace id and 8-byte parent id in lowercase hex, and whether it is sampled."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @classmethod
    def new(cls) -> "TraceContext":
        return cls(secrets.token_hex(16), secrets.token_hex(8))

    def child(self) -> "TraceContext":
        """The same trace with a span of its own."""
        return TraceContext(self.trace_id, secrets.token_hex(8), self.sampled)

    def header(self) -> tuple[str, bytes]:
        return TRACEPARENT, f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}".encode()


def trace_from(headers: Headers | None) -> TraceContext | None:
    """Trace context in a record's headers, or None where there is none that is valid."""
    for key, value in headers or ():
        if key.lower() != TRACEPARENT or value is None:
            continue
        match = _PATTERN.match(value.decode("ascii", "replace"))
        if match and set(match[1]) != {"0"} and set(match[2]) != {"0"}:
            return TraceContext(match[1], match[2], bool(int(match[3], 16) & 1))
    return None


def child_headers(trace: TraceContext | None) -> list[tuple[str, bytes | None]]:
    """Record headers of a step within a trace; none outside of one."""
    return [] if trace is None else [trace.child().header()]
