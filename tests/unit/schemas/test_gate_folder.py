"""The runtime folder: for its owner only, links and strangers refused, names that are file names, known processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from schemas.gate import GateError, gate_file_name, runtime_folder
from schemas.gate_folder import process_start
from schemas.gate_reader import GateReader
from schemas.gate_writer import GateWriter

POOL = "h200"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_folder_and_files_are_for_their_owner_only(folder: Path) -> None:
    gate = folder / f"{POOL}.gate"
    GateWriter(POOL, folder=folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert gate.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == [f"{POOL}.gate"]


def test_links_and_what_others_may_touch_are_refused(folder: Path, tmp_path: Path) -> None:
    gate = folder / f"{POOL}.gate"
    GateWriter(POOL, folder=folder).shutdown()
    for path, reason in [(gate, "lets others in"), (folder, "lets others in")]:
        mode = path.stat().st_mode
        path.chmod(mode | 0o020)
        with pytest.raises(GateError, match=reason):
            GateWriter(POOL, folder=folder)
        assert reason in (GateReader(POOL, folder=folder).problem or "")
        path.chmod(mode)

    elsewhere = tmp_path / "elsewhere.gate"
    gate.rename(elsewhere)
    gate.symlink_to(elsewhere)
    with pytest.raises(GateError, match="symbolic link"):
        GateWriter(POOL, folder=folder)
    assert "symbolic link" in (GateReader(POOL, folder=folder).problem or "")
    linked = tmp_path / "linked"
    linked.symlink_to(folder)
    with pytest.raises(GateError, match="symbolic link"):
        GateWriter("other", folder=linked)
    with pytest.raises(GateError, match="not a folder"):
        GateWriter("other", folder=elsewhere)
    os.mkfifo(folder / "fifo.gate", 0o600)
    with pytest.raises(GateError, match="not a regular file"):
        GateWriter("fifo", folder=folder)


def test_what_belongs_to_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    GateWriter(POOL, folder=folder).shutdown()
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(GateError, match="belongs to user"):
        GateWriter(POOL, folder=folder)
    assert "belongs to user" in (GateReader(POOL, folder=folder).problem or "")


@pytest.mark.parametrize("pool", ["", ".", "..", "a/b", "../a", ".hidden", "-x", "a b", "a\n", "x" * 101])
def test_a_pool_name_must_be_a_file_name(pool: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pool"):
        gate_file_name(pool)
    with pytest.raises(ValueError, match="pool"):
        GateReader(pool, folder=tmp_path)
    with pytest.raises(ValueError, match="pool"):
        GateWriter(pool, folder=tmp_path)


def test_where_the_runtime_folder_is() -> None:
    both = {"INTERTIDAL_RUNTIME_DIR": "/a", "XDG_RUNTIME_DIR": "/b"}
    assert runtime_folder(both) == Path("/a")
    assert runtime_folder({"XDG_RUNTIME_DIR": "/b"}) == Path("/b/intertidal")
    assert runtime_folder({"TMPDIR": "/c"}) == Path(f"/tmp/intertidal-{os.geteuid()}")


def test_a_process_is_known_by_its_start() -> None:
    mine = process_start(os.getpid())
    assert mine is not None
    assert mine == process_start(os.getpid())
    parents = process_start(os.getppid())
    assert parents is None or parents <= mine
    assert process_start(2**22 + 1) is None  # beyond the largest pid of Linux
