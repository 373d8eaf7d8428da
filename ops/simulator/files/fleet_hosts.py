"""From what a fleet leaves idle to the few hosts of a run, and when each is offered and taken back. Pure.

One local host stands for a part of the fleet. With n hosts of a resource, all of them are whole when as much is idle as
ever in the stretch; as idle falls, the last one shrinks in quarters of a unit, then is taken back, then the one
before it. What changes within a second of the run counts at its worst: only what stays idle through it is offered.
Shape legend: S seconds of the run.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.simulator.files.idle import CapacityStretch, InUse
from ops.simulator.scenario_model import CapacityAction, CapacityChange, Host

SLOT_S: Final = 1.0
REASON: Final = "fleet_in_use"
_QUARTERS: Final = 4
# A ranker of the demo is one process on one core.
_CPU_CORES: Final = 1.0
_MEMORY_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class Resource:
    """One resource of a fleet; ``kind`` is the accelerator of its hosts, ``noun`` what is counted."""

    kind: str
    noun: str
    use: InUse


@dataclass(frozen=True)
class FleetHosts:
    """Hosts, what happens to them, and that in words."""

    hosts: tuple[Host, ...]
    changes: tuple[CapacityChange, ...]
    story: str


def fleet_hosts(
    resources: Sequence[Resource], stretch: CapacityStretch, *, duration_s: float, num_hosts: int, cells: Sequence[str]
) -> FleetHosts:
    """``num_hosts`` hosts for a stretch, by turns of each resource that is ever idle in it."""
    num_slots = math.ceil(duration_s / SLOT_S)
    idle = {
        resource.kind: resource.use.idle_in_slots(stretch.from_s, stretch.speed * SLOT_S, num_slots)
        for resource in resources
    }
    # Where nothing is idle, hosts that are never offered say so.
    useful = [resource for resource in resources if idle[resource.kind].max() > 0.0] or list(resources)
    kinds = [useful[index % len(useful)].kind for index in range(num_hosts)]
    hosts: list[Host] = []
    changes: list[CapacityChange] = []
    for index, kind in enumerate(kinds):
        units_S = _units(idle[kind], kinds[:index].count(kind), kinds.count(kind))
        name = f"fleet-{kind}-{1 + kinds[:index].count(kind)}"
        hosts.append(_host(name, kind, cells[index % len(cells)], units_S))
        changes += _changes(name, units_S)
    changes.sort(key=lambda change: change.at_s)
    num_reclaims = sum(change.action == "reclaim" for change in changes)
    shares = "; ".join(_share(resource, idle[resource.kind], kinds) for resource in useful if resource.kind in kinds)
    return FleetHosts(tuple(hosts), tuple(changes), f"{shares}; {num_reclaims} reclaims")


def _units(idle_S: NDArray[np.float64], place: int, num_hosts: int) -> NDArray[np.float64]:
    """Units of the host at ``place`` among those of its resource, float64 [S], in quarters."""
    most = float(idle_S.max())
    if most <= 0.0:
        return np.zeros_like(idle_S)
    part_S = np.clip(num_hosts * idle_S / most - place, 0.0, 1.0)
    # The little that is added makes up for divisions that end just below a quarter.
    units_S: NDArray[np.float64] = np.floor(_QUARTERS * part_S + 1e-9) / _QUARTERS
    return units_S


def _host(name: str, kind: str, cell: str, units_S: NDArray[np.float64]) -> Host:
    return Host(
        name=name,
        cell=cell,
        accelerator=kind,
        units=float(units_S[0]),
        cpu_cores=_CPU_CORES,
        memory_bytes=_MEMORY_BYTES,
        provider="own",
        idle_cause="off_peak",
        unusable=None,
        offered_at_start=bool(units_S[0] > 0.0),
    )


def _changes(name: str, units_S: NDArray[np.float64]) -> Iterator[CapacityChange]:
    """A reclaim for each time without units, with its end; an update wherever other units than before are offered."""
    offered = float(units_S[0])
    # A host that is away at the start was taken from nobody: it comes by an offer.
    is_new = offered == 0.0
    for slot in 1 + np.flatnonzero(np.diff(units_S)):
        units = float(units_S[slot])
        at_s = int(slot) * SLOT_S
        if units == 0.0:
            back = np.flatnonzero(units_S[slot:])
            yield _change(name, at_s, "reclaim", duration_s=int(back[0]) * SLOT_S if len(back) else None)
            continue
        if units != offered:
            yield _change(name, at_s, "update", units=units)
            offered = units
        if is_new:
            yield _change(name, at_s, "offer")
            is_new = False


def _change(
    host: str,
    at_s: float,
    action: CapacityAction,
    *,
    duration_s: float | None = None,
    units: float | None = None,
) -> CapacityChange:
    return CapacityChange(at_s=at_s, hosts=host, action=action, reason=REASON, duration_s=duration_s, units=units)


def _share(resource: Resource, idle_S: NDArray[np.float64], kinds: Sequence[str]) -> str:
    least, most, num = idle_S.min(), idle_S.max(), kinds.count(resource.kind)
    return (
        f"{least:.0f} to {most:.0f} of {resource.use.peak:.0f} {resource.noun} idle, "
        f"{num} host{'s' if num > 1 else ''} for {most:.0f} of them"
    )
