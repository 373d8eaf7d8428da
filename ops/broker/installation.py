"""The broker's jars in a cache that all clones share, fetched once, and what makes a JVM start fast.

<cache>/kafka-<hash of pom.xml>/jars/*.jar
<cache>/kafka-<hash of pom.xml>/complete              names of the jars, written last
<cache>/kafka-<hash of pom.xml>/classes-<hash>.jsa    class archive, one per Java version
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from ops.broker.jvm import format_storage, free_port, launch, terminate, wait_until_usable, write_properties
from ops.broker.prerequisites import BrokerError, Java, find_java, find_maven
from ops.broker.settings import BrokerSettings, java_command

_MAVEN_TIMEOUT_S: Final = 900.0
_ARCHIVE_TIMEOUT_S: Final = 60.0
_NO_NETWORK_SIGNS: Final = (
    "Could not transfer",
    "Unknown host",
    "cannot access",
    "Connection refused",
    "offline mode",
)


@dataclass(frozen=True, slots=True)
class Installation:
    """A Kafka that can be run: a Java, the jars, and the class archive where there is one."""

    java: Java
    jars: tuple[Path, ...]
    class_archive: Path | None = None

    def command(self, main_class: str) -> list[str]:
        """Returns the command up to the main class."""
        flags = [f"-XX:SharedArchiveFile={self.class_archive}"] if self.class_archive else []
        return java_command(self.java.path, jars=self.jars, main_class=main_class, jvm_flags=flags)


def cache_dir() -> Path:
    """Returns the folder for what is fetched once: INTERTIDAL_CACHE_DIR, or the user's cache."""
    if own := os.environ.get("INTERTIDAL_CACHE_DIR"):
        return Path(own).absolute()
    user_cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(user_cache).absolute() if user_cache else Path.home() / ".cache") / "intertidal"


def kafka_dir() -> Path:
    """Returns the folder of the jars that pom.xml asks for."""
    digest = hashlib.sha256((files("ops.broker") / "pom.xml").read_bytes()).hexdigest()
    return cache_dir() / f"kafka-{digest[:12]}"


def fetched_jars() -> tuple[Path, ...]:
    """Returns the jars in the cache, empty when they are not all there."""
    folder = kafka_dir()
    try:
        names = (folder / "complete").read_text().split()
    except OSError:
        return ()
    jars = tuple(folder / "jars" / name for name in names)
    return jars if all(jar.is_file() for jar in jars) else ()


def ensure_installation() -> Installation:
    """Returns a Kafka that can be run; fetches it the first time.

    Raises:
        BrokerError: no Java, no Maven, no network, or a cache that cannot be written.
    """
    java = find_java()
    archive = kafka_dir() / f"classes-{hashlib.sha256(java.version.encode()).hexdigest()[:12]}.jsa"
    jars = fetched_jars()
    if jars and archive.exists():
        return Installation(java, jars, archive)
    try:
        with _locked(kafka_dir().with_suffix(".lock")):
            # Another process may have done it while this one waited.
            jars = fetched_jars() or _fetch(find_maven())
            if not archive.exists():
                _write_class_archive(Installation(java, jars), archive)
    except OSError as error:
        raise BrokerError(f"the cache {cache_dir()} cannot be used: {error}") from error
    return Installation(java, jars, archive if archive.exists() else None)


def _fetch(maven: Path) -> tuple[Path, ...]:
    """Fetches the jars: 1. into a folder of this run, 2. with the list of them, 3. renamed at once."""
    folder = kafka_dir()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as partial:
        # 1.
        jars_dir = Path(partial, "new", "jars")
        jars_dir.mkdir(parents=True)
        with as_file(files("ops.broker") / "pom.xml") as pom:
            _run_maven(
                [
                    str(maven),
                    "-B",
                    "-q",
                    "-Dstyle.color=never",
                    "-f",
                    str(pom),
                    "dependency:copy-dependencies",
                    "-DincludeScope=runtime",
                    f"-DoutputDirectory={jars_dir}",
                ]
            )
        # 2.
        names = sorted(jar.name for jar in jars_dir.glob("*.jar"))
        jars_dir.with_name("complete").write_text("\n".join(names) + "\n")
        # 3. What lies there is incomplete, or this would not be asked for.
        shutil.rmtree(folder, ignore_errors=True)
        jars_dir.parent.rename(folder)
    return fetched_jars()


def _run_maven(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_MAVEN_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerError("Maven did not fetch the broker's jars in time") from error
    if done.returncode == 0:
        return
    errors = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("[ERROR]")]
    why = errors[0].removeprefix("[ERROR]").strip() if errors else f"exit code {done.returncode}"
    if any(sign in why for sign in _NO_NETWORK_SIGNS):
        raise BrokerError(f"Maven could not fetch the broker's jars; is there a network? {why}")
    raise BrokerError(f"Maven could not fetch the broker's jars: {why}")


def _write_class_archive(installation: Installation, archive: Path) -> None:
    """Runs a broker once and has the JVM archive the classes it loaded (JEP 350): a start takes half as long.

    Without effect when that fails: the broker then starts slower, and its own start says what is wrong.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="archive-") as scratch:
        written = Path(scratch, "classes.jsa")
        settings = BrokerSettings(free_port(), controller_port=free_port(), data_dir=Path(scratch))
        write_properties(settings)
        java = installation.command("kafka.Kafka")
        java.insert(1, f"-XX:ArchiveClassesAtExit={written}")
        try:
            format_storage(installation.command("kafka.tools.StorageTool"), settings)
            process = launch(java, settings)
            try:
                wait_until_usable(settings, is_alive=lambda: process.poll() is None, timeout_s=_ARCHIVE_TIMEOUT_S)
            finally:
                terminate(process.pid, is_alive=lambda: process.poll() is None, timeout_s=_ARCHIVE_TIMEOUT_S)
        except BrokerError:
            return
        if written.exists():
            written.replace(archive)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
