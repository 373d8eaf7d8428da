"""A Kafka that can be run: its jars, and what makes a JVM start fast.

<cache>/kafka-<hash of pom.xml>/                      the jars (see ops.broker.maven)
<cache>/kafka-<hash of pom.xml>/classes-<hash>.jsa    class archive, one per Java version
"""

import hashlib
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from ops.broker.jvm import format_storage, free_port, launch, terminate, wait_until_usable, write_properties
from ops.broker.maven import MavenJars, cache_dir
from ops.broker.prerequisites import BrokerError, Java, find_java
from ops.broker.settings import BrokerSettings, java_command

_ARCHIVE_TIMEOUT_S: Final = 60.0


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


def kafka_jars() -> MavenJars:
    """Returns the jars that pom.xml asks for."""
    return MavenJars("kafka", files("ops.broker") / "pom.xml")


def fetched_jars() -> tuple[Path, ...]:
    """Returns the broker's jars in the cache, empty when they are not all there."""
    return kafka_jars().fetched()


def ensure_installation() -> Installation:
    """Returns a Kafka that can be run; fetches it the first time.

    Raises:
        BrokerError: no Java, no Maven, no network, or a cache that cannot be written.
    """
    java = find_java()
    wanted = kafka_jars()
    archive = wanted.folder / f"classes-{hashlib.sha256(java.version.encode()).hexdigest()[:12]}.jsa"
    jars = wanted.fetched()
    if jars and archive.exists():
        return Installation(java, jars, archive)
    try:
        with wanted.locked():
            jars = wanted.ensure_locked()
            if not archive.exists():
                _write_class_archive(Installation(java, jars), archive)
    except OSError as error:
        raise BrokerError(f"the cache {cache_dir()} cannot be used: {error}") from error
    return Installation(java, jars, archive if archive.exists() else None)


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
