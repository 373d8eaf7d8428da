"""Scenarios as TOML files: read strictly, so that a misspelt key or a value out of range is named, not ignored."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any, cast, get_args

from ops.simulator.files.frozen import SUFFIX as FROZEN_SUFFIX
from ops.simulator.files.frozen import read_frozen
from ops.simulator.files.in_scenario import wanted_arrivals, wanted_capacity, wanted_pairs
from ops.simulator.files.wanted import WantedFiles
from ops.simulator.scenario_levers import lever_limits
from ops.simulator.scenario_model import (
    DEMO_TIME,
    ArmShares,
    ArrivalProcess,
    Arrivals,
    CapacityAction,
    CapacityChange,
    Cell,
    Host,
    OutcomeSettings,
    Processes,
    RandomReclaims,
    Requests,
    Scenario,
)
from ops.simulator.scenario_twin import twin_settings
from ops.simulator.toml_table import ScenarioError, Table
from ops.simulator.world import WorldConfig
from ranking.router.arms import DEFAULT_ARMS
from ranking.router.experiment import Experiment
from schemas.records import CellLimits
from schemas.records.fields import IdleCause, UnusableReason
from schemas.settings import TimeSettings

__all__ = ["Scenario", "ScenarioError", "built_in_scenarios", "load_scenario", "parse_scenario"]

_CELL_NAME = r"[a-z0-9][a-z0-9._-]{0,127}"
# Of hosts and accelerators: they name folders and gate files.
_FILE_NAME = r"[a-z0-9][a-z0-9._-]{0,99}"
_BUILT_IN = files("ops.simulator") / "scenarios"
_DAY_S = 86_400.0


def built_in_scenarios() -> tuple[str, ...]:
    """Names of the scenarios that come with the package."""
    return tuple(
        sorted(entry.name.removesuffix(".toml") for entry in _BUILT_IN.iterdir() if entry.name.endswith(".toml"))
    )


def load_scenario(name_or_path: str) -> Scenario:
    """A built-in scenario by name, one from a TOML file, or a frozen one; raises ScenarioError naming file and key."""
    if name_or_path.endswith(FROZEN_SUFFIX):
        return read_frozen(Path(name_or_path))
    if "/" not in name_or_path and not name_or_path.endswith(".toml"):
        names = built_in_scenarios()
        if name_or_path not in names:
            raise ScenarioError(name_or_path, "", f"no such scenario; built in are {', '.join(names)}; or give a .toml")
        return parse_scenario((_BUILT_IN / f"{name_or_path}.toml").read_text(encoding="utf-8"), file=name_or_path)
    try:
        text = Path(name_or_path).read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(name_or_path, "", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScenarioError(name_or_path, "", "is not UTF-8 text") from None
    return parse_scenario(text, file=name_or_path)


def parse_scenario(text: str, *, file: str) -> Scenario:
    """The scenario in a TOML text; raises ScenarioError naming ``file`` and the key at fault."""
    try:
        data: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(file, "", f"is not TOML: {error}") from None
    root = Table(data, file=file)
    folder = Path(file).parent
    cells = _cells(root)
    capacity_file = wanted_capacity(root, folder)
    hosts = _hosts(root, cells)
    arrivals_table, requests_table = root.table("arrivals"), root.table("requests")
    is_file = arrivals_table.text("process", default="poisson") == "file"
    wanted_files = WantedFiles(
        arrivals=wanted_arrivals(arrivals_table, folder, is_file=is_file),
        capacity=capacity_file,
        pairs=wanted_pairs(requests_table, folder),
    )
    duration_s = root.number("duration_s", at_least=1.0, at_most=_DAY_S)
    scenario = Scenario(
        name=root.text("name", pattern=_FILE_NAME),
        description=root.text("description", default=""),
        seed=root.count("seed", at_least=0, at_most=2**32 - 1),
        warm_up_s=root.number("warm_up_s", at_least=0.0, at_most=3_600.0),
        duration_s=duration_s,
        cells=cells,
        hosts=hosts,
        arrivals=_arrivals(arrivals_table),
        requests=_requests(requests_table, cells),
        capacity_changes=tuple(_change(table, hosts, duration_s) for table in root.tables("capacity_changes")),
        random_reclaims=_random_reclaims(root, hosts),
        outcomes=_outcomes(root.table("outcomes")),
        processes=_processes(root.table("processes"), hosts, has_hosts_later=capacity_file is not None),
        time=_time(root.table("time")),
        arms=_arms(root.table("arms")) if "arms" in root else None,
        twin=twin_settings(root),
        wanted_files=wanted_files,
    )
    root.finish()
    return scenario


def _cells(root: Table) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for table in root.tables("cells"):
        name = table.text("name", pattern=_CELL_NAME)
        if name in [cell.name for cell in cells]:
            table.fail("name", f"{name!r} stands twice")
        base = table.count("base_candidates", at_least=1, at_most=4_096)
        cells.append(
            Cell(
                name=name,
                limits=CellLimits(
                    base_candidates=base,
                    max_candidates=table.count("max_candidates", at_least=base, at_most=4_096),
                    latency_limit_ms=table.number("latency_limit_ms", at_least=1.0, at_most=60_000.0),
                    rise_share=table.number("rise_share", at_least=0.001, at_most=1.0, default=0.1),
                    shed_allowance=table.number("shed_allowance", at_least=0.0, at_most=1.0, default=0.01),
                    units_per_unit_s=table.number("units_per_unit_s", at_least=1.0, at_most=1e9, default=50_000.0),
                    utilisation=table.number("utilisation", at_least=0.01, at_most=1.0, default=0.7),
                    **lever_limits(table),
                ),
                traffic_share=table.number("traffic_share", at_least=0.001, at_most=1e6, default=1.0),
            )
        )
        table.finish()
    if not cells:
        root.fail("cells", "at least one is wanted")
    return tuple(cells)


def _hosts(root: Table, cells: tuple[Cell, ...]) -> tuple[Host, ...]:
    hosts: dict[str, Host] = {}
    for table in root.tables("hosts"):
        name = table.text("name", pattern=_FILE_NAME)
        copies = table.count("copies", at_least=1, at_most=10_000, default=1)
        names = [name] if copies == 1 else [f"{name}-{number}" for number in range(1, copies + 1)]
        for each in names:
            if each in hosts:
                table.fail("name", f"{each!r} stands twice")
        host = Host(
            name=name,
            cell=table.text("cell", choices=[cell.name for cell in cells]),
            accelerator=table.text("accelerator", pattern=_FILE_NAME),
            units=table.number("units", at_least=0.0, at_most=1e6),
            cpu_cores=table.number("cpu_cores", at_least=0.0, at_most=1e6),
            memory_bytes=table.count("memory_bytes", at_least=0, at_most=1 << 50),
            provider=table.text("provider", default="own"),
            idle_cause=cast(IdleCause, table.text("idle_cause", choices=get_args(IdleCause))),
            unusable=cast("UnusableReason | None", table.optional_text("unusable", choices=get_args(UnusableReason))),
            offered_at_start=table.flag("offered_at_start", default=True),
        )
        hosts |= {each: replace(host, name=each) for each in names}
        table.finish()
    return tuple(hosts.values())


def _arrivals(table: Table) -> Arrivals:
    process = cast(ArrivalProcess, table.text("process", choices=get_args(ArrivalProcess), default="poisson"))
    if process != "bursty":
        for key in ("burst_factor", "mean_burst_s", "mean_quiet_s"):
            if key in table:
                table.fail(key, f"belongs to bursty arrivals, these are {process}")
    arrivals = Arrivals(
        process=process,
        rate_per_s=table.number("rate_per_s", at_least=0.01, at_most=100_000.0),
        burst_factor=table.number("burst_factor", at_least=1.0, at_most=1_000.0, default=4.0),
        mean_burst_s=table.number("mean_burst_s", at_least=0.01, at_most=3_600.0, default=2.0),
        mean_quiet_s=table.number("mean_quiet_s", at_least=0.01, at_most=3_600.0, default=8.0),
    )
    table.finish()
    return arrivals


def _requests(table: Table, cells: tuple[Cell, ...]) -> Requests:
    most_base = max(cell.limits.base_candidates for cell in cells)
    most = min(4_096, WorldConfig().num_ads)
    requests = Requests(
        num_candidates=table.count("num_candidates", at_least=most_base, at_most=most),
        num_results=table.count("num_results", at_least=1, at_most=most_base, default=min(8, most_base)),
        deadline_ms=table.count("deadline_ms", at_least=1, at_most=60_000),
    )
    table.finish()
    return requests


def _change(table: Table, hosts: tuple[Host, ...], duration_s: float) -> CapacityChange:
    action = cast(CapacityAction, table.text("action", choices=get_args(CapacityAction)))
    change = CapacityChange(
        at_s=table.number("at_s", at_least=0.0, at_most=duration_s),
        hosts=_glob(table, hosts),
        action=action,
        reason=table.text("reason", default=""),
        duration_s=table.optional_number("duration_s", at_least=0.01, at_most=_DAY_S),
        units=table.optional_number("units", at_least=0.0, at_most=1e6),
    )
    if (change.units is not None) != (action == "update"):
        table.fail("units", f"is wanted by update and by no other action; this is {action}")
    if action == "offer" and change.duration_s is not None:
        table.fail("duration_s", "an offer lasts until a reclaim")
    if action == "notice" and change.duration_s is None:
        table.fail("duration_s", "missing; a notice says how long before the reclaim it comes")
    table.finish()
    return change


def _random_reclaims(root: Table, hosts: tuple[Host, ...]) -> RandomReclaims | None:
    table = root.table("random_reclaims")
    if "random_reclaims" not in root:
        return None
    reclaims = RandomReclaims(
        hosts=_glob(table, hosts, default="*"),
        per_host_per_minute=table.number("per_host_per_minute", at_least=0.0, at_most=600.0),
        mean_duration_s=table.number("mean_duration_s", at_least=0.01, at_most=_DAY_S),
        reason=table.text("reason", default="owner_demand"),
    )
    table.finish()
    return reclaims


def _glob(table: Table, hosts: tuple[Host, ...], *, default: str | None = None) -> str:
    glob = table.text("hosts", default=default)
    if not any(fnmatchcase(host.name, glob) for host in hosts):
        table.fail("hosts", f"{glob!r} matches none of the hosts")
    return glob


def _outcomes(table: Table) -> OutcomeSettings:
    settings = OutcomeSettings(delay_scale=table.number("delay_scale", at_least=0.0, at_most=1_000.0, default=1.0))
    table.finish()
    return settings


def _arms(table: Table) -> ArmShares:
    def share(name: str, default: float) -> float:
        return table.number(name, at_least=0.0, at_most=1.0, default=default)

    arms = ArmShares(
        holdout_share=share("holdout_share", DEFAULT_ARMS.holdout_share),
        rma_share=share("rma_share", DEFAULT_ARMS.rma_share),
        sbm_share=share("sbm_share", DEFAULT_ARMS.sbm_share),
        explored_share=share("explored_share", Experiment.explored_share),
    )
    table.finish()
    return arms


def _processes(table: Table, hosts: tuple[Host, ...], *, has_hosts_later: bool) -> Processes:
    processes = Processes(
        routers=table.count("routers", at_least=1, at_most=64, default=1),
        dedicated_rankers=table.count("dedicated_rankers", at_least=1, at_most=64, default=2),
        opportunistic_rankers=table.count("opportunistic_rankers", at_least=0, at_most=64, default=0),
        powerful_rankers=table.count("powerful_rankers", at_least=0, at_most=64, default=0),
    )
    for name in ("opportunistic_rankers", "powerful_rankers"):
        if getattr(processes, name) and not has_hosts_later and all(host.unusable is not None for host in hosts):
            table.fail(name, "there is no usable host to run them on")
    table.finish()
    return processes


def _time(table: Table) -> TimeSettings:
    given = {
        setting.name: table.count(
            setting.name, at_least=1, at_most=86_400_000, default=getattr(DEMO_TIME, setting.name)
        )
        for setting in fields(TimeSettings)
    }
    table.finish()
    if given["host_ttl_ms"] < 2 * given["heartbeat_ms"]:
        table.fail("host_ttl_ms", "must be at least two heartbeats, or one lost record loses a host")
    return TimeSettings(**given)
