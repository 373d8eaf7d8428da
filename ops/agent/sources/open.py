"""The sources that a configuration asks for."""

from pathlib import Path

from ops.agent.readings import SourceError
from ops.agent.settings_file import SourcesTable
from ops.agent.sources.command import Command
from ops.agent.sources.host import HostSource
from ops.agent.sources.nvml import NvmlSource
from ops.agent.sources.nvml_api import load_nvml
from ops.agent.sources.source import Source
from ops.agent.sources.static_file import StaticFile
from ops.agent.sources.trace_file import TraceFile


def open_sources(tables: SourcesTable) -> list[Source]:
    """Raises ValueError naming the setting at fault, ModuleNotFoundError for a library that is not installed."""
    sources: list[Source] = []
    if (host := tables.host) is not None:
        cgroup = Path(host.owner_cgroup) if host.owner_cgroup else None
        sources.append(HostSource(every_s=host.every_s, owner_cgroup=cgroup, pressures=host.pressures))
    if (nvml := tables.nvml) is not None:
        try:
            sources.append(NvmlSource(load_nvml(), every_s=nvml.every_s, kinds=nvml.kinds))
        except SourceError as error:
            raise ValueError(f"sources.nvml: {error}") from error
    if (static := tables.static) is not None:
        sources.append(StaticFile(Path(static.path), every_s=static.every_s))
    if (trace := tables.trace) is not None:
        sources.append(TraceFile(Path(trace.path), every_s=trace.every_s, speed=trace.speed, loop=trace.loop))
    if (command := tables.command) is not None:
        sources.append(Command(command.argv, every_s=command.every_s))
    return sources
