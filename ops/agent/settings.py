"""The agent's configuration: TOML, read strictly, every refusal in one line that names the setting."""

import socket
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import time
from functools import partial
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import UNSET

from ops.agent.claim_files import LeaseFile, NoticeFile
from ops.agent.policy import Needs, PolicySettings
from ops.agent.schedule import DAYS, Scheduled
from ops.agent.settings_file import Document, NeedsTable, PolicyTable, ScheduleTable, SourcesTable
from ops.agent.watched_hosts import CPU, ClaimSettings
from ops.times import parse_duration_s
from schemas.gate import runtime_folder

_GIB: Final = 1 << 30
# An owner's service hardly ever leaves all cores alone; what is offered is what it leaves.
_CPU_DEFAULTS: Final = PolicyTable(idle_below=0.5, busy_above=0.8)
# More is in reserve than any host has.
_NEVER_OFFERED: Final = PolicyTable(reserve_units=1e12)
_LABELS: Final = {"intertidal.dev/idle-cause": "idle_cause", "intertidal.dev/provider": "provider"}


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """What one agent is told. ``state_dir`` None: no spool on disk."""

    cell: str
    host: str
    runtime_dir: Path
    state_dir: Path | None
    spool_bytes: int
    lease_s: float
    drain_limit_s: float
    hold_s: float
    sources: SourcesTable
    claims: ClaimSettings
    leases: tuple[LeaseFile, ...]
    notices: tuple[NoticeFile, ...]
    schedule: tuple[Scheduled, ...]
    policy_layers: tuple[PolicyTable, ...]
    kinds: Mapping[str, PolicyTable]
    pools: Mapping[str, PolicyTable]

    def policy_of(self, pool: str, accelerator: str) -> PolicySettings:
        """Settings of a pool: defaults, [policy], labels, [kinds.ACCELERATOR], [pools.POOL], the later ones first."""
        layers = [_CPU_DEFAULTS] if accelerator == CPU and not self._sets_limits else []
        layers += self.policy_layers
        layers += [self.kinds[accelerator]] if accelerator in self.kinds else []
        layers += [self.pools[pool]] if pool in self.pools else []
        if pool == CPU and self.sources.host is not None and not self.sources.host.offer:
            layers.append(_NEVER_OFFERED)
        return _policy(layers)

    @property
    def _sets_limits(self) -> bool:
        """Whether [policy] names one of the limits of use: they are a pair, and other defaults would break it up."""
        return any(each.idle_below is not UNSET or each.busy_above is not UNSET for each in self.policy_layers)


