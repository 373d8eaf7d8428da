"""Fills a DuckDB table with ranked results, each request once, whenever and however often it is killed.

    KAFKA_BOOTSTRAP=127.0.0.1:9092 python results_to_duckdb.py results.duckdb

The place in the log is stored in the transaction that stores the results, so both are there or neither is.
"""

import os
import signal
import sys
from pathlib import Path

import duckdb

from ranking.client.results import ResultsBatch, ResultsConsumer, ResultsOptions
from schemas.kafka.config import NAMESPACE_ENV
from schemas.topics import Namespace

TABLES = """
CREATE TABLE IF NOT EXISTS results (
    request_id VARCHAR, user_id VARCHAR, cell VARCHAR, standing VARCHAR, routes VARCHAR[],
    ad_ids BIGINT[], scores FLOAT[], latency_us BIGINT, intake_ms BIGINT
);
CREATE TABLE IF NOT EXISTS unreadable (log_partition INTEGER, log_offset BIGINT, reason VARCHAR);
CREATE TABLE IF NOT EXISTS places (log_partition INTEGER PRIMARY KEY, next_offset BIGINT);
"""
COLUMNS = 9


class DuckDbSink:
    """The tables of one file. DuckDB lets one process at a time write it."""

    def __init__(self, path: Path) -> None:
        self._db = duckdb.connect(str(path))
        self._db.execute(TABLES)

    def next_offset(self, partition: int) -> int | None:
        """Where the table stands in a partition: the consumer asks whenever it gets one."""
        found = self._db.execute("SELECT next_offset FROM places WHERE log_partition = ?", [partition]).fetchone()
        return None if found is None else int(found[0])

    def store(self, batch: ResultsBatch) -> None:
        """Store a batch and the place behind it, or nothing."""
        rows = [
            (
                result.request_id,
                result.record.user_id,
                result.record.cell,
                result.standing,
                list(result.routes),
                result.ad_ids_K.tolist(),
                result.scores_K.tolist(),
                result.record.latency_us,
                result.record.intake_ms,
            )
            for result in batch
        ]
        self._db.begin()
        try:
            # A batch that does not follow comes from a time before another process had the partition.
            if self.next_offset(batch.partition) not in (None, batch.first_offset):
                raise RuntimeError(
                    f"partition {batch.partition}: another process has stored offset {batch.first_offset}"
                )
            if rows:
                # Column by column: many times as fast as row by row.
                columns = [list(column) for column in zip(*rows, strict=True)]
                self._db.execute(f"INSERT INTO results SELECT {', '.join(['unnest(?)'] * COLUMNS)}", columns)
            for bad in batch.unreadable:
                place = [batch.partition, bad.raw.offset, bad.error.reason]
                self._db.execute("INSERT INTO unreadable VALUES (?, ?, ?)", place)
            self._db.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", [batch.partition, batch.next_offset])
            self._db.commit()
        except BaseException:
            self._db.rollback()
            raise

    def close(self) -> None:
        self._db.close()


def main(path: Path, namespace: Namespace) -> None:
    """Follow the results until SIGTERM or SIGINT."""
    sink = DuckDbSink(path)
    # The name lets a process that is started again have its partitions back at once.
    options = ResultsOptions(member=f"duckdb-{path.stem}")
    with ResultsConsumer(namespace, group=f"duckdb-{path.stem}", sink=sink, options=options) as results:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: results.stop())
        for batch in results.batches():
            sink.store(batch)
    sink.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Namespace(os.environ.get(NAMESPACE_ENV, "")))
