"""The spool: in order, bounded, cut where a crash cut it, and never in anybody's way."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.agent.spool import BEATS, CHANGES, RECLAIMS, Spool, SpoolError, log_of

LIMIT = 1 << 16


def opened(folder: Path | None, limit_bytes: int = LIMIT) -> Spool:
    return Spool(folder, limit_bytes=limit_bytes)


def all_next(spool: Spool) -> list[bytes]:
    bodies = []
    while (entry := spool.next()) is not None:
        bodies.append(entry.body)
    return bodies


def numbered(count: int, size: int = 8) -> list[bytes]:
    return [str(number).zfill(size).encode() for number in range(count)]


def test_kinds_have_their_logs() -> None:
    assert [log_of(kind) for kind in ("heartbeat", "reclaim", "offer", "update", "notice")] == [
        BEATS,
        RECLAIMS,
        CHANGES,
        CHANGES,
        CHANGES,
    ]


@pytest.mark.parametrize("on_disk", [True, False])
def test_records_of_all_logs_come_out_in_the_order_in_which_they_went_in(tmp_path: Path, on_disk: bool) -> None:
    spool = opened(tmp_path if on_disk else None)
    bodies = numbered(30)
    for number, body in enumerate(bodies):
        spool.append((BEATS, CHANGES, RECLAIMS)[number * 7 % 3], body)
    assert all_next(spool) == bodies
    assert spool.next() is None
    spool.append(BEATS, b"later")
    assert all_next(spool) == [b"later"]


def test_what_is_not_acknowledged_is_there_after_a_restart_and_the_rest_is_not(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for body in numbered(5):
        spool.append(CHANGES, body)
    given_out = [spool.next() for _ in range(3)]
    for entry in given_out[:2]:
        assert entry is not None
        spool.acknowledge(entry.number)
    assert (spool.num_waiting, spool.num_given) == (3, 1)
    spool.close()
    again = opened(tmp_path)
    assert again.num_waiting == 3
    assert all_next(again) == numbered(5)[2:]
    assert again.append(BEATS, b"new") == 5


def test_out_of_turn_acknowledgements_wait_for_the_first_and_are_not_sent_again(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for body in numbered(4):
        spool.append(BEATS, body)
    entries = [spool.next() for _ in range(4)]
    for entry in entries[1:3]:
        assert entry is not None
        spool.acknowledge(entry.number)
        spool.acknowledge(entry.number)
    assert spool.num_waiting == 2
    spool.rewind()
    assert all_next(spool) == [numbered(4)[0], numbered(4)[3]]
    for number in (0, 3):
        spool.acknowledge(number)
    assert spool.is_empty
    spool.close()
    assert opened(tmp_path).is_empty


@given(st.integers(0, 40), st.integers(0, 3))
def test_whatever_a_crash_cuts_off_the_end_is_gone_and_nothing_else(tmp_path_factory, cut: int, log: int) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = opened(folder)
    for body in numbered(6):
        spool.append(CHANGES, body)
    spool.close()
    (path,) = folder.glob("changes-*.log")
    size = path.stat().st_size
    os.truncate(path, max(0, size - cut))
    record_bytes = size // 6
    num_whole = (size - min(cut, size)) // record_bytes
    again = opened(folder)
    assert all_next(again) == numbered(6)[:num_whole]
    again.append(CHANGES, b"next")
    assert all_next(again) == [b"next"]
    again.close()
    last = opened(folder)
    assert all_next(last) == [*numbered(6)[:num_whole], b"next"]
    # What a crash cut short is no damage.
    assert last._logs[CHANGES].num_damaged_bytes == 0
    last.close()


@given(st.integers(0, 143), st.integers(1, 255))
def test_a_damaged_byte_costs_what_stands_behind_it_and_is_never_given_out(
    tmp_path_factory, at: int, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = opened(folder)
    for body in numbered(6):
        spool.append(RECLAIMS, body)
    spool.close()
    (path,) = folder.glob("reclaims-*.log")
    image = bytearray(path.read_bytes())
    assert len(image) == 144
    image[at] ^= flip
    path.write_bytes(image)
    again = opened(folder)
    assert all_next(again) == numbered(6)[: at // 24]
    again.close()


def test_a_progress_that_was_cut_short_sends_everything_again(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.append(BEATS, b"a")
    spool.append(BEATS, b"b")
    assert spool.next() is not None
    spool.acknowledge(0)
    spool.close()
    (tmp_path / "done").write_bytes(b"\x01\x02")
    assert all_next(opened(tmp_path)) == [b"a", b"b"]


def test_beyond_the_limit_the_oldest_beats_go_first_and_reclaims_never(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    body = bytes(1_000)
    for number in range(90):
        spool.append((BEATS, CHANGES, RECLAIMS)[number % 3], str(number).encode() + body)
    assert spool.size_bytes <= LIMIT
    left = [int(entry.split(b"\0")[0]) for entry in all_next(spool)]
    assert left == sorted(left)
    assert [number for number in left if number % 3] == [number for number in range(90) if number % 3]
    beats = [number for number in left if number % 3 == 0]
    assert beats == list(range(0, 90, 3))[30 - len(beats) :]
    assert spool.num_dropped == {BEATS: 30 - len(beats)}
    assert 0 < len(beats) < 30
    assert spool.num_waiting == len(left)


def test_changes_go_when_there_is_no_beat_left_and_reclaims_stay_beyond_the_limit(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for number in range(100):
        spool.append(RECLAIMS if number % 2 else CHANGES, bytes(2_000))
    assert spool.num_dropped[CHANGES] > 30
    assert spool.num_dropped[RECLAIMS] == 0
    assert spool.size_bytes > LIMIT


def test_a_record_that_is_on_its_way_is_lost_only_if_it_has_to_be_sent_again(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for _ in range(20):
        spool.append(BEATS, bytes(1_000))
    for _ in range(20):
        spool.next()
    for _ in range(80):
        spool.append(BEATS, bytes(1_000))
    dropped = spool.num_dropped[BEATS]
    assert dropped < 100 - LIMIT // 1_100
    for number in range(10):
        spool.acknowledge(number)
    assert spool.num_dropped[BEATS] == dropped
    spool.rewind()
    assert spool.num_dropped[BEATS] == dropped + 10
    assert len(all_next(spool)) == spool.num_waiting


def fails(monkeypatch: pytest.MonkeyPatch, *, after: int = 0) -> list[bool]:
    """Makes the disk full after so many bytes of each write, for as long as the list holds something."""
    full = [True]
    write = os.write

    def writes(fd: int, data: bytes) -> int:
        if not full:
            return write(fd, data)
        if after:
            return write(fd, data[:after])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ops.agent.spool_log.os.write", writes)
    return full


@pytest.mark.parametrize("after", [0, 5])
def test_a_full_disk_loses_nothing_and_leaves_no_half_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    spool = opened(tmp_path)
    spool.append(CHANGES, b"0")
    full = fails(monkeypatch, after=after)
    spool.append(RECLAIMS, b"1")
    spool.append(RECLAIMS, b"2")
    was_well = spool.is_disk_well
    full.clear()
    spool.append(RECLAIMS, b"3")
    assert (was_well, spool.is_disk_well) == (False, True)
    # To make room for the first of them the oldest that may go went; nothing else did.
    assert all_next(spool) == [b"1", b"2", b"3"]
    assert spool.num_dropped == {CHANGES: 1}
    spool.close()
    assert all_next(opened(tmp_path)) == [b"3"]


def test_in_memory_beats_go_first_too_and_the_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fails(monkeypatch)
    spool = opened(tmp_path, 8 << 20)
    for number in range(100):
        spool.append(RECLAIMS if number % 10 == 0 else BEATS, bytes(100_000))
    assert spool.size_bytes <= 4 << 20
    assert spool.num_dropped[BEATS] > 50
    assert spool.num_dropped[RECLAIMS] == 0


def test_a_folder_has_one_user(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(SpoolError, match="another process"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="file"):
        opened(tmp_path / "file" / "spool")
    with pytest.raises(ValueError, match="bytes at least"):
        opened(tmp_path, 10)


def test_what_went_with_its_file_is_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    spool = opened(tmp_path, 1 << 20)
    for body in numbered(3):
        spool.append(BEATS, body)
    for path in tmp_path.glob("beats-*.log"):
        path.unlink()
    spool.append(RECLAIMS, b"mine")
    spool.append(BEATS, b"into the file that has no name")
    assert all_next(spool) == [b"mine"]
    assert (spool.num_dropped, spool.num_waiting) == ({BEATS: 4}, 1)
    spool.append(BEATS, b"later")
    assert all_next(spool) == [b"later"]
    spool.acknowledge(3)
    spool.acknowledge(5)
    assert spool.is_empty


def test_a_file_that_is_gone_can_be_dropped_too(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for body in numbered(200, size=200):
        spool.append(BEATS, body)
    for path in tmp_path.glob("beats-*.log"):
        path.unlink()
    for body in numbered(400, size=200):
        spool.append(CHANGES, body)
    assert spool.num_dropped[BEATS] == 200
    assert spool.num_waiting == 600 - spool.num_dropped.total()


def test_behind_a_byte_that_is_damaged_while_it_runs_nothing_is_waited_for(tmp_path: Path) -> None:
    spool = opened(tmp_path, 1 << 20)
    for body in numbered(10):
        spool.append(BEATS, body)
    (path,) = tmp_path.glob("beats-*.log")
    image = bytearray(path.read_bytes())
    image[5 * 24 + 20] ^= 1
    path.write_bytes(image)
    assert len(all_next(spool)) == 5
    for number in range(5):
        spool.acknowledge(number)
    assert (spool.is_empty, spool.num_dropped) == (True, {BEATS: 5})
    spool.append(BEATS, b"later")
    assert all_next(spool) == [b"later"]
