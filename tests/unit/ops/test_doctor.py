"""What doctor finds on a machine that lacks something."""

import importlib.util
import json
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.doctor import _available_memory_gib, doctor, examine


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.delenv("SCHEMA_REGISTRY_URL", raising=False)
    monkeypatch.setenv("INTERTIDAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("INTERTIDAL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("INTERTIDAL_RUNTIME_DIR", str(tmp_path))


def verdicts() -> dict[str, str]:
    return {finding.name: finding.verdict for finding in examine()}


def test_without_java_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    result = CliRunner().invoke(doctor, ["--json"], standalone_mode=False)
    findings = {finding["name"]: finding for finding in json.loads(result.output)}
    assert result.return_value == 1
    for name in ("java", "maven"):
        assert findings[name]["verdict"] == "missing"
        assert findings[name]["remedy"] == "apt-get install openjdk-17-jdk-headless maven"


def test_java_is_not_needed_beside_a_broker_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    assert (verdicts()["java"], verdicts()["maven"]) == ("absent", "absent")


def test_a_bootstrap_that_does_not_answer_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    assert verdicts()["KAFKA_BOOTSTRAP"] == "missing"


def test_a_registry_that_does_not_answer_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts()["SCHEMA_REGISTRY_URL"] == "ok"
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "http://ann:s3cr3t@127.0.0.1:1")
    finding = next(finding for finding in examine() if finding.name == "SCHEMA_REGISTRY_URL")
    assert finding.verdict == "missing"
    assert "s3cr3t" not in finding.found


def test_what_is_not_fetched_is_absent() -> None:
    assert (verdicts()["broker's jars"], verdicts()["Schema Registry"]) == ("absent", "absent")


@pytest.mark.parametrize(("module", "verdict"), [("torch", "absent"), ("msgspec", "missing")])
def test_only_the_agents_packages_are_needed_everywhere(
    module: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == module else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    found = [finding for finding in examine() if module in finding.found.split()]
    assert [finding.verdict for finding in found] == [verdict]
    assert found[0].remedy.startswith("pip install ")


def test_available_memory_is_read_in_gib() -> None:
    assert _available_memory_gib("MemTotal: 9 kB\nMemAvailable:  3145728 kB\n") == 3.0
