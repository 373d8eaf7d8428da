"""Files of arrivals: each kind of odd row is counted with its line, and a file that cannot be used is named."""

from pathlib import Path

import pytest

from ops.simulator.files.arrivals_file import ArrivalTrace, read_arrivals
from ops.simulator.files.errors import TrafficFileError

HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


def read(folder: Path, rows: bytes, *, header: bytes = HEADER, max_rows: int = 1_000) -> ArrivalTrace:
    path = folder / "trace.csv"
    path.write_bytes(header + rows)
    return read_arrivals(path, max_rows=max_rows)


def seen(trace: ArrivalTrace) -> dict[str, list[int]]:
    return {kind: count.first_lines for kind, count in trace.dirt.kinds.items()}


def test_times_count_from_the_first_arrival(tmp_path: Path) -> None:
    trace = read(tmp_path, b"2024-05-10T00:00:01.5Z,4,5\n2024-05-10 02:00:02+02:00,4,5\n2024-05-10 00:00:04 UTC,4,5\n")
    assert trace.times_s.tolist() == [0.0, 0.5, 2.5]
    assert trace.length_s == 2.5
    assert trace.num_rows == 3
    assert seen(trace) == {}


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (b"2024-05-10 00:00:05,4,5\n", "no_zone"),
        (b"2024-05-10 00:00:05.1234567+00:00,4,5\n", "long_fraction"),
        (b"2024-05-10 00:00:05+00:00,4,5\r\n", "crlf"),
        (b"2024-05-10 00:00:00+00:00,4,5\n", "unordered"),
        (b"1715299205,4,5\n", "plain_seconds"),
        (b"2024-05-10 00:00:05+00:00,0,5\n", "zero_tokens"),
        (b"2024-05-10 00:00:05+00:00,4,00\n", "zero_tokens"),
        (b"2024-05-10 00:00:05+00:00,-4,5\n", "negative_tokens"),
        (b"2024-05-10 00:00:05+00:00,4,many\n", "odd_tokens"),
        (b"2024-05-10 00:00:05+00:00,NaN,5\n", "missing_tokens"),
    ],
)
def test_an_odd_row_is_used_and_named(tmp_path: Path, row: bytes, kind: str) -> None:
    trace = read(tmp_path, b"2024-05-10 00:00:01+00:00,4,5\n" + row)
    assert seen(trace) == {kind: [3]}
    assert len(trace.times_s) == 2


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (b",4,5\n", "missing_time"),
        (b"null,4,5\n", "missing_time"),
        (b"yesterday,4,5\n", "bad_time"),
        (b"2024-13-10 00:00:05,4,5\n", "bad_time"),
        (b"1e300,4,5\n", "bad_time"),
        (b"2024-05-10 00:00:05+00:00\n", "short_row"),
        (b'"2024-05-10 00:00:05+00:00,4,5\n', "bad_quotes"),
        (b"2024-05-10 00:00:05+00:00,\xff\xfe,5\n", "not_utf8"),
        (HEADER, "repeated_header"),
        (b"  \n", "blank_line"),
        (b"1" * (1 << 20) + b"2\n", "long_line"),
    ],
)
def test_a_row_that_cannot_be_used_is_left_out_and_named(tmp_path: Path, row: bytes, kind: str) -> None:
    good = b"2024-05-10 00:00:01+00:00,4,5\n"
    trace = read(tmp_path, good + row + good)
    assert seen(trace) == {kind: [3]}
    assert trace.times_s.tolist() == [0.0, 0.0]


def test_a_time_without_zone_is_utc_and_more_than_microseconds_are_cut(tmp_path: Path) -> None:
    rows = b"2024-05-10 01:00:00Z,4,5\n2024-05-10 01:00:07.2500009,4,5\n2024-05-10 03:00:08+02:00,4,5\n"
    assert read(tmp_path, rows).times_s.tolist() == [0.0, 7.25, 8.0]


def test_a_time_before_zero_is_left_out(tmp_path: Path) -> None:
    trace = read(tmp_path, b"7,1,1\n-3,1,1\n")
    assert seen(trace) == {"plain_seconds": [2, 3], "negative_time": [3]}
    assert trace.times_s.tolist() == [0.0]


def test_counts_go_on_beyond_the_lines_that_are_named(tmp_path: Path) -> None:
    trace = read(tmp_path, b"2024-05-10 00:00:05,4,5\n" * 9)
    assert trace.dirt.kinds["no_zone"].num_rows == 9
    assert trace.dirt.kinds["no_zone"].first_lines == [2, 3, 4, 5, 6]


def test_one_wrong_date_does_not_make_every_row_after_it_unordered(tmp_path: Path) -> None:
    good = b"2024-05-10 00:00:01+00:00,4,5\n"
    assert seen(read(tmp_path, good + b"9999-01-01 00:00:00Z,4,5\n" + good + good)) == {"unordered": [4]}


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    header = b'\xef\xbb\xbf"model", timestamp ,extra\r\n'
    trace = read(tmp_path, b'"a, b","2024-05-10 00:00:05+00:00","say ""no"""\n', header=header)
    assert len(trace.times_s) == 1
    assert seen(trace) == {"crlf": [1]}


def test_rows_after_the_limit_are_left_out(tmp_path: Path) -> None:
    trace = read(tmp_path, b"2024-05-10 00:00:05+00:00,4,5\n" * 9, max_rows=4)
    assert len(trace.times_s) == 4
    assert seen(trace) == {"after_limit": [6]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\x1f\x8b\x08\x00\x00", "is not UTF-8 text"),
        (HEADER, "TIMESTAMP: no usable time in 0 rows"),
        (HEADER + b"soon,4,5\n", "TIMESTAMP: no usable time in 1 rows; the first is 'soon'"),
        (b"2023-11-16 18:17:03.9799600,4808,10\n", "TIMESTAMP: no such column; the first line"),
        (b'"TIMESTAMP\n1,2\n', "TIMESTAMP: no such column"),
    ],
)
def test_an_unusable_file_is_named_with_the_column(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(TrafficFileError, match=words) as raised:
        read_arrivals(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrafficFileError, match="Is a directory"):
        read_arrivals(tmp_path)
    with pytest.raises(TrafficFileError, match="No such file"):
        read_arrivals(tmp_path / "absent.csv")
