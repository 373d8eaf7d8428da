"""A declaration only grows: what was in force in a past window stays so."""

import pytest

from ops.cells import LEAD_WINDOWS, CellChangeError, declare, first_window, retire
from schemas.records import CellDeclaration, CellLimits

NARROW = CellLimits(base_candidates=64, max_candidates=128, latency_limit_ms=150.0)
BROAD = CellLimits(base_candidates=64, max_candidates=512, latency_limit_ms=150.0)


def declared() -> CellDeclaration:
    return declare(None, "us-east", limits=NARROW, from_window=10, window_ms=10_000, providers=["own"])


def test_a_new_revision_leaves_the_past_as_it_was() -> None:
    revised = declare(declared(), "us-east", limits=BROAD, from_window=20, window_ms=10_000, providers=["cloud"])
    assert revised.limits_at(9) is None
    assert revised.limits_at(19) == NARROW
    assert revised.limits_at(20) == BROAD
    assert revised.providers == ["cloud", "own"]


def test_a_change_before_a_revision_in_force_is_refused() -> None:
    with pytest.raises(CellChangeError, match="us-east already has a revision from window 10"):
        declare(declared(), "us-east", limits=BROAD, from_window=9, window_ms=10_000)


def test_windows_of_another_length_are_refused() -> None:
    with pytest.raises(CellChangeError, match="10000 ms, the settings say 2000 ms"):
        declare(declared(), "us-east", limits=BROAD, from_window=20, window_ms=2_000)


def test_a_retired_cell_has_no_limits_and_takes_no_more_changes() -> None:
    retired = retire(declared(), "us-east", until_window=30)
    assert retired.limits_at(29) == NARROW
    assert retired.limits_at(30) is None
    with pytest.raises(CellChangeError, match="retired from window 30"):
        declare(retired, "us-east", limits=BROAD, from_window=40, window_ms=10_000)
    with pytest.raises(CellChangeError, match="already retired"):
        retire(retired, "us-east", until_window=40)
    with pytest.raises(CellChangeError, match="us-west is not declared"):
        retire(None, "us-west", until_window=40)


def test_a_change_takes_effect_after_every_worker_can_have_read_it() -> None:
    assert first_window(25_000, 10_000) == 2 + LEAD_WINDOWS
