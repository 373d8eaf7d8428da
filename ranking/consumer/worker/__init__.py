"""The ranking worker: drives a replica on Kafka. Run any number; the group of each route shares the partitions out."""

from ranking.consumer.options import RankerOptions
from ranking.consumer.worker.loop import run

__all__ = ["RankerOptions", "run"]
