"""The registry of a process: known schemas are read whatever happens to it, unknown ones wait or are refused."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.avro import encode_body
from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import Decoder, decode_as, encode, frame, require_schema, use_registry
from schemas.kafka.registry import Registry, wait_for_schema
from schemas.kafka.registry_api import (
    NoSuchSchemaError,
    NotOursToRegisterError,
    RegistryAwayError,
    RegistryError,
    SchemaRefusedError,
)
from schemas.records import CapacityEvent, ClockRecord
from schemas.registered import registered_schema, subject

TYPES = (CapacityEvent, ClockRecord)
CLOCK = ClockRecord(writer="w")
# Generous: a busy machine must not fail a test; what is waited for comes at once.
WAIT_S = 30.0


class FakeApi:
    """A registry in memory that can be away."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.is_away = False
        self.refuses = False
        self.not_ours: set[str] = set()
        self.asked: list[int] = []

    def schema_text(self, schema_id: int) -> str:
        self.asked.append(schema_id)
        if self.is_away:
            raise RegistryAwayError("no answer from the Schema Registry")
        if schema_id not in self.texts:
            raise NoSuchSchemaError("none")
        return self.texts[schema_id]

    def find_or_register(self, subject: str, text: str) -> int:
        if self.is_away:
            raise RegistryAwayError("no answer from the Schema Registry")
        if subject in self.not_ours:
            raise NotOursToRegisterError("HTTP 403")
        if self.refuses:
            raise SchemaRefusedError("incompatible")
        self.texts[len(self.texts) + 1] = text
        return len(self.texts)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def registry(api: FakeApi) -> Iterator[Registry]:
    """A registry in use that knows our own schemas: 1 CapacityEvent, 2 ClockRecord."""
    registry = Registry(api, record_types=TYPES)
    registry.start()
    use_registry(registry)
    yield registry
    use_registry(None)
    registry.close()


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


def newer_clock(number: int = 0) -> str:
    """A later version of the clock record, as somebody else has registered it."""
    fields = [*registered_schema(ClockRecord)["fields"], {"name": f"later_{number}", "type": "long", "default": 0}]
    return json.dumps({**registered_schema(ClockRecord), "fields": fields})


def is_known(value: bytes) -> bool:
    """Whether a value is known within the time that a test gives it."""
    deadline = threading.Event()
    timer = threading.Timer(WAIT_S, deadline.set)
    timer.start()
    try:
        while not deadline.wait(0.01):
            try:
                require_schema(value)
            except SchemaPendingError:
                continue
            return True
        return False
    finally:
        timer.cancel()


def test_both_framings_have_the_same_body_and_are_read_as_the_same_record(registry: Registry) -> None:
    value = frame(CLOCK)
    assert value == framed(2, encode_body(CLOCK))
    assert encode(CLOCK)[10:] == value[5:] == encode_body(CLOCK)
    decoder = Decoder(TYPES)
    assert decoder.decode(value) == decoder.decode(encode(CLOCK)) == decode_as(value, ClockRecord) == CLOCK


def test_without_a_registry_a_record_is_framed_as_ever() -> None:
    assert frame(CLOCK) == encode(CLOCK)
    require_schema(framed(2, b""))


def test_an_unknown_id_is_pending_until_it_is_answered(api: FakeApi, registry: Registry) -> None:
    api.texts[40] = newer_clock()
    value = framed(40, encode_body(CLOCK) + b"\x0e")
    with pytest.raises(SchemaPendingError, match="schema id 40"):
        Decoder(TYPES).decode(value)
    assert is_known(value)
    assert Decoder(TYPES).decode(value) == CLOCK


def test_a_registry_that_is_away_stops_no_known_schema(api: FakeApi, registry: Registry) -> None:
    api.texts[40] = newer_clock()
    seen = framed(40, encode_body(CLOCK) + b"\x0e")
    with pytest.raises(SchemaPendingError):
        require_schema(seen)
    assert is_known(seen)
    api.is_away = True
    assert Decoder(TYPES).decode(seen) == CLOCK
    assert Decoder(TYPES).decode(frame(CLOCK)) == CLOCK


