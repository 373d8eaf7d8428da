"""Who the kernel ends first when memory runs out: an opportunistic replica asks for it, and never takes it back."""

from pathlib import Path

import pytest

from ranking.consumer.first_to_go import SCORE, go_first


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("0\n", str(SCORE), f"raised from 0 to {SCORE}"),
        ("-900\n", str(SCORE), f"raised from -900 to {SCORE}"),
        ("1000\n", "1000\n", "left at 1000: as early already"),
    ],
)
def test_the_score_is_raised_and_never_lowered(tmp_path: Path, before: str, after: str, said: str) -> None:
    file = tmp_path / "oom_score_adj"
    file.write_text(before)
    assert go_first(file) == said
    assert file.read_text() == after


def test_a_kernel_without_scores_stops_nothing(tmp_path: Path) -> None:
    assert go_first(tmp_path / "none").startswith("left alone: ")
