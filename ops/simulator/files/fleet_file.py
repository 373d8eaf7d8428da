"""Reader of a serving fleet's instances: a table as the Alibaba trace of disaggregated recommendation models has it."""

from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.simulator.files.dirt import Dirt
from ops.simulator.files.table import TableReader
from ops.simulator.files.times import is_missing, parse_number, parse_time

MAX_INSTANCES: Final = 4_000_000
# Of one instance, so that one wrong row is not the whole fleet.
_MAX_REQUEST: Final = 1_000_000.0
# What lies below counts from the trace's start, what lies above is a date.
_TEN_YEARS_S: Final = 10 * 365.25 * 86_400.0
_MAX_ROLES: Final = 16
_OTHER_ROLES: Final = "(other)"
_CREATED, _SCHEDULED, _DELETED = "creation_time", "scheduled_time", "deletion_time"
_GPU, _CPU = "gpu_request", "cpu_request"
_COLUMNS: Final = ("role", _GPU, _CPU, _CREATED, _SCHEDULED, _DELETED)


@dataclass(frozen=True)
class FleetTrace:
    """Instances of a fleet and what each takes while it is there.

    Shapes: I instances. Times are seconds from the trace's start, float64; -inf and inf where it was there before, or
    stays until after the end. ``num_by_role`` counts the instances used.
    """

    starts_s_I: NDArray[np.float64]
    ends_s_I: NDArray[np.float64]
    gpus_I: NDArray[np.float64]
    cores_I: NDArray[np.float64]
    length_s: float
    num_by_role: dict[str, int]
    num_rows: int
    dirt: Dirt

    @property
    def num_used(self) -> int:
        return len(self.starts_s_I)


class _Row:
    """One row being read: fields to numbers, and what is odd about them to the dirt."""

    def __init__(self, line: int, dirt: Dirt) -> None:
        self._line = line
        self._dirt = dirt

    def note(self, kind: str) -> None:
        self._dirt.note(kind, self._line)

    def time(self, text: str | None) -> float | None:
        """Seconds, None where missing. Raises _LeftOut."""
        if text is None or is_missing(text):
            return None
        parsed = parse_time(text)
        if parsed is None:
            raise _LeftOut("bad_time")
        for kind in parsed.dirt:
            # Seconds are what this format is made of.
            if kind != "plain_seconds":
                self.note(kind)
        if parsed.seconds < 0.0:
            raise _LeftOut("negative_time")
        return parsed.seconds

    def amount(self, text: str | None) -> float:
        """A request for CPU or GPU, 0 where missing. Raises _LeftOut."""
        if text is None:
            return 0.0
        if is_missing(text):
            self.note("missing_request")
            return 0.0
        number = parse_number(text)
        if number is None:
            raise _LeftOut("not_a_number")
        if number < 0.0:
            raise _LeftOut("negative_request")
        if number > _MAX_REQUEST:
            raise _LeftOut("absurd_request")
        return number

    def life(self, created_s: float | None, scheduled_s: float | None, deleted_s: float | None) -> tuple[float, float]:
        """From when to when the instance holds its resources. Raises _LeftOut."""
        start_s = scheduled_s if scheduled_s is not None else created_s
        if created_s is not None and scheduled_s is not None and scheduled_s < created_s:
            self.note("scheduled_before_created")
        if start_s is not None and deleted_s is not None:
            if deleted_s < start_s or (created_s is not None and deleted_s < created_s):
                raise _LeftOut("ends_before_start")
            if deleted_s == start_s:
                raise _LeftOut("zero_length")
        if start_s is None:
            self.note("missing_start")
        if deleted_s is None:
            self.note("missing_end")
        return (-np.inf if start_s is None else start_s), (np.inf if deleted_s is None else deleted_s)


class _LeftOut(Exception):
    """A row that cannot be used; the argument is the kind of dirt."""


def read_fleet(path: Path, *, max_rows: int = MAX_INSTANCES) -> FleetTrace:
    """Read a fleet's instances; something changes within the trace. Raises TrafficFileError where it cannot be used."""
    dirt = Dirt()
    table = TableReader(path, _COLUMNS, required=(_DELETED,), dirt=dirt, max_rows=max_rows)
    columns = [array("d") for _ in range(4)]
    roles: Counter[str] = Counter()
    last_s = -np.inf
    for line, (role, gpu, cpu, created, scheduled, deleted) in table.rows():
        if gpu is None and cpu is None:
            raise table.unusable(f"{_GPU} or {_CPU}", "no such column; one of them is wanted")
        if created is None and scheduled is None:
            raise table.unusable(f"{_SCHEDULED} or {_CREATED}", "no such column; one of them is wanted")
        row = _Row(line, dirt)
        try:
            times = row.time(created), row.time(scheduled), row.time(deleted)
            if times[0] is not None and times[1] is None and scheduled is not None:
                raise _LeftOut("never_scheduled")
            amounts = row.amount(gpu), row.amount(cpu)
            if amounts == (0.0, 0.0):
                raise _LeftOut("no_request")
            start_s, end_s = row.life(*times)
        except _LeftOut as left_out:
            row.note(str(left_out))
            continue
        if np.isfinite(start_s):
            if start_s < last_s:
                row.note("unordered")
            last_s = start_s
        for column, value in zip(columns, (start_s, end_s, *amounts), strict=True):
            column.append(value)
        name = (role or "(none)")[:64]
        roles[name if name in roles or len(roles) < _MAX_ROLES else _OTHER_ROLES] += 1
    starts_s, ends_s, gpus, cores = (np.frombuffer(column, np.float64).copy() for column in columns)
    first_s, last_s = _bounds(starts_s, ends_s)
    if not first_s < last_s:
        raise table.unusable(
            _DELETED,
            f"nothing changes: {len(starts_s)} usable instances in {table.num_rows} rows, with one time or none",
        )
    return FleetTrace(
        starts_s - first_s, ends_s - first_s, gpus, cores, last_s - first_s, dict(roles), table.num_rows, dirt
    )


def _bounds(starts_s: NDArray[np.float64], ends_s: NDArray[np.float64]) -> tuple[float, float]:
    """Where the trace begins and ends: seconds count from its start, as the format says, dates from the first one."""
    known_s = np.concatenate((starts_s[np.isfinite(starts_s)], ends_s[np.isfinite(ends_s)]))
    if len(known_s) == 0:
        return 0.0, 0.0
    first_s = float(known_s.min())
    return (0.0 if first_s < _TEN_YEARS_S else first_s), float(known_s.max())
