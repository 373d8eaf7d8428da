"""Progress is for a person at a terminal."""

import subprocess
import sys

import pytest

from ops.telemetry.progress import progress


def test_in_a_pipe_it_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    with progress("fetching", total=2) as advance:
        advance(1)
        advance(1)
    assert capfd.readouterr() == ("", "")


def test_in_a_pipe_rich_is_not_loaded() -> None:
    script = (
        "import sys; from ops.telemetry.progress import progress\n"
        "with progress('x') as advance: advance(1)\n"
        "assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, check=True, timeout=60)


def test_on_a_terminal_it_shows_what_goes_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("fetching jars", total=1) as advance:
        advance(1)
    shown = capfd.readouterr()
    assert "fetching jars" in shown.err
    assert shown.out == ""
