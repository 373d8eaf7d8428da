"""The declared cells, followed in the background."""

from collections.abc import Mapping
from typing import Self

from confluent_kafka import Message

from ops.telemetry.logs import get_log
from ranking.client.cell_table import CellTable
from ranking.client.follower import Follower
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.kafka.config import client_config
from schemas.records import CellDeclaration
from schemas.topics import CONTROL_CELLS, Namespace

_log = get_log(__name__)


class CellsView:
    """A cell table kept up to date by a thread of its own; raises BrokerError as `Follower` does.

    A declaration that cannot be read or believed is logged and left out, as ingest does.
    """

    def __init__(
        self, namespace: Namespace, *, client_id: str = "cells", environ: Mapping[str, str] | None = None
    ) -> None:
        self.table = CellTable(lambda: self._follower.is_caught_up)
        self._decoder = Decoder(CONTROL_CELLS.record_types)
        self._follower = Follower(
            client_config(client_id, environ=environ),
            namespace.topic(CONTROL_CELLS),
            name="cells",
            on_message=self._on_message,
        )

    def start(self, *, timeout_s: float = 10.0) -> Self:
        """Begin to follow, wait until what stands there now is read, and return itself."""
        self._follower.start()
        # Not in time: any cell passes until it is, which costs a few records too many and nothing else.
        self._follower.wait_until_caught_up(timeout_s)
        return self

    def close(self) -> None:
        """Stop to follow; without effect the second time."""
        self._follower.close()

    def _on_message(self, message: Message) -> None:
        key, value = message.key(), message.value()
        if not value:
            self.table.remove((key or b"").decode("utf-8", "replace"))
            return
        try:
            declaration = self._decoder.decode(value)
        except RecordError as error:
            _log.warning("declaration unreadable", offset=message.offset(), why=str(error))
            return
        assert isinstance(declaration, CellDeclaration)
        if key != declaration.cell.encode():
            _log.warning("declaration not believed", offset=message.offset(), why=f"key {key!r} is not its cell")
            return
        self.table.update(declaration)
