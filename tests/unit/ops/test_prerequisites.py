"""Java and Maven on the PATH: absent, too old, unreadable, good."""

from pathlib import Path

import pytest

from ops.broker.prerequisites import BrokerError, Java, find_java, find_maven


def _put(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def only_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.15", 17), ("21", 21), ("25-ea", 25)]
)
def test_major_version(version: str, major: int) -> None:
    assert Java(Path("java"), version).major == major


def test_java_that_is_new_enough_is_found(only_path: Path) -> None:
    _put(only_path, "java", """echo 'openjdk version "17.0.15" 2025-04-15' >&2""")
    assert find_java() == Java(only_path / "java", "17.0.15")


def test_without_java_or_maven_the_install_line_is_named(only_path: Path) -> None:
    for find in (find_java, find_maven):
        with pytest.raises(BrokerError, match="not on the PATH: apt-get install openjdk-17-jdk-headless maven"):
            find()


def test_java_too_old(only_path: Path) -> None:
    _put(only_path, "java", """echo 'java version "1.8.0_392"' >&2""")
    with pytest.raises(BrokerError, match=r"Java 17 or later is needed, .*/java is 1\.8\.0_392"):
        find_java()


def test_java_that_says_no_version(only_path: Path) -> None:
    _put(only_path, "java", "exit 3")
    with pytest.raises(BrokerError, match="did not name its version"):
        find_java()
