"""What surrounds the pure controller: what is believed, how state is kept, where records go, whether it moves."""

import ssl

import msgspec
import pytest
from rocksdict import Options, Rdict

from schemas.dead_letters import RawRecord
from schemas.errors import RecordError
from schemas.framing import encode
from schemas.partition import partition_for
from schemas.records import CandidateTarget, ControllerSnapshot, HistogramFields, RouterFigures
from schemas.topics import CONTROL_APP_ID, CONTROL_TABLE, Namespace
from streams.control.believe import believed
from streams.control.connection import connection
from streams.control.local_store import set_aside_damaged, sole_user
from streams.control.outputs import destination
from streams.control.processor import apply
from streams.control.progress import Progress
from streams.control.state import CellState, StateError, decode_state, encode_state
from tests.unit.streams.control_makers import capacity_window, command_window, latency_window

NUM_PARTITIONS = 8
SKEW_MS = 5_000


def raw(window, **changes) -> RawRecord:
    key = window.cell.encode()
    record = {
        "topic": "control.windows",
        "partition": partition_for(key, NUM_PARTITIONS),
        "offset": 17,
        "timestamp_ms": window.end_ms,
        "timestamp_kind": "append",
        "key": key,
        "value": encode(window),
    }
    return RawRecord(**{**record, **changes})


def read(record):
    return believed(record, num_partitions=NUM_PARTITIONS, skew_ms=SKEW_MS)


def replaced(window, **changes):
    return msgspec.structs.replace(window, **changes)


@pytest.mark.parametrize(
    "window",
    [
        capacity_window(5),
        latency_window(5),
        command_window(5, "freeze"),
        command_window(5, "override", candidate_target=300),
        command_window(5, "override", coverage=0.1),
    ],
)
def test_a_sound_window_is_believed(window):
    assert read(raw(window)) == window


BAD_HISTOGRAM = HistogramFields(scale=3, offset=0, counts=b"\x01" * 8, zero_count=0, count=5, sum_micro=5)


def latency_with(**changes):
    window = latency_window(5)
    return replaced(window, latency=replaced(window.latency, **changes))


def bad_route():
    latency = latency_window(5).latency
    assert latency is not None
    (route,) = latency.routes
    return replaced(route, latency=BAD_HISTOGRAM)


def bad_router():
    return RouterFigures(source="router-1", num_requests=5, latency=BAD_HISTOGRAM)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (raw(capacity_window(5), value=None), "empty"),
        (raw(capacity_window(5), value=b"garbage"), "bad_framing"),
        (raw(capacity_window(5), value=encode(capacity_window(5))[:-3]), "truncated"),
        (raw(capacity_window(5), key=b"us-west"), "key_mismatch"),
        (raw(capacity_window(5), key=None), "key_mismatch"),
        (raw(capacity_window(5), partition=(partition_for(b"us-east", 8) + 1) % 8), "wrong_partition"),
        (raw(replaced(capacity_window(5), capacity=None)), "invalid_field"),
        (raw(replaced(latency_window(5), latency=None)), "invalid_field"),
        (raw(replaced(command_window(5, "freeze"), command=None)), "invalid_field"),
        (raw(command_window(5, "override")), "invalid_field"),
        (raw(latency_with(latency=BAD_HISTOGRAM)), "invalid_field"),
        (raw(latency_with(upstream=BAD_HISTOGRAM)), "invalid_field"),
        (raw(latency_with(routes=[bad_route()])), "invalid_field"),
        (raw(latency_with(routers=[bad_router()])), "invalid_field"),
        (raw(replaced(capacity_window(5), window_index=6)), "invalid_field"),
        (raw(replaced(capacity_window(5), end_ms=10_000)), "invalid_field"),
        (raw(capacity_window(5), timestamp_ms=capacity_window(5).end_ms - SKEW_MS - 1), "future_event"),
    ],
)
def test_what_cannot_be_believed_is_refused_with_its_reason(record, reason):
    with pytest.raises(RecordError) as refusal:
        read(record)
    assert refusal.value.reason == reason


def test_a_window_may_run_ahead_by_the_allowed_skew():
    assert read(raw(capacity_window(5), timestamp_ms=capacity_window(5).end_ms - SKEW_MS))


def state_with_everything() -> CellState:
    state = CellState(cell="us-east")
    for window in (
        capacity_window(1),
        latency_window(1),
        command_window(2, "override", candidate_target=300, expires_ms=9_000),
        capacity_window(2),
        capacity_window(3),
    ):
        state, _ = apply(state, window)
    return state


def test_state_survives_its_bytes_and_has_one_form_of_them():
    state = state_with_everything()
    assert decode_state(encode_state(state)) == state
    assert encode_state(decode_state(encode_state(state))) == encode_state(state)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x04" + encode_state(CellState(cell="a"))[1:],
        b"\x03\xff",
        b"\x03\x80",
        b"\x02\xff",
        b"\x02\x80",
        b"\x01\x80",
    ],
)
def test_bytes_that_are_no_state_are_refused(data):
    with pytest.raises(StateError):
        decode_state(data)


