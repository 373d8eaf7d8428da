"""What the readers of a running pipeline would take in: its partitions, its cells, its settings."""

import click

from ops.connection import namespace, time_settings
from ops.declared_cells import declared_cells
from ops.errors import UserError
from ops.intake import BY_NAME, Intake, needs_cells
from schemas.attribution_keys import keys_from_env
from schemas.errors import RecordError
from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.kafka.config import Config
from schemas.topics import Topic


def topic_named(name: str) -> Topic:
    """A topic of the contract; raises UsageError that lists them."""
    topic = BY_NAME.get(name)
    if topic is None:
        raise click.UsageError(f"no topic {name}; there are {', '.join(BY_NAME)}.")
    return topic


def intake_of(config: Config, topic: Topic) -> Intake:
    """What the readers of a topic would take in; raises UserError."""
    space = namespace()
    try:
        found = TopicAdmin(config).require(space.topic(known) for known in BY_NAME.values())
        declared = declared_cells(config).values() if needs_cells(topic) else ()
        return Intake(
            {known.name: found[space.topic(known)] for known in BY_NAME.values()},
            time=time_settings(),
            declarations=declared,
            keys=keys_from_env(),
        )
    except (BrokerError, ValueError) as error:
        raise UserError(str(error)) from error
    except RecordError as error:
        raise UserError(f"{error.field}: {error.detail}") from error
