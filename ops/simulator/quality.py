"""How good predictions are against what happened, and rankings against the truth of the world.

Shape legend: N impressions, R requests, W widths.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ops.simulator.world import World
from ranking.models.inputs import CandidateChunk, Users
from ranking.models.scorer import Scorer
from ranking.models.topk import top_k


@dataclass(frozen=True)
class PredictionQuality:
    """Held-out quality of click probabilities; `calibration` is predicted clicks over clicks."""

    log_loss: float
    constant_log_loss: float
    auc: float
    calibration: float


def prediction_quality(probability_N: NDArray[np.float64], clicked_N: NDArray[np.bool_]) -> PredictionQuality:
    """Judge probabilities beside the best constant, the share of clicks itself.

    AUC is the Mann-Whitney statistic: the chance that a clicked impression was predicted above another; ties
    count half.
    """
    probability_N = np.clip(probability_N, 1e-7, 1.0 - 1e-7)
    rate = float(clicked_N.mean())
    num_clicks = int(clicked_N.sum())
    _, inverse_N, counts = np.unique(probability_N, return_inverse=True, return_counts=True)
    mean_rank_N = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse_N]
    above = mean_rank_N[clicked_N].sum() - num_clicks * (num_clicks + 1) / 2.0
    return PredictionQuality(
        log_loss=float(-np.where(clicked_N, np.log(probability_N), np.log1p(-probability_N)).mean()),
        constant_log_loss=-(rate * np.log(rate) + (1.0 - rate) * np.log1p(-rate)),
        auc=float(above / (num_clicks * (len(clicked_N) - num_clicks))),
        calibration=float(probability_N.sum() / num_clicks),
    )


def platt_scaling(log_odds_N: NDArray[np.float64], clicked_N: NDArray[np.bool_]) -> tuple[float, float]:
    """Return scale a and offset b for which sigmoid(a z + b) fits the clicks best (Platt 1999, by Newton)."""
    inputs_N2 = np.stack((log_odds_N, np.ones_like(log_odds_N)), axis=1)
    weights_2 = np.array([1.0, 0.0])
    # Two parameters of a convex loss, from a start that is nearly right: it has converged long before the
    # tenth step.
    for _ in range(10):
        probability_N = 1.0 / (1.0 + np.exp(-(inputs_N2 @ weights_2)))
        gradient_2 = inputs_N2.T @ (probability_N - clicked_N)
        hessian_22 = (inputs_N2 * (probability_N * (1.0 - probability_N))[:, None]).T @ inputs_N2
        weights_2 -= np.linalg.solve(hessian_22, gradient_2)
    return float(weights_2[0]), float(weights_2[1])


@dataclass(frozen=True)
class WidthValues:
    """True value of the ads shown, per request, currency, under each width of the search.

    model_RW: the model's best of the first `widths[w]` candidates; retrieval_R: the head of the retrieval
    order; predicted_RW: what the model believed that its choice was worth; segments: the requests' advertiser
    segments.
    """

    widths: tuple[int, ...]
    model_RW: NDArray[np.float64]
    predicted_RW: NDArray[np.float64]
    retrieval_R: NDArray[np.float64]
    segments: tuple[str, ...]


def width_values(
    world: World,
    scorer: Scorer,
    rng: np.random.Generator,
    *,
    widths: tuple[int, ...],
    num_requests: int,
    num_shown: int = 8,
) -> WidthValues:
    """Rank the same requests at several widths, and ask the world what the choices are worth."""
    model_RW = np.empty((num_requests, len(widths)))
    predicted_RW = np.empty((num_requests, len(widths)))
    retrieval_R = np.empty(num_requests)
    segments = []
    for row in range(num_requests):
        request = world.draw_request(rng, max(widths))
        encoded = scorer.prepare(Users.of_requests([request.user_features_F], [request.history_ids_H]))
        scores_N = scorer.score_chunk(
            encoded,
            CandidateChunk(
                ad_ids_N=request.ad_ids_N,
                bids_N=request.bids_N,
                retrieval_scores_N=request.retrieval_scores_N,
                request_of_candidate_N=np.zeros(len(request.ad_ids_N), dtype=np.int64),
            ),
        )
        true_N = world.click_probability(request.user_id, request.ad_ids_N) * request.bids_N
        for column, width in enumerate(widths):
            shown = top_k(scores_N[:width], request.ad_ids_N[:width], num_shown)
            model_RW[row, column] = true_N[shown].sum()
            predicted_RW[row, column] = scores_N[shown].sum()
        retrieval_R[row] = true_N[:num_shown].sum()
        segments.append(request.advertiser_segment)
    return WidthValues(widths, model_RW, predicted_RW, retrieval_R, tuple(segments))


def mean_interval(values_R: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean and its 95% interval by the central limit theorem (R in the hundreds or more)."""
    mean = float(values_R.mean())
    half = 1.96 * float(values_R.std(ddof=1)) / np.sqrt(len(values_R))
    return mean, mean - half, mean + half
