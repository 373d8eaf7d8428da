"""Callers whose broker is away give their requests up and go on."""

import pytest

from ops.simulator.impatient import ImpatientSender
from schemas.records import ClockRecord


@pytest.fixture
def sender() -> ImpatientSender:
    """A sender whose broker refuses every connection."""
    return ImpatientSender({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, patience_ms=100)


def test_what_the_broker_does_not_take_in_time_is_counted_and_nobody_ends(sender: ImpatientSender) -> None:
    for _ in range(3):
        sender.send("requests", ClockRecord(writer="w"), key=b"k", on_accepted=lambda _: None)
    sender.drain()
    sender.send("requests", ClockRecord(writer="w"), key=b"k", on_accepted=lambda _: None)
    sender.drain()
    assert (sender.num_accepted, sender.num_not_accepted) == (0, 4)
