"""Sends ranking requests: validated before they leave, in the partition that their user leads to, with a trace."""

from collections.abc import Callable, Mapping

from confluent_kafka import Message

from schemas.framing import decode_as, frame
from schemas.kafka.config import PATIENT_SEND, client_config, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.kafka.registry import connect_registry
from schemas.records import RankingRequest
from schemas.topics import RANKING_REQUESTS, Namespace
from schemas.tracing import TraceContext


class RequestProducer:
    """Durable producer of requests. Call `poll` now and then, and `drain` before the end."""

    def __init__(
        self, namespace: Namespace, *, client_id: str = "requests", environ: Mapping[str, str] | None = None
    ) -> None:
        connect_registry(environ)
        self._topic = namespace.topic(RANKING_REQUESTS)
        self._producer = DurableProducer(producer_config(client_config(client_id, environ=environ), **PATIENT_SEND))

    def send(
        self,
        request: RankingRequest,
        *,
        trace: TraceContext | None = None,
        on_delivered: Callable[[Message], None] | None = None,
    ) -> TraceContext:
        """Queue one request and return its trace (a new one by default).

        Raises RecordError for a request that no reader would believe, DeliveryError when the broker refused an
        earlier one.
        """
        value = frame(request)
        decode_as(value, RankingRequest)
        trace = TraceContext.new() if trace is None else trace
        self._producer.send(
            self._topic,
            value,
            key=request.user_id.encode(),
            headers=[trace.header()],
            on_delivered=on_delivered,
        )
        return trace

    @property
    def num_pending(self) -> int:
        """Requests queued and not yet acknowledged."""
        return self._producer.num_pending

    def poll(self, timeout_s: float = 0.0) -> None:
        """Serve delivery reports; raises DeliveryError."""
        self._producer.poll(timeout_s)

    def drain(self, timeout_s: float = 30.0) -> None:
        """Return once all is acknowledged; raises DeliveryError otherwise."""
        self._producer.drain(timeout_s)
