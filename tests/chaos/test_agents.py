"""Fleet agents under failures, and many of them: killed while the broker comes and goes, a thousand in one process."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pytest

from ops.broker.jvm import free_port
from ops.broker.local import LocalBroker
from schemas.framing import decode_as
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.ranges import read_to_end
from schemas.records import CapacityEvent, ControlWindow
from schemas.topics import CONTROL_WINDOWS, Namespace
from tests.broker.test_agent import LIMITS, READING, Host, told, until
from tests.chaos.seeds import FIRST_SEED

NUM_KILLS = 5
NUM_HOSTS = 1_000
LOAD_S = float(os.environ.get("CHAOS_AGENTS_S", "300"))
WINDOW_MS = 2_000


def seqs_by_epoch(events: list[CapacityEvent]) -> list[tuple[int, list[int]]]:
    """Of each epoch the numbers in the order of the topic, without what was sent again."""
    found: dict[int, list[int]] = {}
    for event in events:
        seqs = found.setdefault(event.epoch_ms, [])
        if event.seq not in seqs:
            seqs.append(event.seq)
    return list(found.items())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [FIRST_SEED])
def test_an_agent_that_is_killed_while_the_broker_comes_and_goes_loses_nothing(
    seed: int, java_and_jars: None, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    space = Namespace()
    with LocalBroker(tmp_path / "broker", port=free_port()) as broker:
        host = Host(tmp_path, broker.bootstrap, space)
        TopicAdmin({"bootstrap.servers": broker.bootstrap}).create(space)
        for number in range(NUM_KILLS):
            if number % 2:
                assert broker.stop()
            with host.agent() as process:
                until(lambda: " started " in host.log.read_text())
                time.sleep(rng.uniform(0.5, 3.0))
                host.sees({**READING, "owner_units": float(number % 2)})
                time.sleep(rng.uniform(0.0, 1.0))
                process.kill()
            if number % 2:
                broker.start()
        with host.agent() as process:
            until(lambda: len({event.epoch_ms for event in told(broker.bootstrap, space, "gpu-17")}) == NUM_KILLS + 1)
            process.terminate()
            assert process.wait(30) == 0
        events = told(broker.bootstrap, space, "gpu-17")
    epochs = seqs_by_epoch(events)
    assert [epoch for epoch, _ in epochs] == sorted(epoch for epoch, _ in epochs)
    # An epoch that is begun is not gone back to, but for what its killed agent had not heard of.
    assert [epoch for epoch, _ in groupby(event.epoch_ms for event in events)] == [epoch for epoch, _ in epochs]
    for _, seqs in epochs:
        assert seqs == list(range(len(seqs)))
    assert not list((tmp_path / "state" / "spool").glob("*.log"))


@contextmanager
def part(host: Host, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen([sys.executable, "-m", "ops.cli", "run", *arguments], env=host.environ)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.timeout(900)
def test_pools_of_a_thousand_agents_in_one_process_are_right_to_the_unit(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    space = Namespace(topic_prefix)
    TopicAdmin({"bootstrap.servers": kafka}).create(space)
    host = Host(tmp_path, kafka, space)
    host.environ |= {"INTERTIDAL_HEARTBEAT_MS": "5000", "INTERTIDAL_WINDOW_MS": str(WINDOW_MS)}
    assert host.call("cells", "add", "us-east", *LIMITS).returncode == 0
    units = [1.0, 0.0, 1.0]
    changes_ms = []
    with (
        part(host, "ingest", "--id", "ingest-1"),
        part(host, "agent", "--config", str(tmp_path / "agent.toml"), "--copies", str(NUM_HOSTS)),
    ):
        for offered in units:
            host.sees({**READING, "owner_units": 1.0 - offered})
            changes_ms.append(time.time_ns() // 1_000_000)
            time.sleep(LOAD_S / len(units))
        ended_ms = time.time_ns() // 1_000_000
        until(lambda: any(window.end_ms >= ended_ms - 10_000 for window in windows(kafka, space)), timeout_s=60.0)
    # Each change is in the windows a while after it was made: readings, a thousand gates, the window itself.
    settled = [
        (offered, window)
        for offered, begun_ms, over_ms in zip(units, changes_ms, [*changes_ms[1:], ended_ms], strict=True)
        for window in windows(kafka, space)
        if begun_ms + 12_000 <= window.start_ms and window.end_ms <= over_ms - 2 * WINDOW_MS
    ]
    assert len(settled) >= LOAD_S / (WINDOW_MS / 1e3) / 4
    assert {offered for offered, _ in settled} == {0.0, 1.0}
    for offered, window in settled:
        capacity = window.capacity
        assert capacity is not None
        assert (capacity.num_hosts, capacity.num_hosts_silent, capacity.num_duplicates) == (NUM_HOSTS, 0, 0)
        assert sum(pool.units_micro for pool in capacity.pools) == round(offered * NUM_HOSTS * 1e6)
    TopicAdmin({"bootstrap.servers": kafka}).delete(space)


def windows(kafka: str, space: Namespace) -> list[ControlWindow]:
    """Capacity windows closed so far, in their order."""
    messages = read_to_end({"bootstrap.servers": kafka}, space.topic(CONTROL_WINDOWS))
    found = [decode_as(message.value(), ControlWindow) for message in messages]
    return sorted((each for each in found if each.kind == "capacity"), key=lambda each: each.window_index)
