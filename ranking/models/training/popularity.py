"""The simplest predictor that tells ads apart: how often each was clicked.

Shape legend: N views, A ads.
"""

import numpy as np
from numpy.typing import NDArray


class Popularity:
    """Click share of each ad, drawn towards that of all ads as if one click of the average ad had been seen.

    p_a = (clicks_a + 1) / (views_a + 1 / p), p the share of all: a Beta prior with mean p. Raises: ValueError where
    nothing was clicked.
    """

    def __init__(self, ad_ids_N: NDArray[np.int64], clicked_N: NDArray[np.bool_]) -> None:
        if not clicked_N.any():
            raise ValueError("nothing was clicked")
        self.share = float(clicked_N.mean())
        self._ads_A, place_N = np.unique(ad_ids_N, return_inverse=True)
        views_A = np.bincount(place_N)
        clicks_A = np.bincount(place_N, weights=clicked_N)
        self._share_A = (clicks_A + 1.0) / (views_A + 1.0 / self.share)

    def probabilities(self, ad_ids_N: NDArray[np.int64]) -> NDArray[np.float64]:
        """Predicted click probability of each view, float64 [N]; an unknown ad has that of all."""
        place_N = np.searchsorted(self._ads_A, ad_ids_N).clip(max=len(self._ads_A) - 1)
        known_N = self._ads_A[place_N] == ad_ids_N
        shares_N: NDArray[np.float64] = np.where(known_N, self._share_A[place_N], self.share)
        return shares_N
