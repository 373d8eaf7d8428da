"""The current targets, followed in the background: what routers apply and what a retrieval service asks."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Self

from confluent_kafka import Message

from ops.telemetry.logs import get_log
from ranking.client.broker_time import local_ms, observe
from ranking.client.fence import ShutOutError
from ranking.client.follower import Follower
from ranking.client.target_table import TargetTable, doubt
from ranking.clock import BrokerClock
from schemas.epochs import epoch_of
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.kafka.config import client_config
from schemas.kafka.dead_letters import message_headers
from schemas.kafka.registry import connect_registry
from schemas.records import CandidateTarget
from schemas.topics import CONTROL_TARGETS, Namespace

_log = get_log(__name__)

# Beyond so many that nobody has taken, the oldest are only in the log.
_MAX_REFUSED = 256


class TargetsView:
    """A target table kept up to date by a thread of its own. Stale means base.

    with TargetsView(Namespace(), default_base_candidates=128) as targets:
        num_candidates = targets.candidates_to_fetch("us-east")

    Raises BrokerError when the broker or the topic is away at the start. Later the thread goes on trying; meanwhile
    targets expire, and everyone does base work. The broker's time is learned from the first target that comes in after
    the start; until then the base is asked for.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        default_base_candidates: int = 1,
        client_id: str = "targets",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        connect_registry(environ)
        self.table = TargetTable()
        self._default_base_candidates = default_base_candidates
        self._clock = BrokerClock()
        self._decoder = Decoder(CONTROL_TARGETS.record_types)
        self._follower = Follower(
            client_config(client_id, environ=environ),
            namespace.topic(CONTROL_TARGETS),
            name="targets",
            on_message=self._on_message,
        )
        self.num_refused = 0
        # Refused since the start, with the reason: for whoever writes dead letters. Those of before were met before.
        self.refused: deque[tuple[Message, RecordError]] = deque(maxlen=_MAX_REFUSED)
        # Targets of controllers that another has taken over from, and the epoch of each that was named in the log.
        self.num_shut_out = 0
        self._named: dict[str, int] = {}
        self._on_shut_out: Callable[[str], None] | None = None

    def start(self, *, on_shut_out: Callable[[str], None] | None = None) -> Self:
        """Begin to follow and return itself; ``on_shut_out`` gets, in another thread, the cell of each such target."""
        self._on_shut_out = on_shut_out
        self._follower.start()
        return self

    def close(self) -> None:
        """Stop to follow; without effect the second time."""
        self._follower.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_caught_up(self, timeout_s: float) -> bool:
        """Whether what stood in the topic at the start was read in time."""
        return self._follower.wait_until_caught_up(timeout_s)

    @property
    def is_alive(self) -> bool:
        """Whether targets are being followed."""
        return self._follower.is_alive

    def candidates_to_fetch(self, cell: str) -> int:
        """How many candidates retrieval should hand over for a request of this cell now."""
        return self.table.candidates_to_fetch(cell, self._now_ms(), default=self._default_base_candidates)

    def valid(self, cell: str) -> CandidateTarget | None:
        """The target of a cell if it may be applied now."""
        return self.table.valid(cell, self._now_ms())

    def _now_ms(self) -> float:
        # Blind means base: while nothing has told the broker's time, every target counts as expired.
        return self._clock.broker_ms(local_ms()) if self._clock.is_set else math.inf

    def _on_message(self, message: Message) -> None:
        _, append_ms = message.timestamp()
        # Only what came after the start says something of the clock: a record read from the past arrives late.
        if self._follower.is_caught_up:
            observe(self._clock, message)
        try:
            target = self._decoder.decode(message.value())
            assert isinstance(target, CandidateTarget)
            error = doubt(target, key=message.key(), append_ms=append_ms)
            if error is None:
                self.table.update(target, epoch=epoch_of(message_headers(message)))
                return
        except ShutOutError as shut_out:
            self._note(shut_out)
            return
        except RecordError as unreadable:
            error = unreadable
        # Every reader of the topic meets it: it is named here, and the last good target stays.
        self.num_refused += 1
        _log.warning("target refused", partition=message.partition(), offset=message.offset(), why=str(error))
        if self._follower.is_caught_up:
            self.refused.append((message, error))

    def _note(self, shut_out: ShutOutError) -> None:
        """Count a target that is not heard, and name its controller once: it may go on for long."""
        self.num_shut_out += 1
        if self._on_shut_out is not None and self._follower.is_caught_up:
            self._on_shut_out(shut_out.cell)
        if self._named.get(shut_out.cell) != shut_out.epoch:
            self._named[shut_out.cell] = shut_out.epoch
            _log.warning("target not heard", why=str(shut_out))
