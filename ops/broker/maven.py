"""The jars that a pom.xml asks for, fetched once into a cache that all clones share.

<cache>/<name>-<hash of pom.xml>/jars/*.jar
<cache>/<name>-<hash of pom.xml>/complete     names of the jars, written last

`python -m ops.broker.maven POM` fetches those of a pom.xml and prints their class path.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from ops.broker.prerequisites import BrokerError, find_maven

_MAVEN_TIMEOUT_S: Final = 900.0
_NO_NETWORK_SIGNS: Final = (
    "Could not transfer",
    "Unknown host",
    "cannot access",
    "Connection refused",
    "offline mode",
)


def cache_dir() -> Path:
    """Returns the folder for what is fetched once: INTERTIDAL_CACHE_DIR, or the user's cache."""
    if own := os.environ.get("INTERTIDAL_CACHE_DIR"):
        return Path(own).absolute()
    user_cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(user_cache).absolute() if user_cache else Path.home() / ".cache") / "intertidal"


@dataclass(frozen=True, slots=True)
class MavenJars:
    """The run-time jars of one pom.xml; ``name`` is what people call them.

    With ``is_archive`` the pom.xml asks for an archive, and the files that it holds are what is fetched.
    """

    name: str
    pom: Traversable
    is_archive: bool = False

    @property
    def folder(self) -> Path:
        """Returns the folder in the cache; another pom.xml has another one."""
        digest = hashlib.sha256(self.pom.read_bytes()).hexdigest()
        return cache_dir() / f"{self.name}-{digest[:12]}"

    def fetched(self) -> tuple[Path, ...]:
        """Returns the jars in the cache, empty when they are not all there."""
        folder = self.folder
        try:
            names = (folder / "complete").read_text().split()
        except OSError:
            return ()
        jars = tuple(folder / "jars" / name for name in names)
        return jars if all(jar.is_file() for jar in jars) else ()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder against another process that fetches."""
        path = self.folder.with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def ensure(self) -> tuple[Path, ...]:
        """Returns the jars; fetches them the first time.

        Raises:
            BrokerError: no Maven, no network, or a cache that cannot be written.
        """
        jars = self.fetched()
        if jars:
            return jars
        try:
            with self.locked():
                return self.ensure_locked()
        except OSError as error:
            raise BrokerError(f"the cache {cache_dir()} cannot be used: {error}") from error

    def ensure_locked(self) -> tuple[Path, ...]:
        """Returns the jars for who holds the lock: another process may have fetched them while this one waited."""
        return self.fetched() or self._fetch(find_maven())

    def _fetch(self, maven: Path) -> tuple[Path, ...]:
        """Fetches the jars: 1. into a folder of this run, 2. with the list of them, 3. renamed at once."""
        folder = self.folder
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as partial:
            # 1.
            jars_dir = Path(partial, "new", "jars")
            jars_dir.mkdir(parents=True)
            with as_file(self.pom) as pom:
                self._run_maven(
                    [
                        str(maven),
                        "-B",
                        "-q",
                        "-Dstyle.color=never",
                        "-f",
                        str(pom),
                        f"dependency:{'unpack' if self.is_archive else 'copy'}-dependencies",
                        "-DincludeScope=runtime",
                        f"-DoutputDirectory={jars_dir}",
                    ]
                )
            # 2.
            files = (path for path in jars_dir.rglob("*") if path.is_file())
            names = sorted(str(path.relative_to(jars_dir)) for path in files)
            jars_dir.with_name("complete").write_text("\n".join(names) + "\n")
            # 3. What lies there is incomplete, or this would not be asked for.
            shutil.rmtree(folder, ignore_errors=True)
            jars_dir.parent.rename(folder)
        return self.fetched()

    def _run_maven(self, command: list[str]) -> None:
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
            raise BrokerError(f"Maven did not fetch the {self.name} jars in time") from error
        if done.returncode == 0:
            return
        errors = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("[ERROR]")]
        why = errors[0].removeprefix("[ERROR]").strip() if errors else f"exit code {done.returncode}"
        if any(sign in why for sign in _NO_NETWORK_SIGNS):
            raise BrokerError(f"Maven could not fetch the {self.name} jars; is there a network? {why}")
        raise BrokerError(f"Maven could not fetch the {self.name} jars: {why}")


def main(arguments: list[str]) -> int:
    """Fetches the jars of a pom.xml and prints their class path; exit code 1 with one line when they cannot be had."""
    if len(arguments) != 1:
        print("python -m ops.broker.maven POM", file=sys.stderr)
        return 2
    pom = Path(arguments[0]).absolute()
    try:
        jars = MavenJars(pom.parent.name, pom).ensure()
    except (BrokerError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    print(":".join(map(str, jars)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