def load_settings(path: Path) -> AgentSettings:
    """Settings in a file; raises ValueError naming the file and the setting."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: no UTF-8 text: {error.reason} at byte {error.start}") from None
    try:
        return settings_of(text, folder=path.parent)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def settings_of(text: str, *, folder: Path = Path()) -> AgentSettings:
    """Settings in a text; relative paths are from ``folder``. Raises ValueError naming the setting."""
    try:
        document = msgspec.convert(tomllib.loads(text), Document)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"no TOML: {error}") from None
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `")
        name = where.rstrip("`").removeprefix("$").lstrip(".").removeprefix("[...].")
        raise ValueError(f"{name}: {message}" if name else message) from None
    if not any(getattr(document.sources, name) for name in SourcesTable.__struct_fields__):
        raise ValueError(f"sources: at least one of {', '.join(SourcesTable.__struct_fields__)} is needed")

    def placed(given: str) -> Path:
        return folder / given

    settings = AgentSettings(
        cell=document.cell,
        host=document.host or socket.gethostname(),
        runtime_dir=runtime_folder() if document.runtime_dir is None else placed(document.runtime_dir),
        state_dir=None if document.state_dir is None else placed(document.state_dir),
        spool_bytes=document.spool_mib << 20,
        lease_s=document.lease_s,
        drain_limit_s=document.drain_limit_s,
        hold_s=_seconds("reclaim.hold", document.reclaim.hold),
        sources=_placed_sources(document.sources, folder),
        claims=ClaimSettings(
            announce_ms=round(_seconds("reclaim.announce", document.reclaim.announce) * 1e3),
            early_ms=round(_seconds("reclaim.early", document.reclaim.early) * 1e3),
        ),
        leases=tuple(
            LeaseFile(
                path=placed(lease.path),
                ttl_s=None if lease.ttl is None else _seconds(f"leases[{index}].ttl", lease.ttl),
                pools=tuple(lease.pools),
            )
            for index, lease in enumerate(document.leases)
        ),
        notices=tuple(NoticeFile(path=placed(each.path), pools=tuple(each.pools)) for each in document.notices),
        schedule=tuple(_scheduled(f"schedule[{index}]", each) for index, each in enumerate(document.schedule)),
        policy_layers=(document.policy, _labels(document.labels_file, folder)),
        kinds=document.kinds,
        pools=document.pools,
    )
    _check_policies(settings)
    return settings


def _check_policies(settings: AgentSettings) -> None:
    """Refuse at the start what would be refused when a pool is first seen, as far as its kind is told by its name."""
    sources = settings.sources
    every_s = [
        table.every_s for name in SourcesTable.__struct_fields__ if (table := getattr(sources, name)) is not None
    ]
    cpu_every_s = every_s if sources.host is None else [sources.host.every_s]
    _check("policy", partial(settings.policy_of, "", ""), max(every_s))
    if CPU not in settings.kinds and CPU not in settings.pools:
        _check("policy, of cores", partial(settings.policy_of, "", CPU), max(cpu_every_s))
    for kind in settings.kinds:
        _check(f"kinds.{kind}", partial(settings.policy_of, "", kind), max(cpu_every_s if kind == CPU else every_s))
    for pool in settings.pools:
        kinds = [CPU] if pool == CPU else ["", *(kind for kind in settings.kinds if pool.startswith(f"{kind}-"))]
        for kind in kinds:
            # It may be any source's.
            _check(f"pools.{pool}", partial(settings.policy_of, pool, kind), min(every_s))


def _check(name: str, make: Callable[[], PolicySettings], every_s: float) -> None:
    try:
        policy = make()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if policy.stale_after_s < 2 * every_s:
        raise ValueError(
            f"{name}: stale_after_s ({policy.stale_after_s:g}) must be twice the every_s of its source ({every_s:g}) "
            "at least"
        )


def _policy(layers: list[PolicyTable]) -> PolicySettings:
    given: dict[str, Any] = {}
    for layer in layers:
        given |= {name: value for name in PolicyTable.__struct_fields__ if (value := getattr(layer, name)) is not UNSET}
    if "memory_gib" in given:
        given["memory_bytes"] = round(given.pop("memory_gib") * _GIB)
    if "needs" in given:
        needs: NeedsTable = given.pop("needs")
        given["needs"] = Needs(
            device_memory_bytes=round(needs.device_memory_gib * _GIB),
            cpu_cores=needs.cpu_cores,
            lasts_s=needs.lasts_s,
            accelerators=tuple(needs.accelerators),
        )
    return PolicySettings(**given)


def _placed_sources(sources: SourcesTable, folder: Path) -> SourcesTable:
    placed = {
        name: msgspec.structs.replace(table, path=str(folder / table.path))
        for name in ("static", "trace")
        if (table := getattr(sources, name)) is not None
    }
    return msgspec.structs.replace(sources, **placed)


def _scheduled(where: str, entry: ScheduleTable) -> Scheduled:
    for_s = _seconds(f"{where}.for", entry.for_)
    if (entry.at is None) == (entry.daily is None):
        raise ValueError(f"{where}: one of at and daily is needed")
    if entry.at is not None:
        if entry.at.tzinfo is None:
            raise ValueError(f"{where}.at: has no zone; end it in Z for UTC")
        at_ms = round(entry.at.timestamp() * 1e3)
        return Scheduled(name=entry.name, for_s=for_s, at_ms=at_ms, pools=tuple(entry.pools))
    assert entry.daily is not None
    try:
        daily_at = time.fromisoformat(entry.daily)
    except ValueError:
        raise ValueError(f"{where}.daily: {entry.daily!r} is no time of day such as 07:30") from None
    days = DAYS if entry.days is None else tuple(entry.days)
    if not days or not set(days) <= set(DAYS):
        raise ValueError(f"{where}.days: some of {', '.join(DAYS)} are wanted")
    try:
        zone = ZoneInfo(entry.zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"{where}.zone: this machine does not know the zone {entry.zone!r}") from None
    return Scheduled(
        name=entry.name,
        for_s=for_s,
        daily_at=daily_at,
        days=days,
        zone=zone,
        pools=tuple(entry.pools),
    )


def _seconds(name: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _labels(given: str | None, folder: Path) -> PolicyTable:
    """Idle cause and provider from a file of ``key="value"`` lines, as Kubernetes mounts a pod's labels."""
    if given is None:
        return PolicyTable()
    path = folder / given
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"labels_file: {path}: {error.strerror}") from None
    found: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() in _LABELS:
            found[_LABELS[key.strip()]] = value.strip().strip('"')
    try:
        return msgspec.convert(found, PolicyTable)
    except msgspec.ValidationError as error:
        raise ValueError(f"labels_file: {path}: {error}") from None
