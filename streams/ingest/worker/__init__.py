"""The ingest worker: drives the pure processors on Kafka. Run any number; the group shares the partitions out."""

from streams.ingest.worker.loop import run
from streams.ingest.worker.options import IngestOptions

__all__ = ["IngestOptions", "run"]
