"""The agent of a host, from its configuration to its end.

Three threads: the loop here looks at claims and flips gates, and touches neither broker nor driver; one reads sources
(`sampler`), one sends (`outbox`). On the way out

1. every gate is closed and the reclaim told, 2. rankers are waited for and their timings told, 3. the gate files are
let go, 4. what the broker has acknowledged in time is done, the rest stays in the spool.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.agent.claims import Claims
from ops.agent.clock_watch import ClockWatch
from ops.agent.gates import HostGates
from ops.agent.host_agent import HostAgent, HostAgentSettings
from ops.agent.host_reporter import HostReporter
from ops.agent.metered import AgentMeters, MeteredGates, sending_problem
from ops.agent.moments import Now, system_now
from ops.agent.notices import PATH, Notices
from ops.agent.outbox import Outbox
from ops.agent.readings import Reading
from ops.agent.runner import RENEWALS_PER_LEASE, STOP_DRAIN_S, AgentRunner
from ops.agent.sampler import Sampler
from ops.agent.settings import AgentSettings
from ops.agent.sources.open import open_sources
from ops.agent.spool import Spool
from ops.agent.wake import Wake
from ops.agent.watched_hosts import WatchedHost, WatchedHosts
from ops.telemetry.declared import METRICS
from ops.telemetry.health import HealthServer
from ops.telemetry.logs import get_log
from ops.telemetry.metrics import Metrics
from ops.telemetry.stop_signals import on_stop_signals
from schemas.gate import GateError
from schemas.kafka.config import client_config
from schemas.kafka.registry_api import registry_settings
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY, Namespace

_LOOK_AT_CLAIMS_S: Final = 0.5
_ADMIN_S: Final = 1.0
_STOP_SENDING_S: Final = 5.0
_LOOP_HANGS_S: Final = 10.0

_LOG = get_log(__name__)


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """``copies``: that many hosts of one name with a number behind it, which all see the same; for load tests."""

    namespace: Namespace
    time: TimeSettings
    settings: AgentSettings
    copies: int = 1
    health_port: int = 0

    def folders(self) -> dict[str, Path]:
        """Each host and its runtime folder."""
        base = self.settings.runtime_dir
        if self.copies == 1:
            return {self.settings.host: base}
        names = [f"{self.settings.host}-{number:04}" for number in range(1, self.copies + 1)]
        return {name: base / name for name in names}


def run(options: AgentOptions, *, stop: threading.Event | None = None) -> None:
    """Watch, offer and give back until SIGTERM or SIGINT (or ``stop``).

    Raises ValueError for a wrong setting, GateError for a gate that cannot be taken, SpoolError for a spool, OSError
    for a port or folder. A broker that is away is no error: records wait.
    """
    stopped = stop or threading.Event()
    wake = Wake()
    try:
        with _signals(wake) as signals:
            _Agent(options, wake).run(stopped, signals)
    finally:
        wake.close()


@dataclass
class _Signals:
    """What handlers of signals have noted. Plain flags: a handler may interrupt itself, which no Event's lock bears."""

    is_stop: bool = False
    is_reclaim: bool = False


