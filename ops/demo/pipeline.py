"""One pipeline on a broker, under a supervisor: topics, cells, parts, traffic."""

import json
import os
import secrets
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from ops.cells import declare
from ops.demo.parts import Layout, agents_part, callers_part, serving_parts
from ops.demo.supervisor import PartCommand, PartFailed, Supervisor
from ops.simulator.scenario import Scenario
from schemas.attribution_keys import KEY_BYTES, KEYS_ENV, write_keys
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, Config, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.topics import CONTROL_CELLS, Namespace

_READY_TIMEOUT_S: Final = 90.0
# Between starting the traffic's processes and the first request: they import and connect meanwhile.
_TRAFFIC_LEAD_MS: Final = 4_000


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """When the requests of a run arrive, milliseconds since the epoch."""

    start_ms: int
    warm_up_end_ms: int
    end_ms: int


class Pipeline:
    """Starts and stops the parts of one scenario; a context manager that stops everything on the way out."""

    def __init__(self, scenario: Scenario, config: Config, namespace: Namespace, *, layout: Layout) -> None:
        self.scenario = scenario
        self.namespace = namespace
        self._config = config
        self._layout = layout
        self._environ = {
            **os.environ,
            **scenario.time.to_env(),
            **scenario.measurement.to_env(),
            KEYS_ENV: str(layout.keys_path),
            BOOTSTRAP_ENV: str(config["bootstrap.servers"]),
            NAMESPACE_ENV: namespace.prefix,
        }
        log_dir = layout.run_dir / "logs"
        log_dir.mkdir(parents=True, exist_ok=True)
        self.supervisor = Supervisor(log_dir)
        self._health_ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Create topics and a key of attribution tokens, and declare the cells, in force from the running window on."""
        TopicAdmin(self._config).create(self.namespace)
        if not self._layout.keys_path.exists():
            write_keys(self._layout.keys_path, [(1, secrets.token_bytes(KEY_BYTES))])
        if self.scenario.arms is not None:
            self._layout.experiment_path.write_text(self.scenario.arms.to_toml(), encoding="utf-8")
        window_ms = self.scenario.time.window_ms
        with DurableProducer(producer_config(self._config)) as producer:
            for cell in self.scenario.cells:
                declaration = declare(
                    None,
                    cell.name,
                    limits=cell.limits,
                    from_window=now_ms() // window_ms,
                    window_ms=window_ms,
                    providers=sorted({host.provider for host in self.scenario.hosts if host.cell == cell.name}),
                )
                producer.send(self.namespace.topic(CONTROL_CELLS), declaration, key=cell.name.encode())

    def start(self, *, waiting: Callable[[str], None] = lambda _: None) -> None:
        """Start every part that serves and return once each is ready; raises PartFailed.

        ``waiting`` is told what is still awaited.
        """
        for command, port in serving_parts(self.scenario, self._layout, self._environ, _free_ports()):
            self.start_part(command, port=port)
        self.wait_until_ready(waiting=waiting)

    def start_part(self, command: PartCommand, *, port: int) -> None:
        """Start one part, or one that is over again; its health answers at ``port``."""
        self._health_ports[command.name] = port
        self.supervisor.start(command)

    def wait_until_ready(self, *, waiting: Callable[[str], None] = lambda _: None) -> None:
        """Return once every part that serves is ready; raises PartFailed. ``waiting`` is told what is still awaited."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        reasons = dict.fromkeys(self._health_ports, "not started")
        while reasons := {name: why for name in reasons if (why := self._awaited(name)) is not None}:
            self.supervisor.check()
            if time.monotonic() > deadline:
                name, why = next(iter(reasons.items()))
                raise PartFailed(
                    f"{name} is not ready after {_READY_TIMEOUT_S:g} s ({why}); log: {self.supervisor.log_path(name)}"
                )
            waiting(", ".join(reasons))
            time.sleep(0.1)

    def start_traffic(self) -> Traffic:
        """Start agents and callers on one timeline."""
        start_ms = now_ms() + _TRAFFIC_LEAD_MS
        self.supervisor.start(agents_part(self._layout, self._environ, start_ms=start_ms))
        self.supervisor.start(callers_part(self._layout, self._environ, start_ms=start_ms))
        warm_up_end_ms = start_ms + round(self.scenario.warm_up_s * 1_000)
        return Traffic(
            start_ms=start_ms,
            warm_up_end_ms=warm_up_end_ms,
            end_ms=warm_up_end_ms + round(self.scenario.duration_s * 1_000),
        )

    def traffic_over(self) -> bool:
        """Whether the callers are done; raises PartFailed when they failed."""
        exit_code = self.supervisor.exit_code("callers")
        if exit_code not in (None, 0):
            raise PartFailed(f"callers ended with exit code {exit_code}; log: {self.supervisor.log_path('callers')}")
        return exit_code is not None

    @property
    def serving(self) -> list[str]:
        """The parts whose health can be asked."""
        return list(self._health_ports)

    def not_ready(self, name: str) -> dict[str, str]:
        """Why a part is not ready, in its own words by check; empty when it is."""
        url = f"http://127.0.0.1:{self._health_ports[name]}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=2.0):
                return {}
        except urllib.error.HTTPError as error:
            return _reasons(error)
        except OSError:
            return {"health": "does not answer yet"}

    def _awaited(self, name: str) -> str | None:
        # Gates come with the agents, which start with the traffic: a ranker that lacks nothing else can begin.
        reasons = {check: why for check, why in self.not_ready(name).items() if check != "gate"}
        return ", ".join(reasons.values()) or None

    def stop(self) -> list[str]:
        """Stop the traffic, then the parts; returns those that had to be killed."""
        traffic = [name for name in ("callers", "agents") if self.supervisor.started(name)]
        return [*self.supervisor.stop(traffic), *self.supervisor.stop()]


def now_ms() -> int:
    """This machine's time, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _reasons(answer: urllib.error.HTTPError) -> dict[str, str]:
    try:
        return {str(check): str(why) for check, why in json.loads(answer.read())["reasons"].items()}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        # A part that is busy starting may take longer over its answer than is waited for.
        return {"health": f"does not answer in full ({error})"}


def _free_ports() -> Iterator[int]:
    # Held until the generator is gone, so that no two parts are given the same one.
    while True:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            yield int(held.getsockname()[1])
