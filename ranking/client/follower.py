"""A thread that follows a topic in the background."""

import threading
from collections.abc import Callable

from confluent_kafka import Message

from ops.telemetry.logs import get_log
from ranking.client.topic_tail import TopicTail
from schemas.errors import SchemaPendingError
from schemas.framing import require_schema
from schemas.kafka.config import Config

_log = get_log(__name__)

_SCHEMA_LOOK_S = 0.1


class Follower:
    """Hands every record of a topic to ``on_message``, from the first on, in a thread of its own.

    Raises BrokerError when the broker or the topic is away at the start. Later the thread goes on trying. A record
    whose schema is not known yet is waited for: its readers meanwhile know what they knew, and that expires.
    """

    def __init__(self, config: Config, topic: str, *, name: str, on_message: Callable[[Message], None]) -> None:
        self._topic = topic
        self._on_message = on_message
        self._tail = TopicTail(config, topic, on_message=self._hand_over)
        self._stopping = threading.Event()
        self._caught_up = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that stood in the topic at the start has been read: of a record, that it came later."""
        return self._tail.is_caught_up

    @property
    def is_alive(self) -> bool:
        """Whether the topic is being followed."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def close(self) -> None:
        """Stop to follow; without effect the second time."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait_until_caught_up(self, timeout_s: float) -> bool:
        """Whether what stood in the topic at the start was read in time."""
        return self._caught_up.wait(timeout_s)

    def _hand_over(self, message: Message) -> None:
        waits = False
        while not self._stopping.is_set():
            try:
                require_schema(message.value())
            except SchemaPendingError as error:
                if not waits:
                    _log.warning("waits for a schema", topic=self._topic, offset=message.offset(), why=str(error))
                waits = True
                self._stopping.wait(_SCHEMA_LOOK_S)
            else:
                self._on_message(message)
                return

    def _follow(self) -> None:
        try:
            while not self._stopping.is_set():
                self._tail.poll(0.1)
                if self._tail.is_caught_up:
                    self._caught_up.set()
        finally:
            self._tail.close()