def test_records_go_to_their_topics_under_their_keys():
    state, pools = apply(CellState(cell="us-east"), capacity_window(1))
    _, (target, snapshot) = apply(state, latency_window(1))
    assert isinstance(target, CandidateTarget)
    assert isinstance(snapshot, ControllerSnapshot)
    assert [(topic.name, key) for topic, key in map(destination, (*pools, target, snapshot))] == [
        ("capacity.pools", b"us-east/a100"),
        ("control.targets", b"us-east"),
        ("control.state", b"us-east"),
    ]


def test_the_changelog_is_named_as_faust_will_name_it():
    assert Namespace("x.").control_changelog == f"x.{CONTROL_APP_ID}-{CONTROL_TABLE}-changelog"


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def moving():
    clock = Clock()
    progress = Progress(clock=clock, stall_s=10.0)
    progress.owns([0])
    progress.starts(0, next_offset=5)
    return clock, progress


def test_it_is_not_well_before_the_broker_was_asked():
    _, progress = moving()
    assert "starting" in progress.trouble()
    progress.ends({0: 5})
    assert progress.trouble() is None


def test_records_that_wait_too_long_are_trouble_until_they_are_taken():
    clock, progress = moving()
    progress.ends({0: 7})
    clock.now_s += 11.0
    progress.ends({0: 7})
    assert progress.trouble() == "partition 0: nothing taken for 11 s, 2 records wait"
    progress.took(0, offset=5)
    assert progress.trouble() is None
    clock.now_s += 11.0
    progress.ends({0: 7})
    assert "1 records wait" in progress.trouble()
    progress.owns([])
    assert progress.trouble() is None


def test_the_wait_begins_with_the_record_not_with_the_quiet_before_it():
    clock, progress = moving()
    progress.ends({0: 5})
    clock.now_s += 60.0
    progress.ends({0: 6})
    assert progress.trouble() is None


def test_partitions_that_wait_are_named_until_a_record_is_taken():
    clock, progress = moving()
    progress.ends({0: 7})
    clock.now_s += 1.5
    assert progress.waiting(longer_than_s=1.0) == [0]
    assert progress.waiting(longer_than_s=2.0) == []
    progress.took(0, offset=5)
    assert progress.waiting(longer_than_s=1.0) == []


def test_a_broker_that_does_not_answer_is_trouble():
    clock, progress = moving()
    progress.ends({0: 5})
    clock.now_s += 11.0
    assert progress.trouble() == "no word from the broker for 11 s"


def test_one_process_at_a_time_uses_the_folder(tmp_path):
    with sole_user(tmp_path), pytest.raises(ValueError, match="in use by another"), sole_user(tmp_path):
        pass
    with sole_user(tmp_path):
        pass


def test_a_damaged_database_is_moved_aside_and_a_sound_one_stays(tmp_path):
    for name in ("controllers-0.db", "controllers-1.db"):
        database = Rdict(str(tmp_path / name), options=Options(raw_mode=True))
        database[b"us-east"] = b"state" * 1_000
        database.flush()
        database.close()
    for file in (tmp_path / "controllers-1.db").glob("*.sst"):
        file.write_bytes(b"\x00" * file.stat().st_size)
    aside = set_aside_damaged(tmp_path, label="1")
    assert [path.name for path in aside] == ["controllers-1.db.damaged-1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["controllers-0.db", "controllers-1.db.damaged-1"]
    assert set_aside_damaged(tmp_path, label="2") == []


PLAIN = {"bootstrap.servers": "a:9092, b:9093", "client.id": "x", "log_level": 4}


def test_plain_connections_carry_servers_only():
    link = connection({**PLAIN, "socket.keepalive.enable": "true"})
    assert link.bootstrap == ("a:9092", "b:9093")
    assert link.tls is None
    assert link.sasl is None


def test_sasl_over_tls_is_carried_over():
    link = connection(
        {
            **PLAIN,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "u",
            "sasl.password": "hidden",
        }
    )
    assert link.tls is not None
    assert link.tls.verify_mode == ssl.CERT_REQUIRED
    assert link.tls.check_hostname
    assert link.sasl is not None
    assert (link.sasl.mechanism, link.sasl.username, link.sasl.password) == ("SCRAM-SHA-512", "u", "hidden")
    assert "hidden" not in repr(link)


def test_verification_can_be_turned_off_only_by_its_name():
    link = connection({**PLAIN, "security.protocol": "ssl", "enable.ssl.certificate.verification": "false"})
    assert link.tls is not None
    assert link.tls.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"sasl.oauthbearer.method": "oidc"}, "sasl.oauthbearer.method"),
        ({"ssl.keystore.location": "k"}, "ssl.keystore.location"),
        ({"security.protocol": "kerberos"}, "security.protocol"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "u"}, "sasl.password"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"}, "certificates"),
        ({"security.protocol": "ssl", "enable.ssl.certificate.verification": "maybe"}, "verification"),
    ],
)
def test_what_cannot_be_carried_over_is_refused_by_name(settings, named):
    with pytest.raises(ValueError, match=named.replace(".", r"\.")) as refusal:
        connection(
            {**PLAIN, "sasl.password": "hidden", **settings} if named != "sasl.password" else {**PLAIN, **settings}
        )
    assert "hidden" not in str(refusal.value)
