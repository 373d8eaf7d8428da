"""What users do with what they are shown, drawn from the world's truth and due after a delay. Pure."""

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from ops.simulator.requests import user_number
from ops.simulator.world import World
from schemas.kafka.offsets import OffsetTracker
from schemas.records import RankingOutcome, RankingResult

# Results remembered, so that one delivered twice is shown once: at 1,000 requests/s more than a minute.
_NUM_REMEMBERED = 100_000


@dataclass(frozen=True)
class Place:
    """Where a result stands in its log."""

    partition: int
    offset: int


class OutcomeSchedule:
    """Turns results into outcomes and holds each until it is due.

    Draws belong to the request id and the seed, so that a result read again after a restart gives the same outcomes
    under the same ids. Results that came too late, failed or are empty are not shown to anybody: they have none.
    """

    def __init__(self, world: World, *, seed: int, delay_scale: float) -> None:
        self._world = world
        self._seed = seed
        self._delay_scale = delay_scale
        self._waiting: list[tuple[int, str, RankingOutcome, Place]] = []
        self._num_unsent: dict[Place, int] = {}
        self._trackers: dict[int, OffsetTracker] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()

    def take(self, result: RankingResult, place: Place) -> None:
        """Note one result and when its outcomes are due."""
        self.begin(place)
        outcomes = [] if self._is_repeated(result.request_id) else self._outcomes(result)
        for outcome in outcomes:
            heapq.heappush(self._waiting, (outcome.event_time_ms, outcome.outcome_id, outcome, place))
        if outcomes:
            self._num_unsent[place] = len(outcomes)
        else:
            self.finish(place)

    def begin(self, place: Place) -> None:
        """Note a record that is no readable result; ``finish`` is to follow."""
        self._tracker(place.partition).begin(place.offset)

    def finish(self, place: Place) -> None:
        """Note that nothing more is to be done about a record begun earlier."""
        self._trackers[place.partition].finish(place.offset)

    def due(self, now_ms: int) -> list[tuple[RankingOutcome, Place]]:
        """Take the outcomes out that are due by now, in order of time; ``sent`` is to follow for each."""
        taken = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, _, outcome, place = heapq.heappop(self._waiting)
            taken.append((outcome, place))
        return taken

    def sent(self, place: Place) -> None:
        """Note that the broker has acknowledged one outcome of the result at ``place``."""
        left = self._num_unsent.pop(place, 0) - 1
        if left > 0:
            self._num_unsent[place] = left
        elif left == 0:
            self.finish(place)

    def committable(self) -> dict[int, int]:
        """For each partition the offset before which every result's outcomes are with the broker."""
        offsets = {partition: tracker.committable() for partition, tracker in self._trackers.items()}
        return {partition: offset for partition, offset in offsets.items() if offset is not None}

    @property
    def num_waiting(self) -> int:
        """Outcomes not due yet."""
        return len(self._waiting)

    @property
    def next_due_ms(self) -> int | None:
        """When the next outcome is due; None when none waits."""
        return self._waiting[0][0] if self._waiting else None

    def _tracker(self, partition: int) -> OffsetTracker:
        return self._trackers.setdefault(partition, OffsetTracker())

    def _is_repeated(self, request_id: str) -> bool:
        if request_id in self._seen:
            return True
        self._seen[request_id] = None
        if len(self._seen) > _NUM_REMEMBERED:
            self._seen.popitem(last=False)
        return False

    def _outcomes(self, result: RankingResult) -> list[RankingOutcome]:
        user = user_number(result.user_id)
        if result.status != "ok" or result.late or user is None:
            return []
        ad_ids = np.frombuffer(result.ad_ids, dtype="<i8").astype(np.int64)
        # An ad of another world is unknown to this one's users.
        if len(ad_ids) == 0 or not 0 <= int(ad_ids.min()) <= int(ad_ids.max()) < self._world.config.num_ads:
            return []
        rng = np.random.default_rng([self._seed, *_words(result.request_id)])
        return [
            RankingOutcome(
                outcome_id=f"{result.request_id}/{drawn.ad_index}/{drawn.kind}",
                attribution_token=result.attribution_token,
                request_id=result.request_id,
                user_id=result.user_id,
                cell=result.cell,
                ad_id=int(ad_ids[drawn.ad_index]),
                kind=drawn.kind,
                value=drawn.value,
                exposure_time_ms=result.completed_ms,
                event_time_ms=result.completed_ms + round(drawn.delay_s * self._delay_scale * 1_000.0),
                platform=result.platform,
                advertiser_segment=result.advertiser_segment,
            )
            for drawn in self._world.draw_outcomes(rng, user, ad_ids)
        ]


def _words(request_id: str) -> list[int]:
    """Four 32-bit words of a request id: the same in every process, as Python's own hash is not."""
    digest = blake2b(request_id.encode(), digest_size=16).digest()
    return [int.from_bytes(digest[start : start + 4], "little") for start in range(0, 16, 4)]
