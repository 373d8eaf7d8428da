"""Whatever bytes a file holds: it is used, with every row accounted for, or refused in one line."""

import math
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ops.simulator.files.arrivals_file import read_arrivals
from ops.simulator.files.errors import TrafficFileError
from ops.simulator.files.fleet_file import read_fleet
from ops.simulator.files.pairs_file import read_pairs
from ops.simulator.files.times import parse_number, parse_time

LEFT_OUT = {
    "absurd_request",
    "after_limit",
    "bad_quotes",
    "bad_time",
    "ends_before_start",
    "missing_time",
    "negative_request",
    "negative_time",
    "never_scheduled",
    "no_request",
    "not_a_number",
    "repeated_header",
    "short_row",
    "zero_length",
}
ODD_FIELDS = st.sampled_from(
    [
        *("", "NaN", "null", "-1", "0", "1e999", "1_000", "٣", "²", "-0.0", " 7 ", "1e12", "1715299200"),
        *("2024-05-10 00:00:00.1234567", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2023-W01-1"),
        *('"', '""', '"a,b"', "\r", "\x00"),
    ]
)
ROW = st.lists(st.one_of(ODD_FIELDS, st.text(max_size=12)), max_size=9).map(",".join)
TABLE = st.lists(ROW, max_size=12).map("\n".join)
ARRIVALS = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda text: f"TIMESTAMP,ContextTokens\n{text}".encode("utf-8", "replace"), TABLE),
)
FLEET_HEADER = "role,cpu_request,gpu_request,creation_time,scheduled_time,deletion_time\n"
FLEET_FIELD = st.one_of(ODD_FIELDS, st.integers(-5, 50).map(str))
FLEET_TABLE = st.lists(st.lists(FLEET_FIELD, min_size=4, max_size=8).map(",".join), max_size=12).map("\n".join)
FLEET = st.one_of(
    st.binary(max_size=300), st.builds(lambda text: (FLEET_HEADER + text).encode("utf-8", "replace"), FLEET_TABLE)
)

# One folder serves all examples: each writes its file anew.
fuzzed = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _is_one_line(error: TrafficFileError, path: Path) -> None:
    assert str(error).startswith(f"{path}: ")
    assert len(str(error).splitlines()) == 1


@given(content=ARRIVALS)
@fuzzed
def test_arrivals_are_used_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fuzz.csv"
    path.write_bytes(content)
    try:
        trace = read_arrivals(path, max_rows=10)
    except TrafficFileError as error:
        _is_one_line(error, path)
        return
    assert trace.times_s[0] == 0.0
    assert all(math.isfinite(at_s) for at_s in trace.times_s)
    left_out = sum(count.num_rows for kind, count in trace.dirt.kinds.items() if kind in LEFT_OUT)
    assert trace.num_rows == len(trace.times_s) + left_out


@given(content=FLEET)
@fuzzed
def test_a_fleet_is_used_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fuzz.csv"
    path.write_bytes(content)
    try:
        fleet = read_fleet(path, max_rows=10)
    except TrafficFileError as error:
        _is_one_line(error, path)
        return
    assert fleet.length_s > 0.0
    assert (fleet.starts_s_I < fleet.ends_s_I).all()
    assert (fleet.gpus_I + fleet.cores_I > 0.0).all()
    left_out = sum(count.num_rows for kind, count in fleet.dirt.kinds.items() if kind in LEFT_OUT)
    assert fleet.num_rows == fleet.num_used + left_out
    assert sum(fleet.num_by_role.values()) == fleet.num_used


@given(
    content=st.one_of(st.binary(max_size=200), st.text(alphabet="0123456789.,; -+en\n", max_size=60).map(str.encode))
)
@fuzzed
def test_quantiles_are_used_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fuzz.txt"
    path.write_bytes(content)
    try:
        pairs = read_pairs(path, limit=700)
    except TrafficFileError as error:
        _is_one_line(error, path)
        return
    assert list(pairs.quantiles) == sorted(pairs.quantiles)
    assert 1.0 <= pairs.quantiles[0] <= pairs.quantiles[-1] <= 700.0
    kinds = pairs.dirt.kinds
    left_out = sum(kinds[kind].num_rows for kind in ("not_a_number", "below_one") if kind in kinds)
    assert pairs.num_values == len(pairs.quantiles) + left_out


@given(text=st.one_of(st.text(max_size=40), ODD_FIELDS, st.datetimes().map(str)))
@fuzzed
def test_a_time_is_finite_or_none(text: str) -> None:
    parsed = parse_time(text)
    assert parsed is None or math.isfinite(parsed.seconds)


@given(stamp=st.datetimes(timezones=st.timezones()))
@fuzzed
def test_a_time_with_its_zone_is_that_instant(stamp: datetime) -> None:
    parsed = parse_time(stamp.isoformat(" "))
    assert parsed is not None
    assert parsed.dirt == ()
    assert parsed.seconds == pytest.approx(stamp.timestamp(), abs=1e-4)


@pytest.mark.parametrize("text", ["1" * 100_000 + "x", "1." * 40, "." * 70, "1" * 65])
def test_a_number_that_is_none_is_found_out_at_once(text: str) -> None:
    assert parse_number(text) is None
