"""What a person can put right when a part does not start is one line, without a traceback and without a secret."""

from pathlib import Path

import pytest

from ops.cli import main

PARTS = {
    "router": ["run", "router"],
    "ingest": ["run", "ingest"],
}


@pytest.mark.parametrize("part", PARTS)
def test_a_setting_that_the_client_does_not_know_is_named_in_one_line(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kafka.properties"
    config.write_text("no.such.setting=hunter2\n")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("KAFKA_CONFIG", str(config))
    assert main(PARTS[part]) == 1
    output = "".join(capsys.readouterr())
    lines = [line for line in output.splitlines() if line.strip()]
    assert len(lines) == 1
    assert part in lines[0]
    assert "no.such.setting" in lines[0]
    assert "hunter2" not in output


def test_a_line_that_is_no_setting_is_named_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kafka.properties"
    config.write_text("# fine\nsecurity.protocol=ssl\nnonsense\n")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("KAFKA_CONFIG", str(config))
    assert main(["run", "router"]) == 1
    output = "".join(capsys.readouterr())
    assert "line 3" in output
    assert "nonsense" not in output
