"""How good predicted click probabilities are against what happened.

Shape legend: N views, R independent units (requests).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PredictionQuality:
    """Held-out quality of click probabilities; `calibration` is predicted clicks over clicks."""

    log_loss: float
    constant_log_loss: float
    auc: float
    calibration: float


def prediction_quality(probability_N: NDArray[np.float64], clicked_N: NDArray[np.bool_]) -> PredictionQuality:
    """Judge probabilities beside the best constant, the share of clicks itself.

    AUC is the Mann-Whitney statistic: the chance that a clicked view was predicted above another; ties count half.
    Raises: ValueError where all views were clicked, or none: nothing can be told apart.
    """
    rate = float(clicked_N.mean())
    num_clicks = int(clicked_N.sum())
    if num_clicks in (0, len(clicked_N)):
        raise ValueError(f"{num_clicks} of {len(clicked_N)} views were clicked: quality needs both kinds")
    _, inverse_N, counts = np.unique(probability_N, return_inverse=True, return_counts=True)
    mean_rank_N = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse_N]
    above = mean_rank_N[clicked_N].sum() - num_clicks * (num_clicks + 1) / 2.0
    return PredictionQuality(
        log_loss=float(log_loss(probability_N, clicked_N).mean()),
        constant_log_loss=float(-(rate * np.log(rate) + (1.0 - rate) * np.log1p(-rate))),
        auc=float(above / (num_clicks * (len(clicked_N) - num_clicks))),
        calibration=float(probability_N.sum() / num_clicks),
    )


def log_loss(probability_N: NDArray[np.float64], clicked_N: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the negative log-likelihood of each label, nats: float64 [N]; a probability of 0 or 1 is clipped."""
    clipped_N = np.clip(probability_N, 1e-7, 1.0 - 1e-7)
    loss_N: NDArray[np.float64] = -np.where(clicked_N, np.log(clipped_N), np.log1p(-clipped_N))
    return loss_N


def platt_scaling(log_odds_N: NDArray[np.float64], clicked_N: NDArray[np.bool_]) -> tuple[float, float]:
    """Return scale a and offset b for which sigmoid(a z + b) fits the clicks best (Platt 1999).

    By Newton's method, a step halved until the loss falls: from a start far off, whole steps would diverge.
    """
    inputs_N2 = np.stack((log_odds_N, np.ones_like(log_odds_N)), axis=1)
    weights_2 = np.array([1.0, 0.0])
    loss = _logistic_loss(inputs_N2 @ weights_2, clicked_N)
    # Two parameters of a convex loss, from a start that is nearly right: it has converged long before the last step.
    for _ in range(25):
        probability_N = 1.0 / (1.0 + np.exp(-(inputs_N2 @ weights_2)))
        gradient_2 = inputs_N2.T @ (probability_N - clicked_N)
        # The ridge keeps the step defined where all log-odds are the same.
        hessian_22 = (inputs_N2 * (probability_N * (1.0 - probability_N))[:, None]).T @ inputs_N2 + 1e-9 * np.eye(2)
        step_2 = np.linalg.solve(hessian_22, gradient_2)
        for halvings in range(30):
            moved_2 = weights_2 - step_2 * 0.5**halvings
            moved_loss = _logistic_loss(inputs_N2 @ moved_2, clicked_N)
            if moved_loss < loss:
                weights_2, loss = moved_2, moved_loss
                break
        else:
            break
    return float(weights_2[0]), float(weights_2[1])


def _logistic_loss(log_odds_N: NDArray[np.float64], clicked_N: NDArray[np.bool_]) -> float:
    return float(np.logaddexp(0.0, np.where(clicked_N, -log_odds_N, log_odds_N)).sum())


def mean_interval(values_R: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean and its 95% interval by the central limit theorem (R in the hundreds or more)."""
    mean = float(values_R.mean())
    half = 1.96 * float(values_R.std(ddof=1)) / np.sqrt(len(values_R))
    return mean, mean - half, mean + half
