"""Requests of a simulation: who asks when, and what showing them an ad is worth.

A fixed number of people of the world ask again and again: their candidates are drawn and judged once, and a request
shares their packed arrays. Its retrieval scores hold what the baseline model will say of each candidate, so that a
scorer that only takes its time can answer.

Shape legend: N candidates.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.simulator.requests import user_name
from ops.simulator.scenario_model import Cell, Scenario
from ops.simulator.twin_settings import Mix
from ops.simulator.world import World, WorldConfig
from ops.twin.requests.demand import arrivals_s, upstream_draws_us, upstream_factor
from ranking.models.topk import top_k
from schemas.records import RankingRequest
from schemas.records.fields import FLOAT32_BYTES, INT64_BYTES

_ARRIVAL_STREAM = 2
_PEOPLE_STREAM = 12
_REQUEST_STREAM = 13
NUM_PEOPLE = 1_024
_BLOCK = 4_096
_MICRO = 1e6
# The features alone tell the baseline model who a user is.
_BASELINE_NOISE_SHARE = 1.0


@dataclass(slots=True, kw_only=True)
class Person:
    """One of those who ask: packed arrays of candidates in retrieval order, and what the truth says of them.

    ``believed`` and ``upgraded`` are scores of the baseline and the stronger model, float32 [N]. ``value_micro`` is
    what showing each ad is worth, micro-units of currency.
    """

    user: str
    platform: str
    segment: str
    ad_ids_N: NDArray[np.int64]
    ad_ids: bytes
    bids: bytes
    believed_N: NDArray[np.float32]
    believed: bytes
    upgraded_N: NDArray[np.float32]
    features: bytes
    history: bytes
    value_micro: dict[int, int]
    _base_values: dict[tuple[int, int, bool], int] = field(default_factory=dict)

    def worth_micro(self, ad_ids: bytes) -> int:
        """True expected value of showing these ads."""
        value_micro = self.value_micro
        return sum([value_micro[ad] for ad in np.frombuffer(ad_ids, dtype="<i8").tolist()])

    def base_worth_micro(self, num_base: int, num_results: int, *, upgraded: bool = False) -> int:
        """True expected value of what the base candidates alone lead to, by either model."""
        key = (num_base, num_results, upgraded)
        worth = self._base_values.get(key)
        if worth is None:
            scores_N = (self.upgraded_N if upgraded else self.believed_N)[:num_base]
            best = top_k(scores_N, self.ad_ids_N[:num_base], num_results)
            worth = self._base_values[key] = self.worth_micro(self.ad_ids_N[best].astype("<i8").tobytes())
        return worth


class People:
    """Everyone who asks, by user and by segment."""

    def __init__(self, people: Iterable[Person]) -> None:
        self.by_user = {person.user: person for person in people}
        self.all = tuple(self.by_user.values())
        self.by_segment: dict[str, list[Person]] = {}
        for person in self.all:
            self.by_segment.setdefault(person.segment, []).append(person)


def people_of(scenario: Scenario, *, seed: int) -> People:
    """The people of a scenario; equal questions have equal answers, so the last ones are kept."""
    return _people(scenario.requests.num_candidates, scenario.twin.powerful_noise_share, seed)


@lru_cache(maxsize=4)
def _people(num_candidates: int, powerful_noise_share: float, seed: int) -> People:
    world = World(WorldConfig())
    rng = np.random.default_rng([seed, _PEOPLE_STREAM])
    return People(_person(world, rng, num_candidates, powerful_noise_share) for _ in range(NUM_PEOPLE))


def _person(world: World, rng: np.random.Generator, num_candidates: int, powerful_noise_share: float) -> Person:
    drawn = world.draw_request(rng, num_candidates)
    bids_N = drawn.bids_N.astype(np.float64)

    def scores(noise_share: float) -> NDArray[np.float32]:
        probability_N = world.believed_probability(drawn.user_id, drawn.ad_ids_N, noise_share=noise_share)
        return (probability_N * bids_N).astype("<f4")

    believed_N = scores(_BASELINE_NOISE_SHARE)
    true_N = world.click_probability(drawn.user_id, drawn.ad_ids_N) * bids_N
    worths: list[int] = np.rint(true_N * _MICRO).astype(np.int64).tolist()
    return Person(
        user=user_name(drawn.user_id),
        platform=drawn.platform,
        segment=drawn.advertiser_segment,
        ad_ids_N=drawn.ad_ids_N,
        ad_ids=drawn.ad_ids_N.astype("<i8").tobytes(),
        bids=drawn.bids_N.astype("<f4").tobytes(),
        believed_N=believed_N,
        believed=believed_N.tobytes(),
        upgraded_N=scores(powerful_noise_share),
        features=drawn.user_features_F.astype("<f4").tobytes(),
        history=drawn.history_ids_H.astype("<i8").tobytes(),
        value_micro=dict(zip(drawn.ad_ids_N.tolist(), worths, strict=True)),
    )


class _Drawn(NamedTuple):
    """One request: its cell by number, and two draws in [0, 1) that say who asks."""

    cell: int
    num_candidates: int
    who: float
    segment: float
    upstream_us: float


class Callers:
    """All requests of a scenario in the order of their arrival; equal seeds give equal requests.

    ``width`` says of a cell how far its target is from base, in [0, 1]: more candidates take callers longer.
    """

    def __init__(
        self, scenario: Scenario, people: People, *, seed: int, start_ms: int, width: Callable[[str], float]
    ) -> None:
        self._scenario = scenario
        self._people = people
        self._start_ms = start_ms
        self._width = width
        self._rng = np.random.default_rng([seed, _REQUEST_STREAM])
        self._arrival_rng = np.random.default_rng([seed, _ARRIVAL_STREAM])
        shares = np.array([cell.traffic_share for cell in scenario.cells])
        self._share_edges = np.cumsum(shares / shares.sum())[:-1]
        self._pairs = np.array(scenario.requests.pairs)

    def requests(self) -> Iterator[tuple[float, RankingRequest]]:
        """Each request with its arrival, s after traffic starts."""
        drawn = self._drawn()
        for index, at_s in enumerate(arrivals_s(self._scenario, self._arrival_rng)):
            yield at_s, self._request(index, at_s, next(drawn))

    def _drawn(self) -> Iterator[_Drawn]:
        """What chance decides of each request, drawn in blocks."""
        rng, most = self._rng, self._scenario.requests.num_candidates
        steps = np.linspace(0.0, 1.0, len(self._pairs))
        while True:
            where = np.searchsorted(self._share_edges, rng.random(_BLOCK), side="right").tolist()
            places = rng.random(_BLOCK)
            sizes = np.interp(places, steps, self._pairs) if len(self._pairs) else np.full(_BLOCK, float(most))
            widths = np.clip(np.rint(sizes), 1, most).astype(np.int64).tolist()
            # Everyone once before anyone again: what is earned varies much more from person to person than with the
            # width of a search.
            turns = [rng.permutation(NUM_PEOPLE) for _ in range(_BLOCK // NUM_PEOPLE)]
            whos = ((np.concatenate(turns) + 0.5) / NUM_PEOPLE).tolist()
            segments = rng.random(_BLOCK).tolist()
            spent = upstream_draws_us(self._scenario, rng, _BLOCK)
            yield from map(_Drawn, where, widths, whos, segments, spent)

    def _person(self, drawn: _Drawn, at_s: float) -> Person:
        people: Sequence[Person] = self._people.all
        mix = self._mix(at_s)
        if mix is not None:
            share = 0.0
            for segment, of_segment in mix.shares:
                share += of_segment
                people = self._people.by_segment.get(segment, people)
                if drawn.segment < share:
                    break
        return people[int(drawn.who * len(people))]

    def _mix(self, at_s: float) -> Mix | None:
        since_s = at_s - self._scenario.warm_up_s
        # The first holds from the beginning.
        begun = [mix for mix in self._scenario.twin.mixes if mix.at_s <= since_s] or self._scenario.twin.mixes[:1]
        return begun[-1] if begun else None

    def _request(self, index: int, at_s: float, drawn: _Drawn) -> RankingRequest:
        settings = self._scenario.requests
        person, cell = self._person(drawn, at_s), self._scenario.cells[drawn.cell]
        num_candidates = drawn.num_candidates
        intake_ms = self._start_ms + round(at_s * 1_000.0)
        is_whole = num_candidates == settings.num_candidates
        return RankingRequest(
            request_id=f"r{index}",
            user_id=person.user,
            cell=cell.name,
            intake_ms=intake_ms,
            deadline_ms=intake_ms + settings.deadline_ms,
            num_base_candidates=min(cell.limits.base_candidates, num_candidates),
            num_results=min(settings.num_results, num_candidates),
            ad_ids=person.ad_ids if is_whole else person.ad_ids[: num_candidates * INT64_BYTES],
            bids=person.bids if is_whole else person.bids[: num_candidates * FLOAT32_BYTES],
            retrieval_scores=person.believed if is_whole else person.believed[: num_candidates * FLOAT32_BYTES],
            user_features=person.features,
            history_ids=person.history,
            platform=person.platform,
            advertiser_segment=person.segment,
            upstream_us=self._upstream_us(drawn, cell, at_s) if drawn.upstream_us else 0,
        )

    def _upstream_us(self, drawn: _Drawn, cell: Cell, at_s: float) -> int:
        wider = 1.0 + self._scenario.twin.upstream.rise_share * self._width(cell.name)
        return round(drawn.upstream_us * wider * upstream_factor(self._scenario, at_s))
