"""Minutes of the whole pipeline with faults, replayed at full speed, at three times, and killed ten times."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ops.simulator.scenario import load_scenario
from schemas.kafka.ranges import read_to_end
from schemas.topics import CAPACITY_POOLS, CONTROL_TARGETS, CONTROL_WINDOWS, Namespace, Topic
from tests.chaos.seeds import FIRST_SEED
from tests.faults import Kill, Planned
from tests.kill_run import FaultyRun, KillRun, layout_of

SCENARIO = Path(__file__).parents[1] / "broker" / "kills.toml"
LONGEST_S = 600.0
NUM_KILLS = 6
QUIET_AT_THE_END_S = 8.0
NUM_REPLAY_KILLS = 10
SPEED = 3.0


class Replays:
    """Runs `intertidal replay` against the pipeline that is over."""

    def __init__(self, bootstrap: str, run: KillRun) -> None:
        self._run = run
        self._environ = {
            **os.environ,
            **run.scenario.time.to_env(),
            "KAFKA_BOOTSTRAP": bootstrap,
            "INTERTIDAL_NAMESPACE": run.namespace.prefix,
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ops.cli", "replay", *arguments]
        return subprocess.Popen(command, env=self._environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def say(self, *arguments: str) -> Any:
        process = self.start(*arguments, "--json")
        out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors + out
        return json.loads(out.splitlines()[0]) if "--go" in arguments else json.loads(out)

    def diff(self, name: str) -> dict[str, Any]:
        process = self.start("diff", name, "--json")
        out, errors = process.communicate(timeout=300)
        assert process.returncode in (0, 1), errors
        found: dict[str, Any] = json.loads(out)
        assert found["differs"] is bool(process.returncode)
        return found

    def values(self, topic: Topic, name: str) -> list[bytes]:
        space = Namespace(f"{self._run.namespace.prefix}replay.{name}.")
        return [message.value() or b"" for message in read_to_end(self._run.config, space.topic(topic))]


@pytest.mark.timeout(900)
def test_a_run_with_faults_is_replayed_exactly_at_any_speed_and_killed_at_random(kafka: str, tmp_path: Path) -> None:
    rng = random.Random(FIRST_SEED)
    scenario = load_scenario(str(SCENARIO)).stretched(LONGEST_S)
    run = FaultyRun(
        kafka,
        scenario,
        layout_of(SCENARIO, scenario, tmp_path),
        namespace=Namespace(f"t-chaos-{os.getpid()}-replayed."),
        label=f"CHAOS_SEED={FIRST_SEED}",
    ).run(_plan(rng), quiet_s=QUIET_AT_THE_END_S)
    replays = Replays(kafka, run)

    replays.say("full", "--rate", "0", "--go")
    num_records = replays.say("list")[0]["num_records"]
    lasted_s = (max(seen.append_ms for seen in run.ledger.requests.values()) - run.faults[0].began_ms) / 1e3
    replays.say("thrice", "--rate", f"{SPEED * num_records / lasted_s:.0f}", "--go")
    _killed_ten_times(replays, rng, num_records)
    first = replays.values(CONTROL_WINDOWS, "full")
    assert len(first) == len(set(first)) > 50
    for name in ("thrice", "killed"):
        for topic in (CONTROL_WINDOWS, CONTROL_TARGETS, CAPACITY_POOLS):
            assert sorted(replays.values(topic, name)) == sorted(replays.values(topic, "full")), (name, topic.name)
    _say_what_was_said_live(replays, run)


def _killed_ten_times(replays: Replays, rng: random.Random, num_records: int) -> None:
    rate = f"{max(50, num_records // 30)}"
    for _ in range(NUM_REPLAY_KILLS):
        process = replays.start("killed", "--rate", rate, "--go")
        # While it starts, reads or writes: wherever it is.
        time.sleep(rng.uniform(1.0, 6.0))
        process.kill()
        process.communicate()
    replays.say("killed", "--rate", "0", "--go")


def _say_what_was_said_live(replays: Replays, run: KillRun) -> None:
    """Windows are the live ones; a target differs only where its manifest does, or a window that it was made from."""
    found = replays.diff("full")
    families = {each["family"]: each for each in found["families"]}
    assert families["windows"]["num_different"] == families["windows"]["num_only_live"] == 0, found
    assert families["targets"]["num_equal"] > 20
    assert all(each["windows"] for each in found["differences"] if each["family"] == "targets"), found

    replays.say("control", "--part", "control", "--rate", "0", "--go")
    exact = replays.diff("control")
    assert not exact["differs"], exact
    middle_ms = run.faults[len(run.faults) // 2].began_ms
    since = f"-{time.time() - middle_ms / 1e3:.3f}s"
    replays.say("middle", "--part", "control", "--from-snapshot", "--since", since, "--rate", "0", "--go")
    exact = replays.diff("middle")
    assert not exact["differs"], exact
    assert 0 < exact["families"][0]["num_equal"] < families["targets"]["num_equal"]


def _plan(rng: random.Random) -> list[Planned]:
    victims = ["ingest-1", "control-1", "wide-1"] * (NUM_KILLS // 3)
    rng.shuffle(victims)
    return [Planned(rng.uniform(4.0, 9.0), Kill((name,)), needs=(name,)) for name in victims]
