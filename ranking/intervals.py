"""What one router or replica measured for one cell in one interval, collected until it is closed. Pure: no clock.

recorder = IntervalRecorder("us-east", source="router-1", part="router", epoch_ms=start_ms)
recorder.count_request()
recorder.route("wide").count_work()
recorder.route("wide").record_answer(latency_ms=12.5)
recorder.close_item("rma", "shed", reason="pressure", units=64, value_micro=910)
interval = recorder.close(now_ms)
"""

from typing import Literal, get_args

from ranking.segment_counts import SegmentCounts
from schemas.histogram import MAX_VALUE, ExponentialHistogram
from schemas.records import Account, HistogramFields, LatencyInterval, RouteInterval, ShedUnits
from schemas.records.fields import Lever, Route

Part = Literal["router", "ranker"]
ItemState = Literal["admitted", "shed", "late", "lost"]

# Callers say what they spent upstream. Nobody waits longer, and the sum of an interval stays within its bounds.
MAX_UPSTREAM_MS = 600_000.0
US_PER_MS = 1_000
# Callers name their bids: no sum of one end exceeds this, so that those of all ends stay within a count.
MAX_VALUE_MICRO = 2**58

_STATES: tuple[str, ...] = get_args(ItemState)


class RouteRecorder:
    """One route in the current interval. A negative time, left by two clocks that disagree, counts as 0."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._latencies_ms: list[float] = []
        self._queue_waits_ms: list[float] = []
        self._num_work = 0
        self._num_answered = 0
        self._num_late = 0
        self._num_lost = 0
        self._num_retried = 0
        self._busy_us = 0
        self._units_done = 0
        self._pressure = 0.0
        self._model_version = ""

    def count_work(self, num: int = 1) -> None:
        """Note work sent (router) or taken in (replica)."""
        self._num_work += num

    def count_retry(self, num: int = 1) -> None:
        """Note work sent once more elsewhere."""
        self._num_retried += num

    def record_answer(self, latency_ms: float, *, is_late: bool = False) -> None:
        """Note an answer and its true time, late or not."""
        self._num_answered += 1
        self._num_late += is_late
        self._latencies_ms.append(_bounded(latency_ms))

    def record_lost(self, limit_ms: float) -> None:
        """Note work that was never answered, at the limit: a dead replica reports nothing."""
        self._num_lost += 1
        self._latencies_ms.append(_bounded(limit_ms))

    def record_queue_wait(self, queue_wait_ms: float) -> None:
        """Note the time from the work's append to the moment a replica took it in."""
        self._queue_waits_ms.append(_bounded(queue_wait_ms))

    def add_busy(self, busy_us: int, units: int) -> None:
        """Add time spent scoring and candidates scored in it."""
        self._busy_us += busy_us
        self._units_done += units

    def record_pressure(self, pressure: float) -> None:
        """Note a pressure in [0, 1]; the interval reports the largest."""
        self._pressure = max(self._pressure, pressure)

    def set_model_version(self, model_version: str) -> None:
        """Name the version that answers now."""
        self._model_version = model_version

    def fields(self) -> RouteInterval:
        """The interval as collected so far."""
        return RouteInterval(
            route=self._route,
            latency=_packed(self._latencies_ms),
            queue_wait=_packed(self._queue_waits_ms),
            num_work=self._num_work,
            num_answered=self._num_answered,
            num_late=self._num_late,
            num_lost=self._num_lost,
            num_retried=self._num_retried,
            busy_us=self._busy_us,
            units_done=self._units_done,
            pressure=self._pressure,
            model_version=self._model_version,
        )


class _AccountSums:
    """Ends of one lever's items: [units, value in micro-units] by state, and by reason for sheds."""

    def __init__(self) -> None:
        self.by_state: dict[ItemState, list[int]] = {"admitted": [0, 0], "late": [0, 0], "lost": [0, 0]}
        self.by_shed_reason: dict[str, list[int]] = {}

    def account(self, lever: Lever) -> Account:
        """The account; what was offered is the sum of the ends, so that it adds up by construction."""
        ends = [*self.by_state.values(), *self.by_shed_reason.values()]
        return Account(
            lever=lever,
            offered=sum(units for units, _ in ends),
            admitted=self.by_state["admitted"][0],
            late=self.by_state["late"][0],
            lost=self.by_state["lost"][0],
            sheds=[
                ShedUnits(reason=reason, units=units, value_micro=value_micro)
                for reason, (units, value_micro) in sorted(self.by_shed_reason.items())
            ],
            offered_value_micro=sum(value_micro for _, value_micro in ends),
            admitted_value_micro=self.by_state["admitted"][1],
            late_value_micro=self.by_state["late"][1],
            lost_value_micro=self.by_state["lost"][1],
        )