class _Agent:
    def __init__(self, options: AgentOptions, wake: Wake) -> None:
        settings = options.settings
        self._options = options
        self._wake = wake
        self._folders = options.folders()
        self._topic = options.namespace.topic(FLEET_CAPACITY)
        now = system_now()
        self._hosts = WatchedHosts(
            {name: _watched(options, name, index, now) for index, name in enumerate(self._folders)}
        )
        self._clock = ClockWatch(now)
        self._num_clock_jumps = 0
        self._gates = HostGates(lease_s=settings.lease_s)
        self._metrics = Metrics(METRICS)
        self._metered = MeteredGates(self._gates, self._metrics)
        self._pools: dict[str, str | None] = {}
        self._notices = Notices(
            hold_s=settings.hold_s,
            now=system_now,
            wake=wake.set,
            known=self._known_pools,
            folder=settings.runtime_dir,
        )
        self._claims = Claims(settings, settings.runtime_dir)
        self._stepped_s = time.monotonic()

    def run(self, stopped: threading.Event, signals: _Signals) -> None:
        settings = self._options.settings
        # A wrong one is known now, while a registry that is away is no reason not to start.
        registry_settings()
        sampler = Sampler(open_sources(settings.sources), wake=self._wake.set)
        spool_folder = None if settings.state_dir is None else settings.state_dir / "spool"
        outbox = Outbox(
            Spool(spool_folder, limit_bytes=settings.spool_bytes), client_config("intertidal-agent"), self._topic
        )
        runner = AgentRunner(self._hosts, self._metered, outbox.put, clock=system_now)
        health = HealthServer(
            self._metrics,
            live={"loop": self._loop_problem, "sources": sampler.died, "outbox": outbox.died},
            ready={
                "broker": lambda: sending_problem(outbox.state, time.monotonic()),
                "sources": lambda: "; ".join(sampler.problems.values()) or None,
                "gates": lambda: "; ".join(filter(None, self._pools.values())) or None,
            },
            commands={PATH: self._notices.post},
            port=self._options.health_port,
        )
        try:
            with health:
                self._open_door()
                outbox.start()
                sampler.start()
                _LOG.info("started", cell=settings.cell, hosts=len(self._folders), health=health.url)
                runner.start()
                self._loop(runner, sampler, outbox, stopped, signals)
        finally:
            try:
                runner.stop(drain_s=STOP_DRAIN_S)  # 1, 2
            finally:
                self._gates.shutdown()  # 3
                sampler.close()
                outbox.close(timeout_s=_STOP_SENDING_S)  # 4
        if outbox.state.num_waiting:
            _LOG.warning("records are left in the spool", num_records=outbox.state.num_waiting)

    def _loop(
        self,
        runner: AgentRunner,
        sampler: Sampler,
        outbox: Outbox,
        stopped: threading.Event,
        signals: _Signals,
    ) -> None:
        meters = AgentMeters(self._metrics, self._topic)
        admin_at_s = 0.0
        while not (stopped.is_set() or signals.is_stop):
            now = system_now()
            self._note_clock(now)
            # Whatever woke us: claims first, readings next, gates at once.
            if signals.is_reclaim:
                signals.is_reclaim = False
                self._notices.signalled(now)
            self._hosts.claim(self._claims.look(now.wall_ms, self._notices.holds(now)), now)
            if readings := sampler.take():
                self._hosts.see(self._with_gates(readings), now)
            runner.step()
            self._stepped_s = time.monotonic()
            if self._stepped_s >= admin_at_s:
                admin_at_s = self._stepped_s + _ADMIN_S
                sampler.own_pids = self._gates.ranker_pids()
                meters.show(outbox.state, sampler.num_failures, self._num_clock_jumps)
            self._wake.wait(min(runner.wait_s(), _LOOK_AT_CLAIMS_S))

    def _with_gates(self, readings: list[Reading]) -> list[Reading]:
        """The readings whose pools have their gate; a gate that cannot be taken is a pool that is not offered."""
        kinds = {reading.pool: reading.accelerator for reading in readings}
        for pool in [reading.pool for reading in readings if self._pools.get(reading.pool, "") is not None]:
            try:
                # A pool whose settings contradict each other is found out before its gate is taken.
                self._options.settings.policy_of(pool, kinds[pool])
                for host, folder in self._folders.items():
                    self._metered.add(host, pool, folder)
            except (GateError, OSError, ValueError) as error:
                if self._pools.get(pool) != str(error):
                    _LOG.error("a pool is not offered: its gate cannot be had", pool=pool, error=str(error))
                self._pools[pool] = str(error)
            else:
                self._pools[pool] = None
        return [reading for reading in readings if self._pools[reading.pool] is None]

    def _known_pools(self) -> set[str]:
        """Pools seen so far, and those whose gates an earlier agent has left."""
        gates = self._options.settings.runtime_dir.glob("[!.]*.gate")
        return {*self._pools.copy(), *(path.name.removesuffix(".gate") for path in gates)}

    def _open_door(self) -> None:
        folder = self._options.settings.runtime_dir
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._wake.open_door(folder)
        except OSError as error:
            # Claims are looked at twice a second all the same.
            _LOG.warning("others cannot wake this agent", folder=str(folder), error=error.strerror)

    def _note_clock(self, now: Now) -> None:
        jumped_ms = self._clock.jumped_ms(now)
        if jumped_ms:
            self._num_clock_jumps += 1
            _LOG.warning("the wall clock jumped", by_ms=jumped_ms)

    def _loop_problem(self) -> str | None:
        age_s = time.monotonic() - self._stepped_s
        return f"the loop has not come round for {age_s:.0f} s" if age_s > _LOOP_HANGS_S else None


def _watched(options: AgentOptions, host: str, index: int, now: Now) -> WatchedHost:
    settings = options.settings
    heartbeat_ns = options.time.heartbeat_ms * 1_000_000
    agent = HostAgent(
        HostReporter(cell=settings.cell, host=host, epoch_ms=now.wall_ms),
        [],
        HostAgentSettings(
            heartbeat_ns=heartbeat_ns,
            renew_ns=round(settings.lease_s / RENEWALS_PER_LEASE * 1e9),
            drain_limit_ns=round(settings.drain_limit_s * 1e9),
            # A host says at once that it is there; those of one process take turns.
            phase_ns=heartbeat_ns * index // options.copies,
        ),
        now=now,
    )
    return WatchedHost(agent, settings.policy_of, settings.claims)


@contextmanager
def _signals(wake: Wake) -> Iterator[_Signals]:
    """What stop signals and SIGUSR1 note; both end the wait. In the main thread alone."""
    signals = _Signals()

    def stop() -> None:
        signals.is_stop = True
        wake.set()

    def reclaim(*_: object) -> None:
        signals.is_reclaim = True
        wake.set()

    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    with on_stop_signals(stop):
        before = signal.signal(signal.SIGUSR1, reclaim)
        try:
            yield signals
        finally:
            signal.signal(signal.SIGUSR1, before)
