"""The local Schema Registry without a JVM: which one, what it is told, and what the verbs say."""

import json
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from ops.broker import cli
from ops.broker.prerequisites import BrokerError, Java
from ops.broker.registry import LocalRegistry, registry_dir
from ops.broker.registry_installation import ensure_registry_installation, registry_files
from ops.broker.registry_settings import RegistryInstallation, RegistrySettings


@pytest.mark.parametrize(
    ("version", "pom"), [("17.0.15", "java17"), ("20", "java17"), ("21", "java21"), ("25.0.1", "java21")]
)
def test_the_java_decides_which_registry(version: str, pom: str) -> None:
    assert pom in str(registry_files(Java(Path("/usr/bin/java"), version)).pom)


@pytest.mark.parametrize(
    ("version", "jar", "database"),
    [
        ("17.0.15", "apicurio-registry-app-2-runner.jar", "quarkus.datasource.jdbc.url"),
        ("21", "quarkus-run.jar", "apicurio.datasource.url"),
    ],
)
def test_it_listens_on_loopback_and_keeps_its_schemas_in_the_folder(version: str, jar: str, database: str) -> None:
    files = (Path("/jars/lib/other.jar"), Path("/jars") / jar)
    settings = RegistrySettings(18_081, Path("/state/registry"))
    command = RegistryInstallation(Java(Path("/usr/bin/java"), version), files).command(settings)
    assert "-Dquarkus.http.host=127.0.0.1" in command
    assert "-Dquarkus.http.port=18081" in command
    assert f"-D{database}=jdbc:h2:file:/state/registry/schemas" in command
    assert command[-2:] == ["-jar", f"/jars/{jar}"]
    assert settings.url == "http://127.0.0.1:18081/apis/ccompat/v7"


UNPACKING_MAVEN = """#!/bin/sh
for argument in "$@"; do case "$argument" in
-DoutputDirectory=*) out="${argument#-DoutputDirectory=}";;
dependency:unpack-dependencies) unpacks=yes;;
esac; done
[ "$unpacks" = yes ] || exit 1
mkdir "$out/lib"; echo a > "$out/lib/a.jar"; echo r > "$out/app-runner.jar"
"""


def test_the_archive_is_unpacked_once_and_a_java_that_fails_costs_only_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, script in (
        ("mvn", UNPACKING_MAVEN),
        ("java", """#!/bin/sh\n[ "$1" = -version ] && echo 'openjdk version "17.0.1"' >&2\n"""),
    ):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("INTERTIDAL_CACHE_DIR", str(tmp_path / "cache"))
    first = ensure_registry_installation()
    assert [file.name for file in first.files] == ["app-runner.jar", "a.jar"]
    assert first.class_archive is None
    (tmp_path / "mvn").write_text("#!/bin/sh\nexit 1\n")
    assert ensure_registry_installation() == first


def test_a_folder_without_a_registry(tmp_path: Path) -> None:
    registry = LocalRegistry(tmp_path / "none")
    assert registry.pid is None
    assert not registry.stop()
    assert not (tmp_path / "none").exists()
    with pytest.raises(BrokerError, match="no Schema Registry has been started"):
        _ = registry.url


def test_status_says_that_none_runs(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli.status, ["--registry", "--data-dir", str(tmp_path / "broker")], standalone_mode=False
    )
    assert (result.return_value, result.output) == (1, "not running\n")


class FakeBroker:
    """A broker that runs, for verbs that are about the registry."""

    bootstrap, pid, log = "127.0.0.1:9092", 7, "broker.log"

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def start(self) -> "FakeBroker":
        return self


class FakeRegistry(FakeBroker):
    url = "http://127.0.0.1:18081/apis/ccompat/v7"
    started: ClassVar[list[Path]] = []

    def start(self) -> "FakeRegistry":
        self.started.append(self.data_dir)
        return self


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders on which a registry was started."""
    monkeypatch.setattr(cli, "kept_broker", lambda folder, **_: FakeBroker(folder))
    monkeypatch.setattr(cli, "running_kept_broker", lambda _folder: None)
    monkeypatch.setattr(cli, "LocalRegistry", FakeRegistry)
    monkeypatch.setattr(FakeRegistry, "started", [])
    return FakeRegistry.started


def test_start_prints_the_broker_and_where_the_registry_is(tmp_path: Path, fakes: list[Path]) -> None:
    result = CliRunner().invoke(cli.start, ["--registry", "--data-dir", str(tmp_path)], standalone_mode=False)
    assert result.stdout.splitlines() == ["127.0.0.1:9092", FakeRegistry.url]
    assert fakes == [registry_dir(tmp_path)]


def test_start_without_a_registry_starts_none(tmp_path: Path, fakes: list[Path]) -> None:
    result = CliRunner().invoke(cli.start, ["--data-dir", str(tmp_path)], standalone_mode=False)
    assert result.stdout.splitlines() == ["127.0.0.1:9092"]
    assert fakes == []


def test_status_has_it_for_scripts(tmp_path: Path, fakes: list[Path]) -> None:
    result = CliRunner().invoke(cli.status, ["--json", "--data-dir", str(tmp_path)], standalone_mode=False)
    assert json.loads(result.output)["registry"] == FakeRegistry.url
