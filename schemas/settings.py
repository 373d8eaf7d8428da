"""Settings of event time that every part of one pipeline shares."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class TimeSettings:
    """Times in milliseconds. ``skew_ms`` is how far an event's time may run ahead of its append time."""

    window_ms: int = 10_000
    lateness_ms: int = 2_000
    heartbeat_ms: int = 5_000
    host_ttl_ms: int = 30_000
    skew_ms: int = 5_000
    validity_windows: int = 3
    clock_silence_ms: int = 1_000
    interval_ms: int = 1_000

    def __post_init__(self) -> None:
        for setting in fields(self):
            if getattr(self, setting.name) <= 0:
                raise ValueError(f"{env_name(setting.name)} must be positive, is {getattr(self, setting.name)}")
        if self.host_ttl_ms < 2 * self.heartbeat_ms:
            raise ValueError("INTERTIDAL_HOST_TTL_MS must be at least two heartbeats, or one lost record loses a host")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "TimeSettings":
        """Settings from ``INTERTIDAL_<NAME>`` variables; raises ValueError naming the one that is no whole number."""
        return cls(**_given(cls, environ))

    def to_env(self) -> dict[str, str]:
        """The variables that give these settings to a child process."""
        return {env_name(setting.name): str(getattr(self, setting.name)) for setting in fields(self)}


@dataclass(frozen=True, kw_only=True)
class MeasurementSettings:
    """How outcomes are counted, the same for every ingest worker of a pipeline and for its replays.

    An outcome counts where it happened within ``attribution_ms`` after its request's intake. Requests are held together
    in cohorts of ``cohort_ms``, which count once their attribution window has closed. Values of more than
    ``value_cap_micro`` are cut there in the winsorised sums. A request or outcome is a duplicate of one seen up to
    ``repeat_ms`` earlier. Raises ValueError.
    """

    attribution_ms: int = 3_600_000
    cohort_ms: int = 60_000
    value_cap_micro: int = 10_000_000
    repeat_ms: int = 300_000

    def __post_init__(self) -> None:
        for setting in fields(self):
            if getattr(self, setting.name) <= 0:
                raise ValueError(f"{env_name(setting.name)} must be positive, is {getattr(self, setting.name)}")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "MeasurementSettings":
        """Settings from ``INTERTIDAL_<NAME>`` variables; raises ValueError naming the one that is no whole number."""
        return cls(**_given(cls, environ))

    @property
    def tag(self) -> str:
        """All settings in one word: windows that were made by others do not compare."""
        return ".".join(str(getattr(self, setting.name)) for setting in fields(self))

    def to_env(self) -> dict[str, str]:
        """The variables that give these settings to a child process."""
        return {env_name(setting.name): str(getattr(self, setting.name)) for setting in fields(self)}


def _given(
    settings: type[TimeSettings] | type[MeasurementSettings], environ: Mapping[str, str] | None
) -> dict[str, int]:
    environ = os.environ if environ is None else environ
    given: dict[str, int] = {}
    for setting in fields(settings):
        text = environ.get(env_name(setting.name))
        if text is None:
            continue
        try:
            given[setting.name] = int(text)
        except ValueError:
            raise ValueError(f"{env_name(setting.name)} must be a whole number, is {text!r}") from None
    return given


def env_name(setting: str) -> str:
    """Environment variable of a setting."""
    return f"INTERTIDAL_{setting.upper()}"
