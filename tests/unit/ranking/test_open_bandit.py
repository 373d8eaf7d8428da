"""The reader of the Open Bandit Dataset, on a file of its shape, and the popularity predictor."""

from pathlib import Path

import numpy as np
import pytest

from ranking.models.training.open_bandit import read_open_bandit
from ranking.models.training.open_bandit_rows import OpenBanditError
from ranking.models.training.popularity import Popularity

_HEADER = (
    ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,user_feature_2,user_feature_3,"
    "user-item_affinity_0,user-item_affinity_1,user-item_affinity_2\n"
)
_LATER = "0,2019-11-24 00:02:00.5+00:00,2,3,1,0.3,a,b,c,d,0.0,1.0,2.0\n"
_EARLIER = "1,2019-11-24 00:01:00.5+00:00,0,1,0,0.3,a,x,c,d,0.0,0.0,0.0\n"


def _file(folder: Path, text: str) -> Path:
    path = folder / "men.csv"
    path.write_text(text)
    return path


def test_rows_are_views_by_time(tmp_path: Path) -> None:
    views = read_open_bandit([_file(tmp_path, _HEADER + _LATER + _EARLIER)])
    assert views.shown.ad_ids_N.tolist() == [0, 2]
    assert views.clicked_N.tolist() == [False, True]
    assert views.shown.retrieval_scores_N.tolist() == [0.0, 2.0]
    assert views.users.history_ids_H.tolist() == [1, 2]
    assert views.users.request_of_history_H.tolist() == [1, 1]
    # Positions 1 and 3; feature 0 a; feature 1 b and x; feature 2 c; feature 3 d.
    assert views.users.features_BF.tolist() == [[1, 0, 1, 0, 1, 1, 1], [0, 1, 1, 1, 0, 1, 1]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_HEADER, "no row"),
        ("a,b\n1,2\n", "men.csv"),
        (_HEADER + _LATER.replace(",2,3,1,", ",3,3,1,"), "item 3"),
        (_HEADER + _LATER.replace(",2,3,1,", ",2,3,2,"), "click '2'"),
        (_HEADER + _LATER.replace("2019-11-24", "soon"), "men.csv"),
    ],
)
def test_what_is_no_such_file_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(OpenBanditError, match=says):
        read_open_bandit([_file(tmp_path, text)])


def test_popularity_is_drawn_towards_the_share_of_all() -> None:
    ads_N = np.array([4, 4, 4, 4, 9, 9])
    clicked_N = np.array([True, True, False, False, False, False])
    found = Popularity(ads_N, clicked_N).probabilities(np.array([4, 9, 1, 12]))
    # p = 1/3: (2 + 1) / (4 + 3), (0 + 1) / (2 + 3), and the share of all for ads never seen.
    np.testing.assert_allclose(found, [3 / 7, 1 / 5, 1 / 3, 1 / 3])
    with pytest.raises(ValueError, match="nothing was clicked"):
        Popularity(ads_N, np.zeros(6, dtype=bool))
