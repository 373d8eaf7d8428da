"""`intertidal report`: wrong use ends before anything is read, and files are whole or not there."""

from pathlib import Path

import pytest

from ops import report_cli
from ops.cli import main
from ops.report.model import Report
from tests.unit.ops.report_makers import full_range, full_uplift, report_of


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Report:
    report = report_of(full_range(3), full_uplift())
    monkeypatch.setattr(report_cli, "_read", lambda **_: report)
    return report


def test_a_page_alone_or_page_and_document_in_a_folder(
    made: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--out", str(tmp_path / "mine.html")]) == 0
    assert main(["report", "--out", str(tmp_path / "folder" / "of")]) == 0

    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert found == ["folder/of/report.html", "folder/of/report.json", "mine.html"]
    assert (tmp_path / "mine.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert made.headline.sentence in capsys.readouterr().out


def test_json_is_one_line_and_nothing_else(made: Report, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--json"]) == 0

    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert said.startswith('{"version":1,')


def test_an_old_page_stays_where_the_new_one_cannot_be_written(
    made: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    page.write_text("old", encoding="utf-8")

    def full_disk(path: Path, text: str, **_: object) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full_disk)
    assert main(["report", "--out", str(page)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert page.read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--since", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z"],
        ["--since", "yesterday"],
        ["--out", "/proc/nothing/report.html"],
        ["--out", "/proc/nothing"],
    ],
)
def test_wrong_use_reads_nothing(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report_cli, "_read", lambda **_: pytest.fail("read"))

    assert main(["report", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
