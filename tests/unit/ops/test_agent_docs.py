"""The agent's page: its examples run, its defaults are the ones in force, its table of a reading is whole."""

import configparser
import re
import shlex
from dataclasses import asdict
from pathlib import Path

import pytest

from ops.agent.outbox import Outbox
from ops.agent.policy import PolicySettings
from ops.agent.readings import Reading, readings_of_json
from ops.agent.settings import settings_of
from ops.agent.settings_file import Document, PolicyTable, ReclaimTable, SourcesTable
from ops.run_cli import agent
from schemas.records import CapacityEvent

PAGE = (Path(__file__).parents[3] / "docs" / "agent.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_long_configuration_has_every_key_with_its_default(tmp_path: Path) -> None:
    (tmp_path / "labels").write_text("")
    text = re.sub(r'labels_file = ".*?"', 'labels_file = "labels"', blocks("toml")[1])
    settings = settings_of(text, folder=tmp_path)
    written, default = asdict(settings.policy_of("p", "k")), asdict(PolicySettings())
    # Those without a meaning of their own have an example instead.
    for name in default.keys() - {"provider", "cpu_cores", "memory_bytes", "needs"}:
        assert written[name] == default[name], name
    least = settings_of('cell = "us-east"\n[sources.host]\n')
    for name in ("lease_s", "drain_limit_s", "hold_s", "spool_bytes", "claims"):
        assert getattr(settings, name) == getattr(least, name), name
    for table in (Document, PolicyTable, ReclaimTable, SourcesTable):
        for name in table.__struct_encode_fields__:
            assert re.search(rf"\b{name}\b", text), name


def test_a_reading_on_the_page_is_one_and_its_table_is_whole() -> None:
    (text,) = blocks("json")
    assert readings_of_json(text)[0].pool == "h200-0"
    _, _, table = PAGE.partition("| field | meaning |")
    named = set(
        re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", table.partition("\n\n")[0], re.MULTILINE)))
    )
    assert named == set(Reading.__struct_fields__)


def test_the_ten_lines_of_python_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put: list[CapacityEvent] = []
    monkeypatch.setattr(Outbox, "start", lambda _: None)
    monkeypatch.setattr(Outbox, "put", lambda _, record: put.append(record))
    quiet = tmp_path / "kafka.properties"
    quiet.write_text("log_level=0\n")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("KAFKA_CONFIG", str(quiet))
    (program,) = blocks("python")
    assert len(program.splitlines()) <= 10
    exec(program.replace("/var/lib/my-agent/spool", str(tmp_path / "spool")), {})
    assert [record.kind for record in put] == ["offer", "heartbeat", "update", "reclaim"]


def test_the_units_command_line_is_one() -> None:
    (text,) = blocks("ini")
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[0].endswith("/intertidal")
    assert words[1:3] == ["run", "agent"]
    known = {option for parameter in agent.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    (manifest,) = blocks("yaml")
    assert "args: [run, agent, --config, /etc/intertidal/agent.toml]" in manifest
    assert "hostPID: true" in manifest
