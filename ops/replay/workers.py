"""The partitions of a run over a few processes."""

import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final

from ops.connection import use_schema_registry
from ops.errors import UserError
from ops.parent_death import dies_with_me, obey_supervisor
from ops.replay.pace import Pace
from ops.replay.work import Job, Report
from schemas.kafka.admin import BrokerError
from schemas.kafka.producer import DeliveryError

# Beside a live pipeline a backfill is never in a hurry.
_NICENESS: Final = 10
_TOLD_S: Final = 0.2


class ReplayError(Exception):
    """A worker could not go on; the run can be gone on with. One line for the user."""


def replay(job: Job, partitions: Sequence[int], *, num_workers: int, rate: float, report: Report) -> None:
    """Replay partitions to their end, at most ``rate`` records a second together (0: no limit).

    Raises ReplayError when a worker fails; the others are ended then, as by kill -9, which a run outlives.
    """
    num_workers = max(1, min(num_workers, len(partitions)))
    # Spawned, not forked: a Kafka client does not survive a fork.
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    told: list[Connection] = []
    environ = dies_with_me()
    before = {name: os.environ.get(name) for name in environ}
    os.environ.update(environ)
    try:
        for number in range(num_workers):
            receiver, sender = context.Pipe(duplex=False)
            process: BaseProcess = context.Process(
                target=_work, args=(job, list(partitions[number::num_workers]), rate / num_workers, sender), daemon=True
            )
            process.start()
            sender.close()
            processes.append(process)
            told.append(receiver)
        _listen(told, report)
        for ended in processes:
            ended.join()
        if any(ended.exitcode for ended in processes):
            raise ReplayError("a worker of the replay ended early; the same command goes on")
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
        for ended in processes:
            ended.kill()
            ended.join()


def _listen(told: list[Connection], report: Report) -> None:
    """Pass on what workers tell until all have hung up; raises ReplayError with the reason of one that fails."""
    while told:
        for receiver in wait(told):
            assert isinstance(receiver, Connection)
            try:
                part, number = receiver.recv()
            except EOFError:
                told.remove(receiver)
                continue
            if part is None:
                raise ReplayError(str(number))
            report(part, number)


def _work(job: Job, partitions: Sequence[int], rate: float, sender: Connection) -> None:
    obey_supervisor()
    os.nice(_NICENESS)
    try:
        use_schema_registry(os.environ)
        pace = Pace(rate, clock_s=time.monotonic, sleep=time.sleep)
        teller = _Teller(lambda part, number: sender.send((part, number)))
        for partition in partitions:
            job.replay(partition, pace=pace, report=teller.tell)
            teller.flush()
    except (BrokerError, DeliveryError, UserError, ValueError) as error:
        sender.send((None, str(error)))
    finally:
        sender.close()


class _Teller:
    """Tells of many batches at once."""

    def __init__(self, send: Report) -> None:
        self._send = send
        self._untold: dict[str, int] = {}
        self._told_s = time.monotonic()

    def tell(self, part: str, num_records: int) -> None:
        self._untold[part] = self._untold.get(part, 0) + num_records
        if time.monotonic() - self._told_s >= _TOLD_S:
            self.flush()

    def flush(self) -> None:
        for part, num_records in self._untold.items():
            self._send(part, num_records)
        self._untold.clear()
        self._told_s = time.monotonic()
