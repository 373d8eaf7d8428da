"""Java and Maven: found, and new enough."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.errors import UserError

MIN_JAVA_MAJOR: Final = 17
INSTALL_LINE: Final = "apt-get install openjdk-17-jdk-headless maven"

_PROBE_TIMEOUT_S: Final = 30.0


class BrokerError(UserError):
    """The local broker cannot be had, or did not do what it was asked to."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java found on the PATH, its version as it says itself."""

    path: Path
    version: str

    @property
    def major(self) -> int:
        """Returns the major version: 8 for 1.8, 17 for 17.0.15."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def find_java() -> Java:
    """Returns the Java of the PATH.

    Raises:
        BrokerError: there is none, it does not run, or it is too old.
    """
    found = shutil.which("java")
    if found is None:
        raise BrokerError(f"Java {MIN_JAVA_MAJOR} or later is not on the PATH: {INSTALL_LINE}")
    # -version prints to stderr: java version "1.8.0_392", openjdk version "17.0.15" 2025-04-15.
    match = re.search(r'version "(\d[^"]*)"', _probe([found, "-version"]))
    if match is None:
        raise BrokerError(f"{found} -version did not name its version")
    java = Java(Path(found), match[1])
    if java.major < MIN_JAVA_MAJOR:
        raise BrokerError(f"Java {MIN_JAVA_MAJOR} or later is needed, {found} is {java.version}: {INSTALL_LINE}")
    return java


def find_maven() -> Path:
    """Returns the Maven of the PATH.

    Raises:
        BrokerError: there is none.
    """
    found = shutil.which("mvn")
    if found is None:
        raise BrokerError(f"Maven (mvn) is not on the PATH: {INSTALL_LINE}")
    return Path(found)


def _probe(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerError(f"{command[0]} does not run: {error}") from error
    return done.stdout + done.stderr
