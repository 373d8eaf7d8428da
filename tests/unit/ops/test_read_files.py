"""Files of a topic: whole or not there, cut by hour and size, and a folder that says by itself how far it has come."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ops.read.files as files_module
from ops.errors import UserError
from ops.read.columns import to_batch
from ops.read.files import FileLimits, FileWriter
from ops.read.folder import NOTE_NAME, OutputFolder
from ops.read.rows import LogRecord
from schemas.records import ClockRecord
from schemas.topics import HOUR_MS

T0_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
FIRST_HOUR, SECOND_HOUR = "hour=2023-11-14T22", "hour=2023-11-14T23"


def folder_at(path, *, topic="t.clocks", cluster="c1", file_format="parquet"):
    return OutputFolder(path, cluster=cluster, topic=topic, file_format=file_format)


def writer_for(folder, *, file_format="parquet", clock_s=lambda: 0.0, **limits):
    return FileWriter(
        folder,
        record_types=[ClockRecord],
        file_format=file_format,
        limits=FileLimits(**limits),
        clock_s=clock_s,
    )


def at(offset, *, partition=0, time_ms=T0_MS, size_bytes=10):
    return LogRecord(
        partition=partition,
        offset=offset,
        time_ms=time_ms,
        key=None,
        size_bytes=size_bytes,
        record=ClockRecord(writer=f"{partition}/{offset}"),
    )


def files(path):
    return sorted(str(found.relative_to(path)) for found in path.rglob("*.*") if found.name != NOTE_NAME)


def offsets(path):
    """Offsets in all visible files by partition; each file must hold what its name says, of the hour it is in."""
    found: dict[int, list[int]] = {}
    for file in sorted(path.glob("hour=*/*"), key=lambda each: each.name):
        _, partition, first, end = file.stem.rsplit("-", 3)
        rows = pq.ParquetFile(file).read().to_pylist()
        assert all(int(first) <= row["_offset"] < int(end) for row in rows)
        assert all(row["writer"] == f"{int(partition)}/{row['_offset']}" for row in rows)
        found.setdefault(int(partition), []).extend(row["_offset"] for row in rows)
    return found


def name_of(partition, first, end, file_format="parquet"):
    return f"t.clocks-{partition:05d}-{first:020d}-{end:020d}.{file_format}"


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_a_file_is_of_one_hour_and_named_by_its_offsets(tmp_path, file_format):
    with folder_at(tmp_path / "out", file_format=file_format) as folder:
        folder.begin({0: 5, 1: 0})
        writer = writer_for(folder, file_format=file_format)
        for offset in (5, 6, 9):
            writer.add(at(offset))
        writer.add(at(10, time_ms=T0_MS + HOUR_MS))
        assert files(tmp_path / "out") == [f"{FIRST_HOUR}/{name_of(0, 5, 10, file_format)}"]
        writer.write_all()
    assert files(tmp_path / "out") == [
        f"{FIRST_HOUR}/{name_of(0, 5, 10, file_format)}",
        f"{SECOND_HOUR}/{name_of(0, 10, 11, file_format)}",
    ]
    path = tmp_path / "out" / FIRST_HOUR / name_of(0, 5, 10, file_format)
    table = pq.ParquetFile(path).read() if file_format == "parquet" else pa.ipc.open_file(path).read_all()
    assert table.column("writer").to_pylist() == ["0/5", "0/6", "0/9"]
    assert table.column("_offset").to_pylist() == [5, 6, 9]


@pytest.mark.parametrize("limits", [{"num_rows": 2}, {"size_bytes": 20}, {"total_bytes": 20}])
def test_a_file_is_written_when_enough_is_collected(tmp_path, limits):
    with folder_at(tmp_path) as folder:
        folder.begin({0: 0})
        writer = writer_for(folder, **limits)
        writer.add(at(0))
        assert files(tmp_path) == []
        writer.add(at(1))
        assert files(tmp_path) == [f"{FIRST_HOUR}/{name_of(0, 0, 2)}"]


def test_of_many_partitions_the_largest_goes_first_when_all_together_weigh_too_much(tmp_path):
    with folder_at(tmp_path) as folder:
        folder.begin({0: 0, 1: 0})
        writer = writer_for(folder, total_bytes=100)
        writer.add(at(0, size_bytes=80))
        writer.add(at(0, partition=1, size_bytes=20))
        assert files(tmp_path) == [f"{FIRST_HOUR}/{name_of(0, 0, 1)}"]
        writer.add(at(1, partition=1, size_bytes=70))
        assert len(files(tmp_path)) == 1


def test_what_has_waited_long_enough_is_written(tmp_path):
    now_s = [0.0]
    with folder_at(tmp_path) as folder:
        folder.begin({0: 0, 1: 0})
        writer = writer_for(folder, clock_s=lambda: now_s[0], max_wait_s=60.0)
        writer.add(at(0))
        now_s[0] = 30.0
        writer.add(at(1))
        writer.add(at(0, partition=1))
        writer.write_due()
        assert files(tmp_path) == []
        now_s[0] = 60.0
        writer.write_due()
        assert files(tmp_path) == [f"{FIRST_HOUR}/{name_of(0, 0, 2)}"]


def test_a_record_that_cannot_be_read_is_covered_by_the_file_around_it(tmp_path):
    with folder_at(tmp_path) as folder:
        folder.begin({0: 0})
        writer = writer_for(folder)
        # None is collected: the next file begins before it.
        writer.pass_over(0, 0)
        writer.add(at(1))
        writer.pass_over(0, 2)
        writer.write_all()
        assert files(tmp_path) == [f"{FIRST_HOUR}/{name_of(0, 0, 3)}"]
        assert folder.next_offsets == {0: 3}


def test_the_folder_goes_on_where_its_files_end_though_its_note_is_older(tmp_path):
    with folder_at(tmp_path) as folder:
        folder.begin({0: 0, 1: 7})
        old_note = (tmp_path / NOTE_NAME).read_bytes()
        writer = writer_for(folder, num_rows=1)
        writer.add(at(0))
    # As after a death between the file's own name and the note.
    (tmp_path / NOTE_NAME).write_bytes(old_note)
    (tmp_path / ".intertidal-left").write_bytes(b"half a file")
    with folder_at(tmp_path) as folder:
        assert folder.next_offsets == {0: 1, 1: 7}
        # A start that moved meanwhile counts for new partitions alone.
        folder.begin({0: 50, 1: 50, 2: 50})
        assert folder.next_offsets == {0: 1, 1: 7, 2: 50}
    assert not list(tmp_path.glob(".intertidal*"))


def test_files_may_be_moved_away(tmp_path):
    with folder_at(tmp_path) as folder:
        folder.begin({0: 0})
        writer_for(folder, num_rows=1).add(at(0))
    for path in tmp_path.glob("hour=*/*"):
        path.unlink()
    with folder_at(tmp_path) as folder:
        assert folder.next_offsets == {0: 1}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"topic": "t.results"}, "files of topic t.clocks, not t.results"),
        ({"cluster": "c2"}, "files of cluster c1, not c2"),
        ({"file_format": "arrow"}, "files of format parquet, not arrow"),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path, other, said):
    with folder_at(tmp_path) as folder:
        folder.begin({0: 0})
    with pytest.raises(UserError, match=said):
        folder_at(tmp_path, **other)
    # And can be taken again: the refusal held nothing.
    folder_at(tmp_path).close()


def test_a_folder_with_something_in_it_or_of_another_writer_is_refused(tmp_path):
    with folder_at(tmp_path / "a"), pytest.raises(UserError, match="another process"):
        folder_at(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        folder_at(tmp_path / "b")
    with pytest.raises(UserError, match="cannot be written"):
        folder_at(tmp_path / "b" / "thesis.txt")
    (tmp_path / "a" / NOTE_NAME).write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        folder_at(tmp_path / "a")


class Killed(BaseException):
    """Stands for the end of the process: nothing of ours handles it."""


@settings(max_examples=25)
@given(
    hours=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    calls=st.lists(st.integers(0, 40), max_size=4),
    num_rows=st.integers(1, 4),
)
def test_whenever_it_dies_no_row_is_lost_repeated_or_half_there(tmp_path_factory, hours, calls, num_rows):
    """Every step that touches the disk may be the last one; the next process then goes on from the folder alone."""
    path = tmp_path_factory.mktemp("out")
    log = [at(offset, time_ms=T0_MS + hour * HOUR_MS) for offset, hour in enumerate(hours)]
    found: list[int] = []
    for last_call in [*calls, None]:
        left = [last_call]
        with pytest.MonkeyPatch.context() as patch:
            for name in ("fsync", "rename", "mkdir", "unlink"):
                patch.setattr(os, name, _mortal(getattr(os, name), left))
            # In the middle of a file, too.
            patch.setattr(files_module, "_BATCH_ROWS", 1)
            patch.setattr(files_module, "to_batch", _mortal(to_batch, left))
            try:
                with folder_at(path) as folder:
                    folder.begin({0: 0})
                    writer = writer_for(folder, num_rows=num_rows)
                    for read in log[folder.next_offsets[0] :]:
                        writer.add(read)
                    writer.write_all()
            except Killed:
                pass
        found = offsets(path).get(0, [])
        assert found == list(range(len(found)))
    assert found == list(range(len(log)))


def _mortal(call, left):
    def called(*given, **named):
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
        return call(*given, **named)

    return called


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from tests.unit.ops.test_read_files import at, folder_at, writer_for
from ops.errors import UserError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with folder_at(Path(sys.argv[1])) as folder:
    folder.begin({0: 0})
    writer = writer_for(folder)
    for offset in range(2_000):
        writer.add(at(offset))
    # From here on no file may grow beyond 4 KiB.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, 4_096))
    try:
        writer.write_all()
    except UserError as error:
        print(error)
"""


def test_a_disk_that_takes_no_more_is_one_line_and_nothing_is_half_there(tmp_path):
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path / "out"],
        env={**os.environ, "PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / 'out'} cannot be written: File too large\n"
    assert files(tmp_path / "out") == []
    assert not list((tmp_path / "out").glob(".intertidal*"))
    note = msgspec.json.decode((tmp_path / "out" / NOTE_NAME).read_bytes())
    assert note["next_offsets"] == {"0": 0}
