"""Settings of event time from the environment, with errors that name the variable."""

import pytest

from schemas.settings import TimeSettings


def test_settings_survive_the_environment() -> None:
    settings = TimeSettings(window_ms=2_000, lateness_ms=500)
    assert TimeSettings.from_env(settings.to_env()) == settings


def test_defaults_are_the_documented_ones() -> None:
    settings = TimeSettings.from_env({})
    assert (settings.window_ms, settings.lateness_ms, settings.heartbeat_ms) == (10_000, 2_000, 5_000)
    assert (settings.host_ttl_ms, settings.validity_windows) == (30_000, 3)


@pytest.mark.parametrize("text", ["", "ten", "1.5", "0", "-4"])
def test_a_wrong_value_names_its_variable(text: str) -> None:
    with pytest.raises(ValueError, match="INTERTIDAL_WINDOW_MS"):
        TimeSettings.from_env({"INTERTIDAL_WINDOW_MS": text})


def test_a_time_to_live_below_two_heartbeats_is_refused() -> None:
    with pytest.raises(ValueError, match="INTERTIDAL_HOST_TTL_MS"):
        TimeSettings(host_ttl_ms=9_999, heartbeat_ms=5_000)
