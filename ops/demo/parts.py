"""The command line of each part of a scenario's pipeline. Pure."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ops.demo.supervisor import PartCommand
from ops.simulator.scenario import Scenario

_BUNDLES = Path(__file__).parents[2] / "ranking" / "models" / "bundles"
BUNDLE = _BUNDLES / "baseline-world"
POWERFUL_BUNDLE = _BUNDLES / "powerful-world"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the pipeline of one run keeps its files; ``scenario`` is the name or path that its traffic is given."""

    run_dir: Path
    scenario: str
    duration_s: float

    @property
    def hosts_dir(self) -> Path:
        return self.run_dir / "hosts"

    @property
    def keys_path(self) -> Path:
        """The keys of attribution tokens."""
        return self.run_dir / "attribution.keys"

    @property
    def experiment_path(self) -> Path:
        """The arms of a scenario that has its own."""
        return self.run_dir / "experiment.toml"


def serving_parts(
    scenario: Scenario, layout: Layout, environ: Mapping[str, str], ports: Iterator[int]
) -> Iterator[tuple[PartCommand, int]]:
    """Each part that serves, with the port of its health, in the order in which they start."""

    def part(name: str, verb: str, *arguments: str, **variables: str) -> tuple[PartCommand, int]:
        port = next(ports)
        argv = (sys.executable, "-m", "ops.cli", "run", verb, "--health-port", str(port), *arguments)
        return PartCommand(name=name, argv=argv, environ={**environ, **variables}), port

    yield part("ingest-1", "ingest", "--id", "ingest-1")
    yield part("control-1", "control", "--id", "control-1", "--data-dir", str(layout.run_dir / "control-1"))
    for number in range(1, scenario.processes.routers + 1):
        experiment = () if scenario.arms is None else ("--experiment", str(layout.experiment_path))
        yield part(f"router-{number}", "router", "--id", f"router-{number}", *experiment)
    baseline, powerful = ("--bundle", str(BUNDLE)), ("--bundle", str(POWERFUL_BUNDLE))
    for number in range(1, scenario.processes.dedicated_rankers + 1):
        name = f"dedicated-{number}"
        cell = scenario.cells[(number - 1) % len(scenario.cells)].name
        yield part(name, "ranker", "--id", name, "--route", "baseline", "--cell", cell, *baseline)
    optional = (("wide", scenario.ranker_hosts(), baseline), ("powerful", scenario.powerful_hosts(), powerful))
    for route, hosts, bundle in optional:
        for number, host in enumerate(hosts, start=1):
            name = f"{route}-{number}"
            yield part(
                name,
                "ranker",
                *("--id", name, "--route", route, "--cell", host.cell, "--pool", host.accelerator, *bundle),
                INTERTIDAL_RUNTIME_DIR=str(layout.hosts_dir / host.name),
            )


def agents_part(layout: Layout, environ: Mapping[str, str], *, start_ms: int) -> PartCommand:
    """The fleet agents; restarted, they find their place on the same timeline."""
    return PartCommand(
        name="agents",
        argv=(
            *(sys.executable, "-m", "ops.simulator.agents", "--base-dir", str(layout.hosts_dir)),
            *_traffic(layout, start_ms),
        ),
        environ=environ,
    )


def callers_part(layout: Layout, environ: Mapping[str, str], *, start_ms: int) -> PartCommand:
    """The callers; they end by themselves when the scenario's traffic does."""
    return PartCommand(
        name="callers",
        argv=(sys.executable, "-m", "ops.simulator.callers", "--json", *_traffic(layout, start_ms)),
        environ=environ,
        restarted=False,
    )


def _traffic(layout: Layout, start_ms: int) -> tuple[str, ...]:
    return (
        *("--scenario", layout.scenario, "--duration-s", str(layout.duration_s)),
        *("--start-ms", str(start_ms)),
    )
