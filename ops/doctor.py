"""`intertidal doctor`: what is missing on this machine, and how to get it."""

import importlib.util
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

import click

from ops.broker.docker_engine import find_engine
from ops.broker.installation import fetched_jars
from ops.broker.local import default_data_dir
from ops.broker.locate import check_reachable
from ops.broker.maven import cache_dir
from ops.broker.prerequisites import INSTALL_LINE, find_java, find_maven
from ops.broker.registry_installation import registry_files
from ops.errors import UserError
from schemas.gate import runtime_folder

MIN_PYTHON: Final = (3, 11)
# The broker's heap of 512 MiB with what a JVM needs beside it, two rankers with torch, and the rest of the demo.
MIN_MEMORY_GIB: Final = 4.0
MIN_DISK_GIB: Final = 2.0

_PACKAGES: Final = {
    "agent": ("click", "confluent_kafka", "fastavro", "msgspec", "numpy", "prometheus_client", "rich"),
    "streams": ("faust", "rocksdict"),
    "ranking": ("safetensors", "torch"),
    "nvml": ("pynvml",),
    "registry": ("authlib", "cachetools"),
    "demo": ("testcontainers",),
}
_GIB: Final = 1024**3
_NAMED_SEGMENTS: Final = 6

# missing: something needed is not there; absent: something is not there that not everyone needs.
Verdict = Literal["ok", "missing", "absent"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: what was found, and what to do when it is not as it should be."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Yields a finding for each thing that a part of Intertidal needs."""
    # Who has a broker needs no Java.
    without_java: Verdict = "absent" if os.environ.get("KAFKA_BOOTSTRAP") else "missing"
    yield _python()
    for extra, modules in _PACKAGES.items():
        yield _packages(extra, modules)
    yield _tool("java", lambda: find_java().version, without_java)
    yield _tool("maven", lambda: str(find_maven()), without_java)
    yield _docker()
    yield _jars()
    yield _registry_files()
    yield _memory()
    yield _disk("disk for data", default_data_dir())
    yield _disk("disk for jars", cache_dir())
    bootstrap = _bootstrap()
    yield bootstrap
    yield _split(is_reachable=bootstrap.verdict == "ok" and bool(os.environ.get("KAFKA_BOOTSTRAP")))
    yield _registry()
    yield _runtime_dir()


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def doctor(as_json: bool) -> int:
    """Say what is missing on this machine and how to get it; exit code 1 when something needed is.

    \b
    Example:
      intertidal doctor
    """
    findings = list(examine())
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            remedy = f"  ->  {finding.remedy}" if finding.remedy else ""
            click.echo(f"{finding.verdict:8} {finding.name:18} {finding.found}{remedy}")
    return 1 if any(finding.verdict == "missing" for finding in findings) else 0


def _python() -> Finding:
    found = ".".join(str(number) for number in sys.version_info[:3])
    if sys.version_info >= MIN_PYTHON:
        return Finding("python", "ok", found)
    return Finding("python", "missing", found, "apt-get install python3 python3-venv (3.11 or later)")


def _packages(extra: str, modules: tuple[str, ...]) -> Finding:
    name = f"packages: {extra}"
    missing = [module for module in modules if not _is_there(module)]
    if not missing:
        return Finding(name, "ok", "all there")
    if extra == "agent":
        return Finding(name, "missing", f"without {', '.join(missing)}", "pip install intertidal")
    return Finding(name, "absent", f"without {', '.join(missing)}", f"pip install 'intertidal[{extra}]'")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:
        # Imported already, and a stand-in for itself without a specification, as Faust is.
        return True


def _tool(name: str, find: Callable[[], str], otherwise: Verdict) -> Finding:
    try:
        return Finding(name, "ok", find())
    except UserError as error:
        return Finding(name, otherwise, str(error).removesuffix(f": {INSTALL_LINE}"), INSTALL_LINE)


def _docker() -> Finding:
    engine = find_engine()
    if engine is None:
        return Finding("docker", "absent", "no engine answers: a local broker runs in a JVM")
    if importlib.util.find_spec("testcontainers") is None:
        return Finding("docker", "absent", f"{engine.host}, without testcontainers", "pip install 'intertidal[demo]'")
    return Finding("docker", "ok", engine.host)


def _jars() -> Finding:
    jars = fetched_jars()
    if jars:
        return Finding("broker's jars", "ok", f"{len(jars)} in {jars[0].parent}")
    return Finding("broker's jars", "absent", "not fetched yet", "intertidal broker fetch")


def _registry_files() -> Finding:
    name = "Schema Registry"
    try:
        found = registry_files(find_java()).fetched()
    except UserError:
        return Finding(name, "absent", "not without Java", INSTALL_LINE)
    if found:
        return Finding(name, "ok", f"{len(found)} files in {found[0].parent}")
    return Finding(name, "absent", "not fetched yet", "intertidal broker fetch")


def _registry() -> Finding:
    from schemas.kafka.registry_api import REGISTRY_URL_ENV, RegistryApi, RegistryError, registry_settings

    try:
        settings = registry_settings()
        if settings is None:
            return Finding(REGISTRY_URL_ENV, "ok", "not set: records are framed without a registry")
        RegistryApi(settings).check()
    except (RegistryError, ValueError) as error:
        return Finding(REGISTRY_URL_ENV, "missing", str(error), f"start it, or unset {REGISTRY_URL_ENV}")
    return Finding(REGISTRY_URL_ENV, "ok", f"{settings.url} answers")


def _memory() -> Finding:
    gib = _available_memory_gib(Path("/proc/meminfo").read_text())
    if gib >= MIN_MEMORY_GIB:
        return Finding("memory", "ok", f"{gib:.1f} GiB available")
    return Finding("memory", "absent", f"{gib:.1f} GiB available", f"{MIN_MEMORY_GIB:.0f} GiB for the demo")


def _available_memory_gib(meminfo: str) -> float:
    """Returns MemAvailable of /proc/meminfo, which is in KiB."""
    fields = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024 / _GIB


def _disk(name: str, path: Path) -> Finding:
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    gib = shutil.disk_usage(existing).free / _GIB
    found = f"{gib:.1f} GiB free at {existing}"
    if not os.access(existing, os.W_OK):
        return Finding(name, "missing", f"{existing} cannot be written", "another folder, or its rights")
    if gib < MIN_DISK_GIB:
        return Finding(name, "missing", found, f"{MIN_DISK_GIB:.0f} GiB")
    return Finding(name, "ok", found)


def _bootstrap() -> Finding:
    bootstrap = os.environ.get("KAFKA_BOOTSTRAP")
    if not bootstrap:
        return Finding("KAFKA_BOOTSTRAP", "ok", "not set: a local broker is used")
    try:
        check_reachable(bootstrap)
    except UserError as error:
        return Finding("KAFKA_BOOTSTRAP", "missing", str(error), "start it, or unset KAFKA_BOOTSTRAP")
    return Finding("KAFKA_BOOTSTRAP", "ok", f"{bootstrap} accepts connections")


def _split(*, is_reachable: bool) -> Finding:
    name = "split of users"
    if not is_reachable:
        return Finding(name, "absent", "not looked at: no pipeline is named by KAFKA_BOOTSTRAP")
    from ops.connection import broker_config, namespace
    from ops.doctor_split import read_refused_cells
    from schemas.kafka.admin import BrokerError

    try:
        refused = read_refused_cells(
            broker_config("doctor", only_looks=True), namespace(), now_ms=time.time_ns() // 1_000_000
        )
    except (BrokerError, UserError) as error:
        return Finding(name, "absent", f"not looked at: {error}")
    if not refused:
        return Finding(name, "ok", "no cell upgrades requests while its sample-ratio check fails")
    told = "; ".join(f"{cell} ({', '.join(segments[:_NAMED_SEGMENTS])})" for cell, segments in refused.items())
    return Finding(
        name,
        "missing",
        f"no SBM on live traffic: the sample-ratio check fails in {told}",
        "set max_coverage to 0 until the arms have the shares that they were drawn with",
    )


def _runtime_dir() -> Finding:
    path = runtime_folder()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if existing.is_dir() and os.access(existing, os.W_OK):
        return Finding("runtime folder", "ok", str(path))
    return Finding("runtime folder", "missing", f"{existing} cannot be written", "set INTERTIDAL_RUNTIME_DIR")
