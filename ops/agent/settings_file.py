"""The tables of the agent's TOML file, as they may stand there: types and bounds, nothing else."""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from ops.agent.readings import PoolName
from schemas.records.fields import CellName, IdleCause, Label, Name, Quantity, Share

Seconds = Annotated[float, Meta(ge=0.0, le=86_400.0 * 31)]
Interval = Annotated[float, Meta(ge=0.05, le=3_600.0)]
# With a device's number behind it, it has to be a pool's name.
Kind = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,79}\Z")]


class NeedsTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[policy.needs]: what optional work needs of each unit."""

    device_memory_gib: Quantity = 0.0
    cpu_cores: Quantity = 0.0
    lasts_s: Seconds = 0.0
    accelerators: list[Name] = []


class PolicyTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[policy], [kinds.KIND] and [pools.POOL]: the later of them overrides what it names."""

    idle_for_s: Seconds | UnsetType = UNSET
    idle_below: Share | UnsetType = UNSET
    busy_above: Share | UnsetType = UNSET
    pressure_above: Share | UnsetType = UNSET
    pressure_below: Share | UnsetType = UNSET
    stale_after_s: Seconds | UnsetType = UNSET
    reserve_units: Quantity | UnsetType = UNSET
    step_units: Annotated[float, Meta(ge=0.01, le=1e6)] | UnsetType = UNSET
    idle_cause: IdleCause | UnsetType = UNSET
    provider: Label | UnsetType = UNSET
    cpu_cores: Quantity | UnsetType = UNSET
    memory_gib: Quantity | UnsetType = UNSET
    needs: NeedsTable | UnsetType = UNSET


class HostSourceTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[sources.host]: the host's cores, memory and pressure-stall information.

    ``pressures`` are those that count; without ``owner_cgroup`` they are of the whole host, optional work included.
    """

    every_s: Interval = 1.0
    offer: bool = True
    owner_cgroup: str = ""
    pressures: list[str] | None = None


class NvmlTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[sources.nvml]: NVIDIA devices. ``kinds`` gives devices another kind than their name's."""

    every_s: Interval = 1.0
    kinds: dict[str, Kind] = {}


class FileTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[sources.static]: a file of readings, read again when it changes."""

    path: str
    every_s: Interval = 1.0


class TraceTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[sources.trace]: readings with their times, played from the agent's start on."""

    path: str
    every_s: Interval = 1.0
    speed: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
    loop: bool = False


class CommandTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[sources.command]: a program of one's own that prints readings."""

    argv: Annotated[list[str], Meta(min_length=1)]
    every_s: Interval = 1.0


class SourcesTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[sources]: at least one of them."""

    host: HostSourceTable | None = None
    nvml: NvmlTable | None = None
    static: FileTable | None = None
    trace: TraceTable | None = None
    command: CommandTable | None = None


class LeaseTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[[leases]]"""

    path: str
    ttl: str | None = None
    pools: list[PoolName] = []


class NoticeTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[[notices]]"""

    path: str
    pools: list[PoolName] = []


class ScheduleTable(Struct, frozen=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """[[schedule]]: ``at`` once, or ``daily`` on ``days`` by the clock of ``zone``."""

    name: Label
    for_: str
    at: datetime | None = None
    daily: str | None = None
    days: list[str] | None = None
    zone: str = "UTC"
    pools: list[PoolName] = []


class ReclaimTable(Struct, frozen=True, forbid_unknown_fields=True):
    """[reclaim]: ``hold`` is how long a reclaim by signal or command keeps the capacity back at least."""

    hold: str = "5m"
    announce: str = "1h"
    early: str = "5s"


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    cell: CellName
    sources: SourcesTable
    host: Name | None = None
    runtime_dir: str | None = None
    state_dir: str | None = None
    spool_mib: Annotated[int, Meta(ge=1, le=65_536)] = 64
    lease_s: Annotated[float, Meta(ge=0.2, le=60.0)] = 2.0
    drain_limit_s: Annotated[float, Meta(gt=0.0, le=3_600.0)] = 30.0
    labels_file: str | None = None
    policy: PolicyTable = PolicyTable()
    kinds: dict[Name, PolicyTable] = {}
    pools: dict[PoolName, PolicyTable] = {}
    reclaim: ReclaimTable = ReclaimTable()
    leases: list[LeaseTable] = []
    notices: list[NoticeTable] = []
    schedule: list[ScheduleTable] = []
