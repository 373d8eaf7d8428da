"""Labelled views from the log: what users did, joined with what was shown and what was known of it at intake.

An outcome names its request, and the request holds what a model may see: the user's features and past clicks, each ad's
bid and retrieval score. The result between them says which ads were really shown. A view is a label once its
attribution window has passed: clicked within the window or not. A view that is younger is pending, clicked or not, and
an ad without a view is no label at all: neither is ever a zero.

Only what was viewed is held, never a request's other candidates.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ranking.models.inputs import CandidateChunk, Users
from ranking.models.training.views import LabelledViews
from schemas.records import RankingOutcome, RankingRequest, RankingResult

DEFAULT_WINDOW_MS = 15 * 60 * 1_000


class NoViewsError(Exception):
    """A range of logs that holds nothing to learn from; one line that says why."""


class TooManyRequestsError(Exception):
    """More requests than may be held in memory."""


@dataclass(slots=True)
class _View:
    exposed_ms: int
    clicked: bool = False


@dataclass(frozen=True, slots=True)
class _Joined:
    """A request as a model sees it, with the viewed ads alone."""

    intake_ms: int
    request_id: str
    features_F: NDArray[np.float32]
    history_ids_H: NDArray[np.int64]
    ad_ids_N: NDArray[np.int64]
    bids_N: NDArray[np.float32]
    retrieval_scores_N: NDArray[np.float32]
    clicked_N: NDArray[np.bool_]


@dataclass
class ViewJoin:
    """Takes all outcomes, then all results, then all requests, in any order within each; then gives the views.

    `max_requests` bounds memory: a request with eight views and fifty past clicks takes about 2 kB. `num_left_out`
    counts by reason what was no label.
    """

    max_requests: int = 1_000_000
    window_ms: int = DEFAULT_WINDOW_MS
    num_left_out: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if self.max_requests < 1 or self.window_ms < 0:
            raise ValueError("max_requests must be at least 1 and window_ms not negative")
        self._views: dict[str, dict[int, _View]] = {}
        self._shown: dict[str, dict[int, _View]] = {}
        self._joined: dict[str, _Joined] = {}
        self._newest_ms = 0

    def join(
        self,
        outcomes: Iterable[RankingOutcome],
        results: Iterable[RankingResult],
        requests: Iterable[RankingRequest],
    ) -> LabelledViews:
        """Take all three, the last ones read last, and return the views. Raises as the single steps do."""
        for outcome in outcomes:
            self.add_outcome(outcome)
        for result in results:
            self.add_result(result)
        for request in requests:
            self.add_request(request)
        return self.views()

    def add_outcome(self, outcome: RankingOutcome) -> None:
        """Note a view or a click; the same one again changes nothing. Raises TooManyRequestsError."""
        self._newest_ms = max(self._newest_ms, outcome.event_time_ms)
        # A conversion follows a click that is told by itself.
        if outcome.kind == "conversion":
            return
        if outcome.request_id not in self._views and len(self._views) == self.max_requests:
            raise TooManyRequestsError(f"outcomes of more than {self.max_requests} requests: narrow the range")
        of_request = self._views.setdefault(outcome.request_id, {})
        # A click tells of its view too: that record may have been lost.
        view = of_request.setdefault(outcome.ad_id, _View(outcome.exposure_time_ms))
        view.exposed_ms = min(view.exposed_ms, outcome.exposure_time_ms)
        if outcome.kind == "click" and outcome.event_time_ms - outcome.exposure_time_ms <= self.window_ms:
            view.clicked = True

    def add_result(self, result: RankingResult) -> None:
        """Keep the views of ads that the result shows and whose window has passed."""
        views = self._views.pop(result.request_id, None)
        if views is None:
            return
        shown = set(np.frombuffer(result.ad_ids, dtype="<i8").tolist())
        kept = {}
        for ad_id, view in views.items():
            if ad_id not in shown:
                self.num_left_out["not_shown"] += 1
            elif view.exposed_ms + self.window_ms > self._newest_ms:
                self.num_left_out["pending"] += 1
            else:
                kept[ad_id] = view
        if kept:
            self._shown[result.request_id] = kept

    def add_request(self, request: RankingRequest) -> None:
        """Join what was viewed with what was known of it."""
        views = self._shown.pop(request.request_id, None)
        if views is None:
            return
        ad_ids_N = np.frombuffer(request.ad_ids, dtype="<i8")
        # The caller's first mention of an ad counts: that is the one whose score was shown first.
        places = {ad_id: place for place, ad_id in reversed(list(enumerate(ad_ids_N.tolist())))}
        viewed = sorted(places[ad_id] for ad_id in views if ad_id in places)
        self.num_left_out["not_offered"] += len(views) - len(viewed)
        if not viewed:
            return
        joined = _Joined(
            intake_ms=request.intake_ms,
            request_id=request.request_id,
            features_F=np.frombuffer(request.user_features, dtype="<f4").astype(np.float32),
            history_ids_H=np.frombuffer(request.history_ids, dtype="<i8").astype(np.int64),
            ad_ids_N=ad_ids_N[viewed].astype(np.int64),
            bids_N=np.frombuffer(request.bids, dtype="<f4")[viewed].astype(np.float32),
            retrieval_scores_N=np.frombuffer(request.retrieval_scores, dtype="<f4")[viewed].astype(np.float32),
            clicked_N=np.array([views[int(ad_id)].clicked for ad_id in ad_ids_N[viewed]]),
        )
        columns = (joined.features_F, joined.bids_N, joined.retrieval_scores_N)
        if all(np.isfinite(column).all() for column in columns):
            self._joined[joined.request_id] = joined
        else:
            self.num_left_out["not_finite"] += len(viewed)

    def views(self) -> LabelledViews:
        """Return what was joined, by time of intake, and count what was not.

        Raises: NoViewsError where nothing was, and where users have features of different lengths.
        """
        self.num_left_out["no_result"] = sum(len(views) for views in self._views.values())
        self.num_left_out["no_request"] = sum(len(views) for views in self._shown.values())
        rows = sorted(self._joined.values(), key=lambda joined: (joined.intake_ms, joined.request_id))
        if not rows:
            why = ", ".join(f"{num} {reason}" for reason, num in sorted(self.num_left_out.items()) if num)
            raise NoViewsError(f"no view can be joined: {why or 'no outcome in the range'}")
        lengths = sorted({len(row.features_F) for row in rows})
        if len(lengths) > 1:
            raise NoViewsError(f"users have {lengths[0]} to {lengths[-1]} features: a model takes one number of them")
        return LabelledViews(
            users=Users.of_requests([row.features_F for row in rows], [row.history_ids_H for row in rows]),
            shown=CandidateChunk(
                ad_ids_N=np.concatenate([row.ad_ids_N for row in rows]),
                bids_N=np.concatenate([row.bids_N for row in rows]),
                retrieval_scores_N=np.concatenate([row.retrieval_scores_N for row in rows]),
                request_of_candidate_N=np.repeat(np.arange(len(rows)), [len(row.ad_ids_N) for row in rows]),
            ),
            clicked_N=np.concatenate([row.clicked_N for row in rows]),
        )
