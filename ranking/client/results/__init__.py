"""Ranked results for those who use them: typed, each request once, with a position that the caller controls."""

from ranking.client.results.consumer import ResultsConsumer
from ranking.client.results.options import ResultsOptions
from ranking.client.results.partition import PositionError
from ranking.client.results.places import Sink
from ranking.client.results.view import Result, ResultsBatch, Standing, UnreadableResult

__all__ = [
    "PositionError",
    "Result",
    "ResultsBatch",
    "ResultsConsumer",
    "ResultsOptions",
    "Sink",
    "Standing",
    "UnreadableResult",
]
