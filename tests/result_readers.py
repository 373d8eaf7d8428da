"""A log of results that goes on growing, with duplicates and poison in it, and readers of it that are killed."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from msgspec.structs import replace

from schemas.framing import encode
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import read_to_end, watermarks
from schemas.records import RankingResult
from schemas.topics import RANKING_RESULTS, Namespace

ROOT = Path(__file__).parents[1]
NUM_PARTITIONS = 4
# A duplicate comes at most so many results of its partition later: well within the horizon.
LONGEST_GAP = 200
POISON = b"no result of ours"
TIMEOUT_S = 120.0


def a_result() -> RankingResult:
    golden = json.loads((ROOT / "tests/contract/golden_records.json").read_text(encoding="utf-8"))
    return msgspec.json.decode(json.dumps(golden["RankingResult"]["record"]), type=RankingResult)


class ResultsLog:
    """``ranking.results`` of a namespace of its own, and what has been written into it."""

    def __init__(self, bootstrap: str, prefix: str, rng: random.Random) -> None:
        self.space = Namespace(prefix)
        self.topic = self.space.topic(RANKING_RESULTS)
        self.config: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
        self.environ = {
            **os.environ,
            BOOTSTRAP_ENV: bootstrap,
            NAMESPACE_ENV: prefix,
            "PYTHONPATH": str(ROOT),
        }
        self._rng = rng
        self._result = a_result()
        self._ids: list[list[str]] = [[] for _ in range(NUM_PARTITIONS)]
        self._producer = DurableProducer(producer_config(self.config))
        topic = NewTopic(self.topic, NUM_PARTITIONS, 1, config=RANKING_RESULTS.config())
        admin = AdminClient(self.config)
        for future in admin.create_topics([topic]).values():
            future.result(30)
        TopicAdmin(self.config).wait_until_served({self.topic: NUM_PARTITIONS})

    @property
    def request_ids(self) -> set[str]:
        """Every request that has a result."""
        return {request_id for of_partition in self._ids for request_id in of_partition}

    def write(self, count: int) -> None:
        """Write so many records: new results, now and then one that is there already, or what is none."""
        for _ in range(count):
            number = self._rng.randrange(NUM_PARTITIONS)
            ids, chance = self._ids[number], self._rng.random()
            if chance < 0.02:
                self._send(number, POISON)
                continue
            if chance < 0.25 and ids:
                request_id = self._rng.choice(ids[-LONGEST_GAP // 2 :])
            else:
                request_id = f"r-{number}-{len(ids)}"
                ids.append(request_id)
            self._send(number, encode(replace(self._result, request_id=request_id)))
        self._producer.drain()

    def _send(self, number: int, value: bytes) -> None:
        self._producer.send(self.topic, value, key=b"u-1", partition=number)

    @contextmanager
    def growing(self, every_s: float = 0.05) -> Iterator[None]:
        """Let it grow by a few records every so often while the block runs."""
        stopping = threading.Event()

        def grow() -> None:
            while not stopping.wait(every_s):
                self.write(10)

        thread = threading.Thread(target=grow)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    def ends(self) -> dict[int, int]:
        consumer = Consumer({**self.config, "group.id": "ends"})
        try:
            return {number: end for number, (_, end) in watermarks(consumer, self.topic, range(NUM_PARTITIONS)).items()}
        finally:
            consumer.close()

    def readable(self) -> set[tuple[int, int]]:
        """Partition and offset of every record that is a result, duplicates among them."""
        return {
            (message.partition() or 0, message.offset() or 0)
            for message in read_to_end(self.config, self.topic)
            if message.value() != POISON
        }


@contextmanager
def running(log: ResultsLog, command: Sequence[str | Path]) -> Iterator["subprocess.Popen[bytes]"]:
    """A reader as a process of its own, gone when the block ends."""
    process = subprocess.Popen(command, env=log.environ, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def kill_in_the_middle(
    log: ResultsLog,
    command: Sequence[str | Path],
    *,
    seen: Callable[[], object],
    look: Callable[[], object],
    delay_s: float,
) -> None:
    """Start a reader, and kill it a moment after what it writes has changed; ``look`` is called all the time."""
    with running(log, command) as process:
        before, deadline_s = seen(), time.monotonic() + TIMEOUT_S
        while seen() == before:
            assert process.poll() is None, f"the reader ended by itself with {process.returncode}"
            assert time.monotonic() < deadline_s, "the reader stores nothing"
            look()
            time.sleep(0.01)
        kill_s = time.monotonic() + delay_s
        while time.monotonic() < kill_s:
            look()
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    look()
