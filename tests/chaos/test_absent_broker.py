"""A broker that is away for long: what agents keep, what they give up, and what that costs them.

`CHAOS_AWAY_S=600 make chaos TEST_ARGS='-k away_for_long -s'` is the ten minutes that an outage may well last.
"""

import http.client
import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import Popen

import pytest

from ops.broker.jvm import free_port
from ops.broker.local import LocalBroker
from schemas.kafka.admin import TopicAdmin
from schemas.records import CapacityEvent
from schemas.topics import Namespace
from tests.broker.test_agent import CONFIG, Host, told, until
from tests.chaos.seeds import FIRST_SEED

AWAY_S = float(os.environ.get("CHAOS_AWAY_S", "30"))
# Devices of a host: the more there are, the longer is each record, and the sooner a spool of 1 MiB is full.
NUM_DEVICES = {"roomy": 4, "tight": 200}
MAX_RESIDENT_BYTES = 80 << 20
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def readings(name: str, *, owner_units: float) -> list[dict[str, object]]:
    return [
        {"pool": f"gpu-{number}", "accelerator": f"kind-{number}", "units": 1.0, "owner_units": owner_units}
        for number in range(NUM_DEVICES[name])
    ]


@contextmanager
def running(folder: Path, name: str, bootstrap: str) -> Iterator[tuple[Host, "Popen[bytes]"]]:
    folder.mkdir()
    host = Host(folder, bootstrap, Namespace())
    spool = "spool_mib = 1\n" if name == "tight" else ""
    (folder / "agent.toml").write_text(CONFIG.replace('host = "gpu-17"', f'host = "{name}"\n{spool}'))
    host.sees(*readings(name, owner_units=0.0))
    with host.agent() as process:
        yield host, process


def metric(host: Host, name: str) -> float:
    found = re.search(r"health=http://127\.0\.0\.1:(\d+)", host.log.read_text())
    assert found is not None
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
    connection.request("GET", "/metrics")
    body = connection.getresponse().read().decode()
    return sum(float(line.rpartition(" ")[2]) for line in body.splitlines() if line.startswith(name))


def is_drained(host: Host) -> bool:
    """By the agent's own figures: they are all of one moment, and behind what is on disk."""
    return metric(host, "intertidal_spool_bytes") < 100_000


def resident_bytes(process: "Popen[bytes]") -> int:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def busy_s(process: "Popen[bytes]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def in_order(events: list[CapacityEvent]) -> list[int]:
    """Numbers of one agent's events as the topic has them, each once: what is sent again comes right behind."""
    assert len({event.epoch_ms for event in events}) == 1
    seqs: list[int] = []
    for event in events:
        if event.seq not in seqs[-512:]:
            seqs.append(event.seq)
    return seqs


@pytest.mark.timeout(AWAY_S + 300.0)
@pytest.mark.parametrize("seed", [FIRST_SEED])
def test_a_broker_that_is_away_for_long_costs_heartbeats_alone_and_those_only_beyond_the_spool(
    seed: int, java_and_jars: None, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    with LocalBroker(tmp_path / "broker", port=free_port()) as broker, ExitStack() as agents:
        TopicAdmin({"bootstrap.servers": broker.bootstrap}).create(Namespace())
        hosts = {name: agents.enter_context(running(tmp_path / name, name, broker.bootstrap)) for name in NUM_DEVICES}
        for name in hosts:
            until(partial(told, broker.bootstrap, Namespace(), name))
        assert broker.stop()
        began_s, spent_s = time.monotonic(), {name: busy_s(process) for name, (_, process) in hosts.items()}
        largest = dict.fromkeys(hosts, 0)
        num_turns = 0
        while time.monotonic() < began_s + AWAY_S:
            num_turns += 1
            for name, (host, process) in hosts.items():
                host.sees(*readings(name, owner_units=float(num_turns % 2)))
                largest[name] = max(largest[name], resident_bytes(process))
            time.sleep(rng.uniform(1.0, max(3.0, AWAY_S / 10.0)))
        away_s = time.monotonic() - began_s
        share = {name: (busy_s(process) - spent_s[name]) / away_s for name, (_, process) in hosts.items()}
        broker.start()
        events, num_dropped = {}, {}
        for name, (host, process) in hosts.items():
            until(partial(is_drained, host), timeout_s=120.0)
            num_dropped[name] = metric(host, "intertidal_spool_dropped_total")
            assert metric(host, 'intertidal_spool_dropped_total{log="reclaims"}') == 0.0
            process.terminate()
            assert process.wait(60) == 0
            events[name] = told(broker.bootstrap, Namespace(), name)
    for name in hosts:
        print(
            f"{name}: away {away_s:.0f} s, {len(events[name])} events, {num_dropped[name]:.0f} dropped, at most"
            f" {largest[name] / 2**20:.1f} MiB, {share[name]:.2%} of a core"
        )
        assert largest[name] <= MAX_RESIDENT_BYTES
    # Within the spool nothing is lost, and the order is kept.
    roomy = in_order(events["roomy"])
    assert num_dropped["roomy"] == 0.0
    assert roomy == list(range(len(roomy)))
    # Beyond it heartbeats go, the oldest first, each counted; what has changed stays.
    tight = in_order(events["tight"])
    lost = sorted(set(range(tight[-1] + 1)) - set(tight))
    assert tight == sorted(tight)
    assert num_dropped["tight"] == len(lost) > 0
    kept = {event.seq: event for event in events["tight"]}
    kept_beats = [seq for seq, event in kept.items() if event.kind == "heartbeat"]
    # The first heartbeats were acknowledged before the broker went.
    assert not [seq for seq in kept_beats if lost[0] < seq < lost[-1]]
    # One record a device each time that all are taken back, and one where the agent ends while they are offered.
    num_reclaims = sum(event.kind == "reclaim" for event in kept.values())
    assert num_reclaims == NUM_DEVICES["tight"] * -(-num_turns // 2) + (num_turns % 2 == 0)
