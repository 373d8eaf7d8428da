"""Results and outcomes through the ingest worker on a real broker: killed, with changing keys and forged tokens."""

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.attribution_keys import KEYS_ENV, AttributionKeys, load_keys, write_keys
from schemas.framing import decode_as, encode
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import read_to_end
from schemas.partition import partition_for
from schemas.records import CellDeclaration, CellRevision, ControlWindow, DeadLetter
from schemas.settings import MeasurementSettings, TimeSettings
from schemas.topics import CONTROL_CELLS, CONTROL_WINDOWS, REQUEST_PARTITIONS, Namespace
from streams.ingest.aggregate import Kind
from streams.ingest.cells import Cells
from streams.ingest.outcomes import OutcomesKind
from streams.ingest.partition import RawRecord, recompute
from streams.ingest.results import ResultsKind
from tests.unit.streams.ingest_makers import LIMITS
from tests.unit.streams.measured_makers import CELLS, outcome, result

TIME = TimeSettings(
    window_ms=1_000, lateness_ms=300, heartbeat_ms=500, host_ttl_ms=2_000, skew_ms=3_000, clock_silence_ms=300
)
MEASUREMENT = MeasurementSettings(attribution_ms=2_000, cohort_ms=500, repeat_ms=1_500)
OLD, NEW = (1, b"old key, of 32 bytes as it should"), (2, b"new key, of 32 bytes as it should")
# One whose key leads to each partition.
USERS = {partition_for(f"u-{number}".encode(), REQUEST_PARTITIONS): f"u-{number}" for number in range(200)}
PRODUCE_S = 8.0
NUM_KILLS = 2
SEED = 20_261_201

Windows = dict[tuple[str, str, int, int], set[bytes]]


class Measured:
    """A pipeline's topics, a worker on them, and traffic that is partly forged, repeated, or late."""

    def __init__(self, kafka: str, prefix: str, folder: Path) -> None:
        self.config: dict[str, Any] = {"bootstrap.servers": kafka, "client.id": "test"}
        self.namespace = Namespace(prefix)
        self.keys_path = folder / "keys"
        write_keys(self.keys_path, [OLD, NEW])
        self.keys = load_keys(self.keys_path)
        self.kinds: tuple[Kind, ...] = (ResultsKind(MEASUREMENT), OutcomesKind(MEASUREMENT, self.keys))
        TopicAdmin(self.config).create(self.namespace, replication_factor=1)
        self._producer = DurableProducer(producer_config(self.config))
        self._num_sent = 0
        for cell in CELLS:
            revision = CellRevision(from_window=0, limits=LIMITS)
            declared = CellDeclaration(cell=cell, window_ms=TIME.window_ms, revisions=[revision])
            self._producer.send(self.namespace.topic(CONTROL_CELLS), declared, key=cell.encode())
        self._producer.drain()

    def start_worker(self, **environ: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "ops.cli", "run", "ingest", "--id", "i-0"],
            env={
                **os.environ,
                **TIME.to_env(),
                **MEASUREMENT.to_env(),
                KEYS_ENV: str(self.keys_path),
                BOOTSTRAP_ENV: self.config["bootstrap.servers"],
                NAMESPACE_ENV: self.namespace.prefix,
                **environ,
            },
            stderr=subprocess.PIPE if environ else None,
        )

    def send_some(self, rng: random.Random, *, keys: AttributionKeys) -> None:
        """A result and what came of it, or one of the things that go wrong."""
        self._num_sent += 1
        number, user, cell = self._num_sent, rng.choice([*USERS.values()]), rng.choice(CELLS)
        now_ms = time.time_ns() // 1_000_000
        at_ms = now_ms - rng.choice([0, 20, 90, 1_700])
        drawn = {"arm": rng.choice(["both", "rma", "holdout"]), "segment": rng.choice(["games", "travel"])}
        made = result(number, at_ms=at_ms, user=user, cell=cell, is_aa=rng.random() < 0.1, **drawn)
        click = outcome(
            number,
            at_ms=now_ms,
            user=user,
            keys=AttributionKeys() if rng.random() < 0.05 else keys,
            kind=rng.choice(["view", "click", "conversion"]),
            value=rng.choice([0.0, 0.25, 12.5]),
            said={**drawn, "cell": cell, "intake_ms": now_ms - rng.choice([60, 900, 2_500])},
            user_id=user if rng.random() < 0.95 else rng.choice([*USERS.values()]),
        )
        for _ in range(2 if rng.random() < 0.1 else 1):
            self._send(self.kinds[0], encode(made), user)
        for _ in range(2 if rng.random() < 0.1 else 1):
            self._send(self.kinds[1], encode(click), click.user_id)
        if rng.random() < 0.02:
            self._send(rng.choice(self.kinds), rng.randbytes(20), user)

    def move_on(self) -> None:
        """One of each in every partition: time passes in these topics by traffic alone."""
        for user in USERS.values():
            self._num_sent += 1
            now_ms = time.time_ns() // 1_000_000
            self._send(self.kinds[0], encode(result(self._num_sent, at_ms=now_ms, user=user)), user)
            ending = outcome(self._num_sent, at_ms=now_ms, user=user, keys=self.keys)
            self._send(self.kinds[1], encode(ending), user)
        self._producer.drain()

    def sent(self) -> Windows:
        """Measurement windows in the log, each with all that was said of it."""
        found: defaultdict[tuple[str, str, int, int], set[bytes]] = defaultdict(set)
        for message in read_to_end(self.config, self.namespace.topic(CONTROL_WINDOWS)):
            value = message.value() or b""
            window = decode_as(value, ControlWindow)
            assert message.key() == window.cell.encode()
            if window.kind in ("results", "outcomes"):
                found[_about(window)].add(value)
        return dict(found)

    def afresh(self) -> tuple[Windows, dict[bytes, tuple[str, str]]]:
        """What the raw topics give, read from their beginning: windows, and why which records are refused."""
        cells = Cells(window_ms=TIME.window_ms)
        for message in read_to_end(self.config, self.namespace.topic(CONTROL_CELLS)):
            cells.read(message.key(), message.value())
        windows: Windows = {}
        refused: dict[bytes, tuple[str, str]] = {}
        for kind in self.kinds:
            topic = self.namespace.topic(kind.topic)
            raw: defaultdict[int, list[RawRecord]] = defaultdict(list)
            for message in read_to_end(self.config, topic):
                place = (message.offset() or 0, message.timestamp()[1], message.key(), message.value())
                raw[message.partition() or 0].append(RawRecord(*place))
            for partition, records in raw.items():
                out = recompute(records, kind, partition, num_partitions=REQUEST_PARTITIONS, time=TIME, cells=cells)
                windows |= {_about(window): {encode(window)} for window in out.windows}
                for refusal in out.refusals:
                    error = refusal.error
                    refused[f"{topic}/{partition}/{refusal.offset}".encode()] = (error.reason, error.field)
        return windows, refused

    def letters(self) -> dict[bytes, tuple[str, str]]:
        """Why records were refused, by the key of their dead letter."""
        found: dict[bytes, tuple[str, str]] = {}
        for kind in self.kinds:
            for message in read_to_end(self.config, self.namespace.dead_letters(kind.topic)):
                letter = decode_as(message.value(), DeadLetter)
                found[message.key() or b""] = (letter.reason, letter.field)
        return found

    def pause(self) -> None:
        self._producer.poll()
        time.sleep(0.01)

    def _send(self, kind: Kind, value: bytes, user: str) -> None:
        self._producer.send(self.namespace.topic(kind.topic), value, key=user.encode())


