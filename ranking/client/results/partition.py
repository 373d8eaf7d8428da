"""One partition of results: from records to batches, and how far the caller has come. Pure."""

from collections.abc import Iterable, Sequence

from ranking.client.results.view import Result, ResultsBatch, UnreadableResult
from ranking.client.results.window import IdWindow
from schemas.dead_letters import RawRecord
from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import Decoder
from schemas.records import RankingResult
from schemas.topics import RANKING_RESULTS

# A place before every offset.
UNTOLD = -1

_decode = Decoder(RANKING_RESULTS.record_types).decode


class PositionError(Exception):
    """A place where the log has never been, or has been already: it is of another topic, or the topic was made anew."""


class ResultsPartition:
    """Reads one partition for as long as it is owned.

    ``next_offset`` is read next; up to ``handed_offset`` the caller has been given everything, up to
    ``acknowledged_offset`` it has said that it is done. ``committed_offset`` is what the broker knows of that.
    """

    def __init__(
        self, number: int, next_offset: int, *, horizon_records: int, owned_since: int = 0, is_told: bool = True
    ) -> None:
        """``is_told``: the group knows the place at which reading begins."""
        self.number = number
        self.next_offset = next_offset
        self.handed_offset = next_offset
        self.acknowledged_offset = next_offset
        self.committed_offset = next_offset if is_told else UNTOLD
        self._owned_since = owned_since
        self._window = IdWindow(horizon_records)

    def remember(self, records: Iterable[RawRecord]) -> None:
        """Note the results that stand before the place where reading begins, in the order of the log."""
        for raw in records:
            # Whole: an id taken from a record that cannot be read would hide the next one.
            result = _read(raw)
            if isinstance(result, RankingResult):
                self._window.note(result.request_id, raw.offset)

    def read(self, records: Sequence[RawRecord]) -> ResultsBatch:
        """What the next records, at least one, come to; raises PositionError for one of before the place."""
        first_offset = self.next_offset
        results: list[Result] = []
        unreadable: list[UnreadableResult] = []
        num_duplicates = num_deleted = 0
        for raw in records:
            # The topic is neither compacted nor written in transactions: an offset that is missing was deleted.
            if raw.offset < self.next_offset:
                raise PositionError(
                    f"{raw.topic}/{self.number}: offset {raw.offset} comes after {self.next_offset - 1}: the topic was"
                    " made anew, or has lost its end; start with a group or a sink of its own"
                )
            num_deleted += raw.offset - self.next_offset
            self.next_offset = raw.offset + 1
            record = _read(raw)
            if isinstance(record, RecordError):
                unreadable.append(UnreadableResult(raw=raw, error=record))
            elif self._window.note(record.request_id, raw.offset):
                results.append(
                    Result(record=record, partition=self.number, offset=raw.offset, append_ms=raw.timestamp_ms)
                )
            else:
                num_duplicates += 1
        return ResultsBatch(
            partition=self.number,
            first_offset=first_offset,
            next_offset=self.next_offset,
            results=tuple(results),
            unreadable=tuple(unreadable),
            num_duplicates=num_duplicates,
            num_deleted=num_deleted,
            owned_since=self._owned_since,
        )

    def hand_out(self, batch: ResultsBatch) -> None:
        """The caller gets this batch now."""
        self.handed_offset = batch.next_offset

    def acknowledge(self, batch: ResultsBatch | None = None) -> bool:
        """The caller is done with a batch and all before it, by default with all that it was given.

        Returns False for a batch of an earlier time of owning the partition: its records are given out again.
        """
        if batch is None:
            self.acknowledged_offset = self.handed_offset
            return True
        if batch.owned_since != self._owned_since:
            return False
        self.acknowledged_offset = max(self.acknowledged_offset, batch.next_offset)
        return True


def _read(raw: RawRecord) -> RankingResult | RecordError:
    try:
        record = _decode(raw.value)
    except RecordError as error:
        return error
    except SchemaPendingError as error:
        # The registry had refused the id when the batch was let through; that it is asked again by now changes nothing.
        return RecordError("unknown_schema", str(error))
    assert isinstance(record, RankingResult)
    return record
