"""What stands in docker/ is what the rest of the project says: commands, Kafka's settings, versions, folders."""

import json
import re
from pathlib import Path

import click
import pytest

from ops.broker.container_settings import IMAGE
from ops.broker.settings import JVM_FLAGS, shared_properties
from ops.cli import cli
from ops.simulator.scenario import load_scenario

ROOT = Path(__file__).parents[3]
COMPOSE = (ROOT / "docker/compose.yaml").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
COMMANDS = [json.loads(line) for line in re.findall(r"^    command: (\[.*\])$", COMPOSE, re.MULTILINE)]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_is_one_of_ours(command: list[str], tmp_path: Path) -> None:
    # The image has the bundles where a machine has them somewhere else.
    arguments = [str(tmp_path) if argument.startswith("/opt/bundles/") else argument for argument in command]
    verb: click.Command = cli
    context: click.Context | None = None
    while isinstance(verb, click.Group):
        context = click.Context(verb, parent=context)
        _, found, arguments = verb.resolve_command(context, arguments)
        assert found is not None
        verb = found
    verb.make_context(verb.name, list(arguments), parent=context)


def test_each_part_is_there() -> None:
    parts = {command[1] for command in COMMANDS if command[0] == "run"}
    assert parts == {"ingest", "control", "router", "ranker", "agent"}
    routes = {command[command.index("--route") + 1] for command in COMMANDS if "--route" in command}
    assert routes == {"baseline", "wide"}


def test_kafka_is_told_what_the_local_broker_is_told() -> None:
    told = dict(re.findall(r'^      (KAFKA_[A-Z_]+): "(.*)"$', COMPOSE, re.MULTILINE))
    for name, value in shared_properties().items():
        # A listener more: one for the parts, one for this machine.
        if name != "listener.security.protocol.map":
            assert told[f"KAFKA_{name.upper().replace('.', '_')}"] == str(value)
    assert [told["KAFKA_HEAP_OPTS"], *told["KAFKA_JVM_PERFORMANCE_OPTS"].split()] == list(JVM_FLAGS)
    assert f"image: {IMAGE}\n" in COMPOSE


def test_published_ports_are_on_loopback() -> None:
    published = re.findall(r"^    ports: (\[.*\])$", COMPOSE, re.MULTILINE)
    assert [port for line in published for port in json.loads(line) if not port.startswith("127.0.0.1:")] == []
    assert len(published) == 1


def test_the_wide_replica_obeys_the_gate_of_a_host_that_the_agent_plays() -> None:
    scenario = load_scenario("generated")
    hosts = {host.name: host for host in scenario.hosts}
    match = re.search(r'INTERTIDAL_RUNTIME_DIR: "/run/intertidal/([a-z-]+)"', COMPOSE)
    assert match is not None
    (wide,) = (command for command in COMMANDS if "wide" in command)
    assert wide[wide.index("--pool") + 1] == hosts[match[1]].accelerator
    assert wide[wide.index("--cell") + 1] == hosts[match[1]].cell


def test_everything_that_is_copied_exists_and_no_image_runs_as_root() -> None:
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert len(copied) >= 8
    assert [source for source in copied if not (ROOT / source).exists()] == []
    for target in ("agent", "pipeline"):
        stage = DOCKERFILE.partition(f"FROM runtime AS {target}\n")[2].partition("\nFROM ")[0]
        assert "USER 10001\n" in stage
        assert "HEALTHCHECK " in stage
