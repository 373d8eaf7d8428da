"""The runs of a pipeline on its broker: begin one, find it again, list them, delete one."""

import msgspec
from msgspec import Struct

from ops.replay.names import run_log, run_namespace, run_of, shadow_topics
from ops.replay.planning import Planned
from ops.replay.run_log import MANIFEST_KEY, Manifest, RunLog, RunLogError, read_run_log, start_records
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import Config, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import latest_by_key, read_to_end
from schemas.partition import partition_for
from schemas.topics import CONTROL_CELLS, Namespace


class RunStatus(Struct, frozen=True, kw_only=True):
    """A run as `replay list` shows it. ``state`` is ``done``, ``unfinished``, or ``unreadable`` with the reason."""

    run: str
    state: str
    parts: list[str] = []
    created_ms: int | None = None
    num_records: int = 0
    num_read: int = 0
    num_said: int = 0
    num_refused: int = 0
    detail: str = ""


class Runs:
    """The runs of one pipeline. Raises BrokerError, and RunLogError for a log that another release has written."""

    def __init__(self, config: Config, live: Namespace) -> None:
        self._config = config
        self._live = live
        self._admin = TopicAdmin(config)

    def find(self, run: str) -> RunLog | None:
        """The log of a run; None where it never began."""
        topic = run_log(run_namespace(self._live, run))
        if topic not in self._admin.existing():
            return None
        log = read_run_log(latest_by_key(self._config, topic))
        return log if log.manifest is not None else None

    def begin(self, planned: Planned) -> None:
        """Write down a run.

        1. its topics; 2. the declarations of cells as they are now; 3. the states that controllers begin with; 4. the
        manifest. Only with that a run has begun: what an earlier attempt left of 1 to 3 is the same again.
        """
        manifest = planned.manifest
        space = run_namespace(self._live, manifest.run)
        self._admin.create_planned(shadow_topics(space, num_partitions=manifest.num_partitions))  # 1
        with DurableProducer(producer_config(self._config)) as producer:
            for message in read_to_end(self._config, self._live.topic(CONTROL_CELLS)):  # 2
                producer.send(space.topic(CONTROL_CELLS), message.value() or b"", key=message.key())
            for begin in planned.begins.values():  # 3
                partition = partition_for(begin.state.cell.encode(), manifest.num_partitions)
                for key, value in start_records(begin.state).items():
                    producer.send(run_log(space), value, key=key, partition=partition)
            producer.drain()
            self._write(producer, space, manifest)  # 4

    def change(self, manifest: Manifest) -> None:
        """Write a manifest that says with what the run is gone on with."""
        with DurableProducer(producer_config(self._config)) as producer:
            self._write(producer, run_namespace(self._live, manifest.run), manifest)

    def list(self) -> list[RunStatus]:
        """Every run, by name."""
        found = sorted(run for topic in self._admin.existing() if (run := run_of(self._live, topic)) is not None)
        return [self._status(run) for run in found]

    def delete(self, run: str) -> bool:
        """Delete the topics of a run; False where it has none."""
        space = run_namespace(self._live, run)
        if not any(name.startswith(space.prefix) for name in self._admin.existing()):
            return False
        self._admin.delete(space)
        return True

    def _status(self, run: str) -> RunStatus:
        try:
            log = self.find(run)
        except RunLogError as error:
            return RunStatus(run=run, state="unreadable", detail=str(error))
        if log is None or log.manifest is None:
            return RunStatus(run=run, state="unfinished", detail="it has not begun")
        return status_of(log.manifest, log)

    def _write(self, producer: DurableProducer, space: Namespace, manifest: Manifest) -> None:
        producer.send(run_log(space), msgspec.json.encode(manifest), key=MANIFEST_KEY, partition=0)
        producer.drain()


def status_of(manifest: Manifest, log: RunLog) -> RunStatus:
    """Where a run stands."""
    wanted = [(part, partition) for part in manifest.parts for partition in range(manifest.num_partitions)]
    progress = log.progress
    is_done = all(place in progress and progress[place].is_done for place in wanted)

    return RunStatus(
        run=manifest.run,
        state="done" if is_done else "unfinished",
        parts=manifest.parts,
        created_ms=manifest.created_ms,
        num_records=num_source_records(manifest),
        num_read=sum(each.num_read for each in progress.values()),
        num_said=sum(each.num_said for each in progress.values()),
        num_refused=sum(each.num_refused for each in progress.values()),
        detail="; ".join(manifest.changes),
    )


def num_source_records(manifest: Manifest) -> int:
    """Records in the ranges that the first part reads."""
    is_raw = "ingest" in manifest.parts
    return sum(
        span.end - span.start
        for topic, spans in manifest.spans.items()
        if not is_raw or topic != "control.windows"
        for span in spans
    )
