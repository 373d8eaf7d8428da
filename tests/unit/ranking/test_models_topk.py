"""Top-k equals a full sort by (score descending, id ascending), with NaN never chosen."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking.models.topk import top_k

# Few distinct scores, so that ties at the threshold are the rule.
_SCORES = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf, np.nan])


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), _SCORES), max_size=60, unique_by=lambda pair: pair[0]),
    st.integers(0, 70),
)
def test_equals_a_full_sort(candidates: list[tuple[int, float]], k: int) -> None:
    ids_N = np.array([ad_id for ad_id, _ in candidates], dtype=np.int64)
    scores_N = np.array([score for _, score in candidates], dtype=np.float32)
    comparable = [i for i in range(len(candidates)) if not np.isnan(scores_N[i])]
    expected = sorted(comparable, key=lambda i: (-scores_N[i], ids_N[i]))[:k]
    selected_K = top_k(scores_N, ids_N, k)
    assert selected_K.dtype == np.int64
    assert selected_K.tolist() == expected


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        top_k(np.zeros(1, dtype=np.float32), np.zeros(1, dtype=np.int64), -1)
    with pytest.raises(ValueError, match="equally long"):
        top_k(np.zeros(2, dtype=np.float32), np.zeros(1, dtype=np.int64), 1)


def test_selecting_needs_no_torch() -> None:
    program = "import sys, ranking.models.topk; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
