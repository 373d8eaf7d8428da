"""For those who have an agent of their own: it says what is offered, this says it to Kafka as the contract wants it.

    with CapacityReporter(cell="us-east", host="gpu-17", spool_dir="/var/lib/my-agent/spool") as reporter:
        reporter.offer("h200", units=4, idle_cause="off_peak", cpu_cores=32, memory_bytes=64 << 30)
        while working:
            sleep(5)
            reporter.heartbeat()
        reporter.reclaim("h200", reason="launch")

Numbering, snapshots, keys, partitions, framing and the spool are done here; flipping gates is not.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from ops.agent.host_reporter import HostReporter, Kind
from ops.agent.moments import system_now
from ops.agent.outbox import Outbox, OutboxState
from ops.agent.spool import Spool
from schemas.avro import validate
from schemas.errors import RecordError
from schemas.framing import encode
from schemas.kafka.config import NAMESPACE_ENV, client_config
from schemas.records import CapacityEvent, Offer
from schemas.topics import FLEET_CAPACITY, Namespace

_SPOOL_BYTES: Final = 16 << 20
# As many offers of one host as ingest reads.
MAX_OFFERS: Final = 256


class CapacityReporter:
    """What one host offers, by pool. One thread at a time.

    The broker is that of ``KAFKA_BOOTSTRAP`` and ``KAFKA_CONFIG``. Records that it has not acknowledged wait in
    ``spool_dir``, or in memory without one; no method waits for it. Every method raises RecordError naming the field
    that no reader would believe, and then nothing is sent and nothing has changed.
    """

    def __init__(
        self,
        *,
        cell: str,
        host: str,
        spool_dir: str | Path | None = None,
        spool_bytes: int = _SPOOL_BYTES,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Raises ValueError for a wrong setting, SpoolError for a folder that cannot be used."""
        self._reporter = HostReporter(cell=cell, host=host, epoch_ms=system_now().wall_ms)
        self._offers: dict[str, Offer] = {}
        self._check({})
        spool = Spool(None if spool_dir is None else Path(spool_dir), limit_bytes=spool_bytes)
        topic = Namespace(environ.get(NAMESPACE_ENV, "")).topic(FLEET_CAPACITY)
        self._outbox = Outbox(spool, client_config(f"intertidal-reporter-{host}", environ=environ), topic)
        self._outbox.start()

    def offer(self, pool: str, *, units: float, **fields: Any) -> None:
        """Offer a pool: ``accelerator`` (default: the pool's name), ``idle_cause`` and whatever else an Offer has."""
        now_ms = system_now().wall_ms
        since_ms = {"offered_since_ms": now_ms, **fields}
        self._put(pool, {"units": units, **since_ms})
        self._say("offer")

    def update(self, pool: str, **fields: Any) -> None:
        """Change some of what is offered of a pool; raises KeyError for one that is not offered."""
        self._put(pool, {**msgspec.structs.asdict(self._offers[pool]), **fields})
        self._say("update")

    def reclaim(self, pool: str, *, reason: str = "") -> None:
        """Take a pool back; raises KeyError for one that is not offered."""
        offers = {name: offer for name, offer in self._offers.items() if name != pool}
        if len(offers) == len(self._offers):
            raise KeyError(pool)
        self._check(offers, reason=reason)
        self._offers = offers
        self._reporter.withdraw(pool)
        self._say("reclaim", reason=reason)

    def heartbeat(self) -> None:
        """Say that the host lives; to be called every 5 s (``INTERTIDAL_HEARTBEAT_MS``)."""
        self._say("heartbeat")

    @property
    def state(self) -> OutboxState:
        """What waits, what was dropped, what is wrong."""
        return self._outbox.state

    def close(self, *, timeout_s: float = 10.0) -> None:
        """Send what is left for so long at most; the rest stays in the spool. Offers stand until the time to live."""
        self._outbox.close(timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, pool: str, fields: Mapping[str, Any]) -> None:
        unknown = sorted(set(fields) - set(Offer.__struct_fields__))
        if unknown:
            raise RecordError("invalid_field", "an offer has no such field", field=unknown[0])
        offer = validate({"accelerator": pool, **fields}, Offer)
        offers = {**self._offers, pool: offer}
        self._check(offers)
        self._offers = offers
        self._reporter.put(pool, offer)

    def _check(self, offers: Mapping[str, Offer], *, reason: str = "") -> None:
        """Raise RecordError where a record with these offers would be refused."""
        trial = HostReporter(cell=self._reporter.cell, host=self._reporter.host, epoch_ms=0)
        for pool, offer in offers.items():
            trial.put(pool, offer)
        if len(offers) > MAX_OFFERS:
            raise RecordError("invalid_field", f"{len(offers)} pools of one host, at most {MAX_OFFERS}", field="offers")
        record = trial.record("heartbeat", now_ms=0, reason=reason)
        try:
            # Half of a surrogate pair is a character to Python, and none on the wire.
            encode(validate(msgspec.to_builtins(record), CapacityEvent))
        except UnicodeEncodeError as error:
            raise RecordError("invalid_field", f"{error.object!r} is no text", field="offers") from None

    def _say(self, kind: Kind, *, reason: str = "") -> None:
        self._outbox.put(self._reporter.record(kind, now_ms=system_now().wall_ms, reason=reason))
