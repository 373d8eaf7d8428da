"""One route of a simulation: partitions of its work topic, and the group of replicas that share them.

As in a consumer group of the classic protocol with the `range` assignor: whoever joins is there at once (0.04 s), the
partitions of a member that was killed are served again once its session has run out, and a static member that starts
again before then takes up its own.
"""

from collections import deque
from dataclasses import dataclass, field

from ops.twin.requests.engine import Engine, S
from ops.twin.requests.hops import Hops, Log
from ops.twin.requests.replica import Delivered, ReplicaNode
from schemas.records import RankingWork

# `schemas.kafka.config.quick_failover`: session and heartbeat; measured 1.6 to 2.4 s for a kill.
SESSION_NS = 2 * S
# `ranking.consumer.options.RankerOptions.backlog_ms`.
_BACKLOG_NS = 10 * S


@dataclass(slots=True)
class _Partition:
    log: Log
    owner: ReplicaNode | None = None
    # Read by nobody yet, or read by a member that is no more.
    waiting: deque[Delivered] = field(default_factory=deque)


class WorkRoute:
    """Takes work in and hands it to whoever owns its partition."""

    def __init__(self, engine: Engine, hops: Hops, *, num_partitions: int, is_optional: bool) -> None:
        self._engine = engine
        self._is_optional = is_optional
        self._partitions = [_Partition(Log(hops)) for _ in range(num_partitions)]
        self.members: list[ReplicaNode] = []
        self.num_sent = 0

    @property
    def num_partitions(self) -> int:
        return len(self._partitions)

    def send(self, work: RankingWork, partition: int) -> None:
        """A router sends work now."""
        self.num_sent += 1
        place = self._partitions[partition]
        appended_ns, read_ns = place.log.append(self._engine.now_ns)
        self._engine.at(read_ns, self._read, (place, Delivered(work, partition, appended_ns)))

    def join(self, node: ReplicaNode) -> None:
        """A replica joins; partitions are shared out anew."""
        self.members.append(node)
        self._share_out()

    def kill(self, node: ReplicaNode) -> None:
        """A replica is gone without a word; the group notices when its session has run out."""
        for delivered in node.kill():
            self._partitions[delivered.partition].waiting.append(delivered)
        self._engine.at(self._engine.now_ns + SESSION_NS, self._expire, node)

    def leave(self, node: ReplicaNode) -> None:
        """A replica leaves in order: what it has not begun is the next owner's."""
        for delivered in node.retire():
            self._partitions[delivered.partition].waiting.append(delivered)
        self._expire(node)

    def replace(self, dead: ReplicaNode, node: ReplicaNode) -> None:
        """A static member is there again, before or after its session ran out."""
        if dead in self.members:
            self.members[self.members.index(dead)] = node
        else:
            self.members.append(node)
        self._share_out()

    def _expire(self, node: ReplicaNode) -> None:
        if node in self.members:
            self.members.remove(node)
            self._share_out()

    def _share_out(self) -> None:
        """The range assignor: partitions in a row, the first members one more where they cannot be shared evenly."""
        num_members = len(self.members)
        owners = [
            member
            for index, member in enumerate(self.members)
            for _ in range(len(self._partitions) // num_members + (index < len(self._partitions) % num_members))
        ]
        for number, place in enumerate(self._partitions):
            place.owner = owners[number] if num_members else None
            if place.owner is not None and place.owner.died_ns is None:
                self._hand_over(place, place.owner)

    def _hand_over(self, place: _Partition, owner: ReplicaNode) -> None:
        while place.waiting:
            delivered = place.waiting.popleft()
            # Optional work that nobody waits for any more is skipped unread.
            if not self._is_optional or self._engine.now_ns - delivered.appended_ns < _BACKLOG_NS:
                owner.take_in(delivered)

    def _read(self, what: tuple[_Partition, Delivered]) -> None:
        place, delivered = what
        if place.owner is None or place.owner.died_ns is not None:
            place.waiting.append(delivered)
        else:
            place.owner.take_in(delivered)
