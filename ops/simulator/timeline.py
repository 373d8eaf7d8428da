"""From a scenario to what happens to each host and when: reclaims that overlap become one, chance goes by the seed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ops.simulator.scenario_model import CapacityAction, CapacityChange, Host, RandomReclaims, Scenario

# Separates the draws of reclaims from those of arrivals and requests, which start from the same seed.
_RECLAIM_STREAM = 1


@dataclass(frozen=True, kw_only=True)
class HostEvent:
    """One thing that happens to one host, ``at_s`` after the end of the warm-up.

    ``units`` are those offered from then on (``update``); ``ahead_s`` is how far off the announced reclaim is
    (``notice``).
    """

    at_s: float
    host: str
    action: CapacityAction
    reason: str = ""
    units: float = 0.0
    ahead_s: float = 0.0


@dataclass(frozen=True)
class _Absence:
    """A time in which the owner has a host's capacity for itself; ``end_s`` is infinite until an offer ends it."""

    start_s: float
    end_s: float
    reason: str


def host_timeline(scenario: Scenario) -> tuple[HostEvent, ...]:
    """Every event of every host, by time; at one instant in the order of the hosts. The same at every call."""
    matching = {change.hosts: scenario.hosts_matching(change.hosts) for change in scenario.capacity_changes}
    changes: dict[str, list[CapacityChange]] = {host.name: [] for host in scenario.hosts}
    for change in scenario.capacity_changes:
        for host in matching[change.hosts]:
            changes[host.name].append(change)
    reclaims = scenario.random_reclaims
    at_risk = set() if reclaims is None else {host.name for host in scenario.hosts_matching(reclaims.hosts)}
    events: list[HostEvent] = []
    for index, host in enumerate(scenario.hosts):
        absences = list(_planned_absences(changes[host.name], host))
        if reclaims is not None and host.name in at_risk:
            absences += _random_absences(scenario, reclaims, index)
        events += _host_events(host, changes[host.name], absences)
    # The sort is stable: hosts stay in order, and so do a host's own events.
    return tuple(sorted(events, key=lambda event: event.at_s))


def _host_events(host: Host, changes: list[CapacityChange], absences: list[_Absence]) -> list[HostEvent]:
    events = list(_announcements(changes, host))
    for absence in _merged(absences):
        # A host that is not offered at the start is absent from before the beginning: nothing is taken back.
        if math.isfinite(absence.start_s):
            events.append(HostEvent(at_s=absence.start_s, host=host.name, action="reclaim", reason=absence.reason))
        if math.isfinite(absence.end_s):
            events.append(HostEvent(at_s=absence.end_s, host=host.name, action="offer", reason=absence.reason))
    return sorted(events, key=lambda event: event.at_s)


def _planned_absences(changes: list[CapacityChange], host: Host) -> Iterator[_Absence]:
    """Absences of the written timeline; an offer ends each that is under way."""
    offers = sorted(change.at_s for change in changes if change.action == "offer")
    starts = [] if host.offered_at_start else [_Absence(-math.inf, math.inf, "")]
    for change in changes:
        if change.action == "reclaim":
            length_s = math.inf if change.duration_s is None else change.duration_s
            starts.append(_Absence(change.at_s, change.at_s + length_s, change.reason))
    for absence in starts:
        end_s = min((at_s for at_s in offers if at_s > absence.start_s), default=math.inf)
        yield _Absence(absence.start_s, min(absence.end_s, end_s), absence.reason)


def _random_absences(scenario: Scenario, reclaims: RandomReclaims, index: int) -> Iterator[_Absence]:
    """Poisson arrivals of reclaims on one host, drawn from a stream of its own: other hosts do not move it."""
    if reclaims.per_host_per_minute == 0.0:
        return
    rng = np.random.default_rng([scenario.seed, _RECLAIM_STREAM, index])
    at_s = 0.0
    while True:
        at_s += rng.exponential(60.0 / reclaims.per_host_per_minute)
        if at_s >= scenario.duration_s:
            return
        yield _Absence(at_s, at_s + rng.exponential(reclaims.mean_duration_s), reclaims.reason)


def _announcements(changes: list[CapacityChange], host: Host) -> Iterator[HostEvent]:
    for change in changes:
        if change.action == "notice":
            ahead_s = change.duration_s or 0.0
            yield HostEvent(at_s=change.at_s, host=host.name, action="notice", reason=change.reason, ahead_s=ahead_s)
        elif change.action == "update":
            units = host.units if change.units is None else change.units
            yield HostEvent(at_s=change.at_s, host=host.name, action="update", reason=change.reason, units=units)
            if change.duration_s is not None:
                yield HostEvent(
                    at_s=change.at_s + change.duration_s,
                    host=host.name,
                    action="update",
                    reason=change.reason,
                    units=host.units,
                )


def _merged(absences: list[_Absence]) -> list[_Absence]:
    """Union of absences in order of time; the reason is that of the first of each."""
    merged: list[_Absence] = []
    for absence in sorted(absences, key=lambda each: each.start_s):
        if merged and absence.start_s <= merged[-1].end_s:
            last = merged[-1]
            merged[-1] = _Absence(last.start_s, max(last.end_s, absence.end_s), last.reason)
        else:
            merged.append(absence)
    return merged
