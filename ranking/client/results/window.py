"""Request ids that stand shortly before a place in a partition: a second result of a request is known by them. Pure."""

from collections import OrderedDict


class IdWindow:
    """Ids of the last ``horizon_records`` offsets of one partition.

    A record is a duplicate when a record of the same id stands within the horizon before it. Offsets alone decide, no
    clock and no restart: whoever has noted the records of one horizon before a place judges all behind it alike. At
    most one id is kept per offset of the horizon.
    """

    def __init__(self, horizon_records: int) -> None:
        self._horizon_records = horizon_records
        self._last_offsets: OrderedDict[str, int] = OrderedDict()

    def note(self, request_id: str, offset: int) -> bool:
        """Whether no record of the id stands within the horizon before ``offset``. Offsets must rise."""
        first_kept = offset - self._horizon_records
        while self._last_offsets and next(iter(self._last_offsets.values())) < first_kept:
            self._last_offsets.popitem(last=False)
        is_new = request_id not in self._last_offsets
        self._last_offsets[request_id] = offset
        # Those that were noted first leave first.
        self._last_offsets.move_to_end(request_id)
        return is_new

    def __len__(self) -> int:
        return len(self._last_offsets)