def test_an_unknown_id_outlives_a_registry_that_is_away(api: FakeApi, registry: Registry) -> None:
    api.is_away = True
    api.texts[41] = newer_clock()
    value = framed(41, encode_body(CLOCK) + b"\x0e")
    # Never refused, however often it is tried, and whoever waits is told why.
    for _ in range(100):
        with pytest.raises(SchemaPendingError):
            Decoder(TYPES).decode(value)
    with pytest.raises(RegistryError, match="schema id 41 is not known yet"):
        wait_for_schema(value, timeout_s=0.5)
    api.is_away = False
    wait_for_schema(value, timeout_s=WAIT_S)
    assert Decoder(TYPES).decode(value) == CLOCK


def test_an_id_that_is_nothing_is_asked_once_and_refused(api: FakeApi, registry: Registry) -> None:
    value = framed(77, b"body")
    with pytest.raises(SchemaPendingError):
        require_schema(value)
    assert is_known(value)
    for _ in range(50):
        with pytest.raises(RecordError) as caught:
            Decoder(TYPES).decode(value)
        assert caught.value.reason == "unknown_schema"
    assert api.asked == [77]


def test_a_schema_that_none_of_ours_can_read_is_refused_with_its_reason(api: FakeApi, registry: Registry) -> None:
    fields = [{"name": "writer", "type": "long"}]
    api.texts[42] = json.dumps({**registered_schema(ClockRecord), "fields": fields})
    value = framed(42, b"\x02")
    with pytest.raises(SchemaPendingError):
        require_schema(value)
    assert is_known(value)
    with pytest.raises(RecordError, match=r"schema id 42 is intertidal.ClockRecord as it cannot be read here: writer"):
        Decoder(TYPES).decode(value)


def test_a_schema_of_another_topic_is_unknown_here(registry: Registry) -> None:
    with pytest.raises(RecordError, match="not of this topic"):
        Decoder([CapacityEvent]).decode(frame(CLOCK))


def test_a_short_verb_waits_for_the_answer(api: FakeApi) -> None:
    registry = Registry(api, record_types=TYPES, wait_s=WAIT_S)
    registry.start()
    api.texts[40] = newer_clock()
    try:
        assert registry.schema_by_id(40)[0] == "ClockRecord"
    finally:
        registry.close()


def test_a_short_verb_gives_up_in_one_line(api: FakeApi) -> None:
    registry = Registry(api, record_types=TYPES, wait_s=0.3)
    registry.start()
    api.is_away = True
    try:
        with pytest.raises(RegistryError, match="schema id 40 is not known yet"):
            registry.schema_by_id(40)
    finally:
        registry.close()


class Clock:
    """Time passes only by being asked for."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 6.0
        return self.now_s


def test_a_start_without_the_registry_ends_in_one_line(api: FakeApi) -> None:
    api.is_away = True
    with pytest.raises(RegistryError, match="no answer from the Schema Registry"):
        Registry(api, record_types=TYPES, clock_s=Clock()).start()


def test_a_schema_that_the_registry_refuses_is_named(api: FakeApi) -> None:
    api.refuses = True
    with pytest.raises(RegistryError, match=f"{subject(CapacityEvent)}: incompatible"):
        Registry(api, record_types=TYPES).start()


def test_who_may_not_register_reads_on_and_cannot_write_what_is_missing(api: FakeApi) -> None:
    api.not_ours = {subject(ClockRecord)}
    registry = Registry(api, record_types=TYPES)
    registry.start()
    try:
        assert registry.id_of(CapacityEvent) == 1
        with pytest.raises(RegistryError, match=r"intertidal.ClockRecord: HTTP 403"):
            registry.id_of(ClockRecord)
    finally:
        registry.close()


def test_noise_behind_the_magic_byte_asks_for_each_id_once(api: FakeApi, registry: Registry) -> None:
    values: list[Any] = [framed(number, b"x") for number in range(1_000, 1_020)] * 3
    for value in values:
        with pytest.raises((SchemaPendingError, RecordError)):
            Decoder(TYPES).decode(value)
    assert all(is_known(value) for value in values)
    assert sorted(api.asked) == list(range(1_000, 1_020))
