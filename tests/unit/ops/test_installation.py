"""The cache of the broker's jars, with a Maven and a Java that are shell scripts."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ops.broker.installation import ensure_installation, fetched_jars, kafka_jars
from ops.broker.maven import MavenJars, cache_dir, main
from ops.broker.prerequisites import BrokerError

GOOD_MAVEN = """
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) out="${argument#-DoutputDirectory=}";; esac; done
echo run >> "$MAVEN_RUNS"
echo a > "$out/a.jar"
sleep 0.2
echo b > "$out/b.jar"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache; returns the folder of its programs. Its Java runs no broker."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("INTERTIDAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MAVEN_RUNS", str(tmp_path / "runs"))
    put(programs, "java", """[ "$1" = -version ] && echo 'openjdk version "17.0.1"' >&2""")
    put(programs, "mvn", GOOD_MAVEN)
    return programs


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def num_maven_runs(machine: Path) -> int:
    return len((machine.parent / "runs").read_text().splitlines())


def test_jars_are_fetched_once(machine: Path) -> None:
    first = ensure_installation()
    assert [jar.name for jar in first.jars] == ["a.jar", "b.jar"]
    assert ensure_installation().jars == first.jars
    assert num_maven_runs(machine) == 1


def test_two_first_uses_at_once_fetch_once(machine: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = [future.result() for future in [pool.submit(ensure_installation) for _ in range(2)]]
    assert found[0].jars == found[1].jars
    assert num_maven_runs(machine) == 1


@pytest.mark.parametrize("lost", ["complete", "jars/b.jar"])
def test_an_incomplete_cache_is_fetched_again(machine: Path, lost: str) -> None:
    ensure_installation()
    (kafka_jars().folder / lost).unlink()
    assert fetched_jars() == ()
    assert len(ensure_installation().jars) == 2
    assert num_maven_runs(machine) == 2


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("[ERROR] Could not transfer artifact x from central: Unknown host", "is there a network"),
        ("[ERROR] No such plugin", "jars: No such plugin"),
        ("", "exit code 1"),
    ],
)
def test_a_maven_that_fails_is_one_line_and_leaves_nothing(machine: Path, output: str, message: str) -> None:
    put(machine, "mvn", f"echo '{output}'; exit 1")
    with pytest.raises(BrokerError, match=message) as raised:
        ensure_installation()
    assert "\n" not in str(raised.value)
    assert [path.name for path in cache_dir().iterdir() if path.is_dir()] == []


def test_a_cache_that_cannot_be_written(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERTIDAL_CACHE_DIR", str(machine / "java"))
    with pytest.raises(BrokerError, match=r"the cache .* cannot be used"):
        ensure_installation()


def test_jars_of_another_pom_lie_apart_and_their_class_path_is_printed(
    machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pom = tmp_path / "java" / "pom.xml"
    pom.parent.mkdir()
    pom.write_text("<project/>")
    ensure_installation()
    assert main([str(pom)]) == main([str(pom)]) == 0
    folder = MavenJars("java", pom).folder
    assert capsys.readouterr().out.splitlines() == [f"{folder}/jars/a.jar:{folder}/jars/b.jar"] * 2
    assert num_maven_runs(machine) == 2
    pom.write_text("<project>changed</project>")
    assert MavenJars("java", pom).fetched() == ()
    put(machine, "mvn", "exit 1")
    assert main([str(pom)]) == 1
    assert "could not fetch the java jars" in capsys.readouterr().err
    assert main([str(tmp_path / "absent.xml")]) == 1
    assert main([]) == 2


def test_the_users_cache_is_used_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERTIDAL_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert cache_dir() == Path("/c/intertidal")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert cache_dir() == Path("/h/.cache/intertidal")
