"""The controller killed and its local database damaged, again and again: the same targets, from the changelog."""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ops.demo.ledger import Ledger
from ops.demo.supervisor import PartCommand, Supervisor
from ops.simulator.scenario import load_scenario
from schemas.framing import encode
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, Config, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.topics import CONTROL_WINDOWS, Namespace
from tests.chaos.seeds import FIRST_SEED
from tests.kill_run import KillRun
from tests.unit.streams.control_makers import WINDOW_MS, capacity_window, latency_window

SCENARIO = Path(__file__).parents[1] / "broker" / "kills.toml"
CELLS = ("us-east", "us-west.1", "us-west.2", "eu-central", "ap-south")
WINDOWS_PER_ROUND = 6
READY_TIMEOUT_S = 120.0
# Faust commits twice a second: what is lost after that cannot be read again from the windows.
COMMITTED_S = 1.5


@dataclass(frozen=True)
class Damage:
    """``spoil`` is done to one file among those that match ``glob``, in every database that has one."""

    glob: str
    spoil: Callable[[Path, random.Random], None]


def flip(file: Path, dice: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(min(len(data), 16)):
        data[dice.randrange(len(data))] ^= dice.randrange(1, 256)
    file.write_bytes(data)


def cut(file: Path, dice: random.Random) -> None:
    os.truncate(file, dice.randrange(file.stat().st_size + 1))


def blank(file: Path, dice: random.Random) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def remove(file: Path, dice: random.Random) -> None:
    file.unlink()


DAMAGES = (
    Damage("*.log", flip),
    Damage("*.log", cut),
    Damage("*.sst", flip),
    Damage("*.sst", cut),
    Damage("*.sst", blank),
    Damage("*.sst", remove),
    Damage("MANIFEST-*", flip),
    Damage("MANIFEST-*", cut),
    Damage("CURRENT", blank),
    Damage("*", flip),
    Damage("*", remove),
)


class Controller:
    """One control agent on topics of its own, fed with windows."""

    def __init__(self, kafka: str, namespace: Namespace, folder: Path) -> None:
        scenario = load_scenario(str(SCENARIO))
        config: Config = {"bootstrap.servers": kafka, "client.id": "test", "log_level": 2}
        TopicAdmin(config).create(namespace)
        self.folder = folder / "control"
        self.supervisor = Supervisor(folder)
        self._producer = DurableProducer(producer_config(config))
        self.run = KillRun(
            label="",
            scenario=scenario,
            config=config,
            namespace=namespace,
            ledger=Ledger(),
            faults=[],
            longest_gap_ms=0,
            pressure=0.0,
            restarts={},
            log_dir=folder,
        )
        environ = {
            **os.environ,
            **scenario.time.to_env(),
            BOOTSTRAP_ENV: kafka,
            NAMESPACE_ENV: namespace.prefix,
        }
        argv = (sys.executable, "-m", "ops.cli", "run", "control", "--id", "control-1", "--data-dir", str(self.folder))
        self.supervisor.start(PartCommand(name="control-1", argv=argv, environ=environ))

    def write(self, first: int, last: int, dice: random.Random) -> None:
        """Windows of every cell from one index to another, of a world that changes."""
        topic = self.run.namespace.topic(CONTROL_WINDOWS)
        for index in range(first, last + 1):
            for cell in CELLS:
                latency_ms = dice.choice([30.0, 60.0, 160.0])
                for window in (
                    capacity_window(index, cell=cell, units=dice.choice([0.0, 2.0, 4.0])),
                    latency_window(index, cell=cell, latency_ms=latency_ms, num_requests=dice.choice([0, 200, 400])),
                ):
                    self._producer.send(topic, encode(window), key=cell.encode())
        self._producer.drain()

    def wait_for(self, index: int) -> None:
        """Return once every cell has the target of this index."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        wanted = {("target", cell, index) for cell in CELLS}
        while not wanted <= self.run.targets_sent().keys():
            assert time.monotonic() < deadline_s, f"no target of window {index}; logs in {self.run.log_dir}"
            self.supervisor.check()
            time.sleep(0.3)

    def kill(self) -> None:
        pid = self.supervisor.pid("control-1")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while self.supervisor.pid("control-1") is not None:
            time.sleep(0.05)

    def damage(self, damage: Damage, dice: random.Random) -> list[str]:
        """Damage each database that can be; returns what was damaged."""
        spoiled = []
        for database in sorted(self.folder.rglob("controllers-*.db")):
            files = sorted(file for file in database.glob(damage.glob) if file.stat().st_size)
            if files:
                file = dice.choice(files)
                damage.spoil(file, dice)
                spoiled.append(f"{database.name}/{file.name}")
        return spoiled


@pytest.fixture
def controller(kafka: str, tmp_path: Path) -> Iterator[Controller]:
    made = Controller(kafka, Namespace(f"t-damage-{os.getpid()}."), tmp_path)
    yield made
    made.supervisor.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [FIRST_SEED])
def test_a_damaged_database_costs_nothing_but_its_reading(controller: Controller, seed: int) -> None:
    dice = random.Random(seed)
    damages = list(DAMAGES)
    dice.shuffle(damages)
    index = time.time_ns() // 1_000_000 // WINDOW_MS - WINDOWS_PER_ROUND * 2 * (len(damages) + 1)
    for damage in damages:
        spoiled: list[str] = []
        # A database that was read anew has no table files before it is opened again: then the next round spoils them.
        while not spoiled:
            controller.write(index, index + WINDOWS_PER_ROUND - 1, dice)
            index += WINDOWS_PER_ROUND
            controller.wait_for(index - 1)
            time.sleep(COMMITTED_S)
            controller.kill()
            spoiled = controller.damage(damage, dice)
        print(f"CHAOS_SEED={seed}: {damage.spoil.__name__} {damage.glob}: {', '.join(spoiled)}")
    controller.write(index, index, dice)
    controller.wait_for(index)
    assert controller.run.targets_sent() == controller.run.targets_afresh()
    assert controller.run.targets_behind_newer() == []
    assert list(controller.folder.rglob("*.damaged-*")), "no damage was found"