class IntervalRecorder:
    """Collects one interval of one cell; `close` returns it and starts the next one.

    Records are numbered from 0 within the epoch. `epoch_ms` is the source's start: the first interval begins there.
    """

    def __init__(self, cell: str, *, source: str, part: Part, epoch_ms: int, provider: str = "") -> None:
        self._cell = cell
        self._source = source
        self._part: Part = part
        self._epoch_ms = epoch_ms
        self._provider = provider
        self._next_seq = 0
        self._start_ms = epoch_ms
        self._begin()

    def _begin(self) -> None:
        self._latencies_ms: list[float] = []
        self._routes: dict[Route, RouteRecorder] = {}
        self._accounts: dict[Lever, _AccountSums] = {}
        self._segments = SegmentCounts()
        self._upstream = ExponentialHistogram()
        self._num_requests = 0
        self._num_results = 0
        self._num_base_late = 0
        self._num_errors = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing was noted since the last `close`."""
        return not (self._routes or self._accounts or self._latencies_ms or self._num_requests or self._num_results)

    def route(self, route: Route) -> RouteRecorder:
        """The recorder of one route; one that is asked for appears in the interval, idle or not."""
        recorder = self._routes.get(route)
        if recorder is None:
            recorder = self._routes[route] = RouteRecorder(route)
        return recorder

    def count_request(self, num: int = 1) -> None:
        """Note requests taken in."""
        self._num_requests += num

    def count_segment(
        self, segment: str, *, is_allowed: bool = False, probability: float = 0.0, is_routed: bool = False
    ) -> None:
        """Note one request's segment and what was assigned to it.

        Raises ValueError where more is assigned than its arm allows, or by no probability.
        """
        self._segments.count(segment, is_allowed=is_allowed, probability=probability, is_routed=is_routed)

    def record_upstream(self, upstream_us: int) -> None:
        """Note what a caller spent on its request before it came; 0 is unknown."""
        if upstream_us > 0:
            self._upstream.record(min(upstream_us / US_PER_MS, MAX_UPSTREAM_MS))

    def count_result(self, *, base_late: bool = False, error: bool = False) -> None:
        """Note a published result, whether its base answer was late, and whether it names a caller's mistake."""
        self._num_results += 1
        self._num_base_late += base_late
        self._num_errors += error

    def record_latency(self, latency_ms: float) -> None:
        """Note one request's time from intake to its last wanted answer; a lost answer counts at the limit."""
        self._latencies_ms.append(_bounded(latency_ms))

    def close_item(self, lever: Lever, state: ItemState, *, reason: str = "", units: int, value_micro: int) -> None:
        """Note how one optional item ended; a shed needs its reason.

        Raises ValueError on an unknown state, a shed without a reason, or a negative figure: they would unbalance the
        account.
        """
        if state not in _STATES:
            raise ValueError(f"state {state!r} is none of {', '.join(_STATES)}")
        if (state == "shed") != bool(reason):
            raise ValueError(f"state {state!r} with reason {reason!r}: sheds, and only sheds, have a reason")
        if units < 0 or value_micro < 0:
            raise ValueError(f"units {units} and value_micro {value_micro} must not be negative")
        sums = self._accounts.setdefault(lever, _AccountSums())
        end = sums.by_shed_reason.setdefault(reason, [0, 0]) if state == "shed" else sums.by_state[state]
        end[0] += units
        end[1] = min(end[1] + value_micro, MAX_VALUE_MICRO)

    def close(self, event_time_ms: int, *, num_waiting: int = 0, cpu_share: float = 0.0) -> LatencyInterval:
        """Return the interval that ends now and start the next one.

        `num_waiting` counts requests or work not yet answered; `cpu_share` is CPU seconds used per second.
        """
        interval = LatencyInterval(
            cell=self._cell,
            source=self._source,
            part=self._part,
            epoch_ms=self._epoch_ms,
            seq=self._next_seq,
            event_time_ms=event_time_ms,
            interval_ms=max(0, event_time_ms - self._start_ms),
            latency=_packed(self._latencies_ms),
            routes=[recorder.fields() for _, recorder in sorted(self._routes.items())],
            accounts=[sums.account(lever) for lever, sums in sorted(self._accounts.items())],
            num_requests=self._num_requests,
            num_results=self._num_results,
            num_base_late=self._num_base_late,
            num_errors=self._num_errors,
            num_waiting=num_waiting,
            cpu_share=cpu_share,
            provider=self._provider,
            upstream=HistogramFields(**self._upstream.to_fields()) if self._upstream.count else None,
            segments=self._segments.traffic(),
        )
        self._next_seq += 1
        self._start_ms = event_time_ms
        self._begin()
        return interval


def _packed(times_ms: list[float]) -> HistogramFields:
    """Histogram of an interval's times: made at its end in one go, for a tenth of what it costs time by time."""
    histogram = ExponentialHistogram()
    histogram.record_many(times_ms)
    return HistogramFields(**histogram.to_fields())


def _bounded(time_ms: float) -> float:
    return min(max(time_ms, 0.0), MAX_VALUE)
