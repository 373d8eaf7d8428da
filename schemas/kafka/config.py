"""librdkafka settings of every client: where the broker is, and what durable and low latency mean here."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BOOTSTRAP_ENV = "KAFKA_BOOTSTRAP"
CONFIG_ENV = "KAFKA_CONFIG"
NAMESPACE_ENV = "INTERTIDAL_NAMESPACE"

Config = dict[str, Any]


def client_config(client_id: str, *, environ: Mapping[str, str] | None = None) -> Config:
    """Settings common to all clients, from ``KAFKA_BOOTSTRAP`` and the file named by ``KAFKA_CONFIG``.

    The file holds ``name=value`` lines of librdkafka settings (TLS, SASL and whatever else is wanted); ``#`` starts a
    comment. Raises ValueError naming the variable or line at fault; values are never part of the message.
    """
    environ = os.environ if environ is None else environ
    bootstrap = environ.get(BOOTSTRAP_ENV)
    if not bootstrap:
        raise ValueError(f"{BOOTSTRAP_ENV} is not set; start a local broker with `intertidal broker start`")
    config: Config = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "log_level": 4,
        # Back within a second of the broker's return; ten by default, in which no base work would be done.
        "reconnect.backoff.max.ms": 1_000,
    }
    path = environ.get(CONFIG_ENV)
    if path:
        config |= read_properties(Path(path), CONFIG_ENV)
    return config


def producer_config(base: Mapping[str, Any], **overrides: Any) -> Config:
    """Acknowledged by all, idempotent, partitioned like Java producers, no waiting for a fuller batch."""
    return {
        **base,
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "linger.ms": 0,
        "message.max.bytes": 4 << 20,
        "queue.buffering.max.kbytes": 65_536,
        "delivery.timeout.ms": 30_000,
        **overrides,
    }


def consumer_config(base: Mapping[str, Any], group: str, **overrides: Any) -> Config:
    """Manual commits and a fetch loop that wakes at the first record; ``range`` stops the others least on a join."""
    return {
        **base,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "range",
        "fetch.min.bytes": 1,
        "fetch.queue.backoff.ms": 1,
        "queued.max.messages.kbytes": 65_536,
        **overrides,
    }


# For those off the request path: a tenth of a second is nothing to them, and each fetch or send of a few records
# costs the broker as much as one of many.
BATCHED_FETCH: Config = {"fetch.min.bytes": 1 << 16, "fetch.wait.max.ms": 100}
BATCHED_SEND: Config = {"linger.ms": 50}
# For the request path: what has been promised to a caller outlives a broker that is away for a while, in order and
# once. The others begin again from their last commit after 30 s, which costs nobody anything.
PATIENT_SEND: Config = {"delivery.timeout.ms": 120_000}

# How soon a killed member of a group on the request path is noticed. The broker must allow sessions that short.
SESSION_MS = 2_000
HEARTBEAT_MS = 500


def quick_failover(*, static_id: str | None = None) -> Config:
    """Group settings of the request path: a killed member is noticed in about two seconds.

    ``static_id`` is for routers and dedicated replicas under a supervisor that restarts at once: back within the
    session, they keep their partitions. Opportunistic replicas have none, so that they leave when they go.
    """
    settings: Config = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    if static_id is not None:
        settings["group.instance.id"] = static_id
    return settings


def read_properties(path: Path, env_name: str) -> Config:
    """Settings in a file of ``name=value`` lines, named by a variable; raises ValueError without any value in it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"{env_name}: cannot read {path}: {error.strerror}") from None
    settings: Config = {}
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        name, separator, value = stripped.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"{env_name}: {path}, line {number}: not of the form name=value")
        settings[name.strip()] = value.strip()
    return settings
