"""Scenarios of one cell for tests of the twin."""

from dataclasses import replace

import numpy as np

from ops.simulator.scenario import load_scenario
from ops.simulator.scenario_model import Host, Scenario
from ops.simulator.timeline import HostEvent
from ops.twin.value import ValueTable


def scenario(name: str = "two-levers", *, duration_s: float | None = None, **changes) -> Scenario:
    made = load_scenario(name)
    if duration_s is not None:
        made = made.stretched(duration_s)
    twin = {key: changes.pop(key) for key in list(changes) if hasattr(made.twin, key)}
    return replace(made, twin=replace(made.twin, **twin), **changes)


def host(name: str, *, accelerator: str = "a100", units: float = 1.0, offered: bool = True, **changes) -> Host:
    made = Host(
        name=name,
        cell="us-east",
        accelerator=accelerator,
        units=units,
        cpu_cores=8.0,
        memory_bytes=1 << 36,
        provider="own",
        idle_cause="off_peak",
        unusable=None,
        offered_at_start=offered,
    )
    return replace(made, **changes)


def event(at_s: float, name: str, action: str, *, units: float = 0.0) -> HostEvent:
    return HostEvent(at_s=at_s, host=name, action=action, units=units)  # type: ignore[arg-type]


def table(base: int = 64, most: int = 512) -> ValueTable:
    """A world of two segments: the one worth most gains nothing from extras, the other nothing from upgrades."""
    widths = np.array([base, (base + most) / 2, most], dtype=np.float64)
    return ValueTable(
        segments=("rich", "poor"),
        shares_S=np.array([0.5, 0.5]),
        widths_W=widths,
        baseline_SW=np.array([[8.0, 8.0, 8.0], [2.0, 3.0, 3.5]]),
        upgraded_SW=np.array([[9.0, 9.0, 9.0], [2.0, 3.0, 3.5]]),
    )
