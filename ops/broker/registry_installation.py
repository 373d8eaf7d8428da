"""The local Schema Registry's files: which Apicurio Registry runs on the Java that is there, fetched once.

<cache>/registry-<hash of pom.xml>/                      what the archive holds (see ops.broker.maven)
<cache>/registry-<hash of pom.xml>/classes-<hash>.jsa    class archive, one per Java version
"""

import hashlib
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Final

from ops.broker.jvm import free_port, terminate
from ops.broker.maven import MavenJars, cache_dir
from ops.broker.prerequisites import BrokerError, Java, find_java
from ops.broker.registry_process import launch, wait_until_it_answers
from ops.broker.registry_settings import RegistryInstallation, RegistrySettings, is_newer_java

_ARCHIVE_TIMEOUT_S: Final = 120.0


def registry_files(java: Java) -> MavenJars:
    """Returns the archive for a Java: the newer Apicurio Registry does not run on every Java that Kafka runs on."""
    pom = "registry-java21.pom.xml" if is_newer_java(java) else "registry-java17.pom.xml"
    return MavenJars("registry", files("ops.broker") / pom, is_archive=True)


def ensure_registry_installation() -> RegistryInstallation:
    """Returns a registry that can be run; fetches it the first time.

    Raises:
        BrokerError: no Java, no Maven, no network, or a cache that cannot be written.
    """
    java = find_java()
    wanted = registry_files(java)
    archive = wanted.folder / f"classes-{hashlib.sha256(java.version.encode()).hexdigest()[:12]}.jsa"
    found = wanted.fetched()
    if found and archive.exists():
        return RegistryInstallation(java, found, archive)
    try:
        with wanted.locked():
            found = wanted.ensure_locked()
            if not archive.exists():
                _write_class_archive(RegistryInstallation(java, found), archive)
    except OSError as error:
        raise BrokerError(f"the cache {cache_dir()} cannot be used: {error}") from error
    return RegistryInstallation(java, found, archive if archive.exists() else None)


def _write_class_archive(installation: RegistryInstallation, archive: Path) -> None:
    """Runs a registry once and has the JVM archive the classes it loaded (JEP 350): a start costs 4 s of CPU, not 9.

    Without effect when that fails: the registry then starts slower, and its own start says what is wrong.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="archive-") as scratch:
        written = Path(scratch, "classes.jsa")
        settings = RegistrySettings(free_port(), Path(scratch))
        command = installation.command(settings)
        command.insert(1, f"-XX:ArchiveClassesAtExit={written}")
        process: subprocess.Popen[bytes] = launch(command, settings)
        try:
            try:
                wait_until_it_answers(settings, is_alive=lambda: process.poll() is None, timeout_s=_ARCHIVE_TIMEOUT_S)
            finally:
                terminate(process.pid, is_alive=lambda: process.poll() is None, timeout_s=_ARCHIVE_TIMEOUT_S)
        except BrokerError:
            return
        if written.exists():
            written.replace(archive)