def _about(window: ControlWindow) -> tuple[str, str, int, int]:
    return window.kind, window.cell, window.source_partition, window.window_index


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 40.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "not within the time limit"
        time.sleep(0.2)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.mark.timeout(120)
def test_killed_twice_it_sends_the_windows_that_results_and_outcomes_give_and_no_others(
    kafka: str, topic_prefix: str, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    measured = Measured(kafka, topic_prefix, tmp_path)
    rng = random.Random(SEED)
    processes.append(measured.start_worker())
    kills_s = sorted(rng.uniform(3.0, PRODUCE_S - 1.0) for _ in range(NUM_KILLS))
    begun_s = time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < PRODUCE_S:
        if kills_s and passed_s >= kills_s[0]:
            kills_s.pop(0)
            processes[-1].kill()
            processes[-1].wait()
            processes.append(measured.start_worker())
        for _ in range(6):
            # Halfway through, the routers sign with the next key.
            measured.send_some(rng, keys=AttributionKeys([OLD]) if passed_s < PRODUCE_S / 2 else measured.keys)
        measured.pause()
    measured.move_on()
    time.sleep((TIME.window_ms + TIME.lateness_ms) / 1_000)
    measured.move_on()

    windows, refused = measured.afresh()
    wait_until(lambda: measured.sent().keys() >= windows.keys() and measured.letters().keys() >= refused.keys())
    processes[-1].terminate()
    assert processes[-1].wait(timeout=30) == 0
    assert measured.sent() == windows
    assert measured.letters() == refused
    assert {("invalid_field", "attribution_token"), ("bad_framing", "")} <= set(refused.values())
    found = [decode_as(value, ControlWindow) for values in windows.values() for value in values]
    assert {(window.cell, window.source_partition) for window in found} == {
        (cell, partition) for cell in CELLS for partition in USERS
    }
    results = [window.results for window in found if window.results is not None]
    outcomes = [window.outcomes for window in found if window.outcomes is not None]
    assert min(sum(each.num_results for each in results), sum(each.num_outcomes for each in outcomes)) > 500
    assert sum(each.num_duplicates for each in results) > 0
    assert sum(each.num_duplicates for each in outcomes) > 0
    assert sum(each.num_late for each in results) > 0
    assert sum(each.num_expired for each in outcomes) > 0
    assert {sums.is_aa for each in results for sums in each.strata} == {False, True}

    # With other settings the same windows would be of other bytes.
    processes.append(measured.start_worker(INTERTIDAL_COHORT_MS="700"))
    _, errors = processes[-1].communicate(timeout=40)
    assert processes[-1].returncode == 1
    (line,) = [line for line in errors.decode().splitlines() if "the settings" in line]
    assert "the commit's windows are of the settings 2000.500.10000000.1500, not 2000.700.10000000.1500" in line
