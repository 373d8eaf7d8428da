"""How a verb reaches the broker: found once, with the user's settings, in the pipeline's namespace."""

import os
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ops.broker.locate import require_broker
from ops.errors import UserError
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import BOOTSTRAP_ENV, CONFIG_ENV, NAMESPACE_ENV, Config, client_config
from schemas.kafka.registry import connect_registry
from schemas.settings import TimeSettings
from schemas.topics import Namespace

_SCHEMA_TIMEOUT_S: Final = 10.0


def broker_config(verb: str, *, only_looks: bool = False) -> Config:
    """Client settings for a short-lived verb; raises UserError when there is no broker or a setting is wrong.

    One that ``only_looks`` registers no schema.
    """
    environ: Mapping[str, str] = {**os.environ, BOOTSTRAP_ENV: require_broker().bootstrap}
    use_schema_registry(environ, registers=not only_looks)
    try:
        # A short verb reports its own failures, and a client that only retries is none.
        config = {**client_config(f"intertidal-{verb}", environ=environ), "log_level": 2}
        # Says at once which setting the client does not know; it connects to nothing yet.
        AdminClient(config)
    except ValueError as error:
        raise UserError(str(error)) from error
    except KafkaException as error:
        raise UserError(f"{CONFIG_ENV}: {error.args[0].str()}") from error
    return config


def use_schema_registry(environ: Mapping[str, str], *, registers: bool = True) -> None:
    """Frame and read with the Schema Registry that the environment names, if any; raises UserError."""
    try:
        # A verb has nothing else to do than wait for a schema.
        connect_registry(environ, wait_s=_SCHEMA_TIMEOUT_S, registers=registers)
    except (BrokerError, ValueError) as error:
        raise UserError(str(error)) from error


def namespace() -> Namespace:
    """Namespace of the pipeline that this command is about."""
    return Namespace(os.environ.get(NAMESPACE_ENV, ""))


def time_settings() -> TimeSettings:
    """Settings of event time; raises UserError naming the variable that is wrong."""
    try:
        return TimeSettings.from_env()
    except ValueError as error:
        raise UserError(str(error)) from error
