"""Records of a stretch of the log, for training: what is unreadable is named and passed over."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import Message
from msgspec import Struct

import ops.train_log
from ops.errors import UserError
from ops.read.log import Extent
from ops.train_log import records_of_log
from schemas.framing import encode
from schemas.kafka.admin import BrokerError
from schemas.records import RankingOutcome
from schemas.topics import RANKING_OUTCOMES


def _outcome(ad_id: int) -> RankingOutcome:
    return RankingOutcome(
        outcome_id=f"o{ad_id}",
        attribution_token="t",
        request_id="q",
        user_id="u",
        cell="east",
        ad_id=ad_id,
        kind="view",
        value=0.0,
        exposure_time_ms=1,
        event_time_ms=2,
    )


class _Read:
    def __init__(self, offset: int, value: bytes) -> None:
        self._offset = offset
        self._value = value

    def value(self) -> bytes:
        return self._value

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset


def _log(monkeypatch: pytest.MonkeyPatch, values: list[bytes], asked: list[tuple[int | None, int | None]]) -> None:
    def extent(_: Any, topic: str, *, since_ms: int | None, until_ms: int | None) -> Extent:
        assert topic == "ranking.outcomes"
        asked.append((since_ms, until_ms))
        return Extent(cluster="c", lows={3: 0}, ends={3: 9}, since={3: 4}, until={3: 8})

    def read_log(
        _: Any, topic: str, starts: Mapping[int, int], ends: Mapping[int, int], *, is_stopped: Callable[[], bool]
    ) -> Iterator[list[Message]]:
        assert (topic, starts, ends, is_stopped()) == ("ranking.outcomes", {3: 4}, {3: 8}, False)
        yield []
        yield [cast(Message, _Read(4 + number, value)) for number, value in enumerate(values)]

    monkeypatch.setattr(ops.train_log, "extent", extent)
    monkeypatch.setattr(ops.train_log, "read_log", read_log)


def test_records_of_the_stretch_come_and_what_is_unreadable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[Struct] = [_outcome(5), _outcome(7)]
    first, last = (encode(record) for record in records)
    asked: list[tuple[int | None, int | None]] = []
    said: list[str] = []
    _log(monkeypatch, [first, b"nonsense", last], asked)
    found = records_of_log({}, RANKING_OUTCOMES, RankingOutcome, since_ms=10, until_ms=20, complain=said.append)
    assert list(found) == records
    assert asked == [(10, 20)]
    (line,) = said
    assert line.startswith("ranking.outcomes[3] offset 5: ")


def test_a_broker_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def extent(*_: Any, **__: Any) -> Extent:
        raise BrokerError("no answer")

    monkeypatch.setattr(ops.train_log, "extent", extent)
    with pytest.raises(UserError, match="no answer"):
        list(records_of_log({}, RANKING_OUTCOMES, RankingOutcome, since_ms=1, until_ms=None, complain=print))
