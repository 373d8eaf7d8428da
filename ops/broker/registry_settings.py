"""What the local Schema Registry is told: its port, its folder, and the command line. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.broker.prerequisites import Java
from ops.broker.settings import JVM_FLAGS, LOOPBACK

# Where Apicurio Registry answers as a Confluent Schema Registry.
COMPATIBLE_PATH: Final = "/apis/ccompat/v7"
_NEWER_FROM_JAVA: Final = 21


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """One registry: its loopback port and its data folder."""

    port: int
    data_dir: Path

    @property
    def url(self) -> str:
        """Returns what SCHEMA_REGISTRY_URL is set to."""
        return f"http://{LOOPBACK}:{self.port}{COMPATIBLE_PATH}"

    @property
    def database_url(self) -> str:
        """Returns where the schemas are kept; it also marks the process in its command line."""
        return f"jdbc:h2:file:{self.data_dir / 'schemas'}"

    @property
    def log_path(self) -> Path:
        """Returns the path of what the JVM prints."""
        return self.data_dir / "registry.log"


@dataclass(frozen=True, slots=True)
class RegistryInstallation:
    """A registry that can be run: a Java, the files of the archive, and the class archive where there is one."""

    java: Java
    files: tuple[Path, ...]
    class_archive: Path | None = None

    def command(self, settings: RegistrySettings) -> list[str]:
        """Returns the whole command: bound to loopback, schemas in a file, a pool of a few connections."""
        is_newer = is_newer_java(self.java)
        pool = "apicurio.datasource.jdbc" if is_newer else "quarkus.datasource.jdbc"
        properties = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": settings.port,
            "quarkus.log.level": "WARN",
            "apicurio.datasource.url" if is_newer else "quarkus.datasource.jdbc.url": settings.database_url,
            f"{pool}.initial-size": 1,
            f"{pool}.min-size": 1,
            f"{pool}.max-size": 8,
        }
        main_jar = next(file for file in self.files if file.name.endswith(("-runner.jar", "quarkus-run.jar")))
        flags = [f"-XX:SharedArchiveFile={self.class_archive}"] if self.class_archive else []
        flags += [f"-D{name}={value}" for name, value in properties.items()]
        return [str(self.java.path), *JVM_FLAGS, *flags, "-jar", str(main_jar)]


def is_newer_java(java: Java) -> bool:
    """Returns whether the Java is one that the newer Apicurio Registry needs."""
    return java.major >= _NEWER_FROM_JAVA
