"""`intertidal send`: JSON lines from stdin to validated records of one topic."""

import json

import click

from ops.connection import broker_config, namespace
from ops.errors import UserError
from ops.live_intake import intake_of, topic_named
from ops.send.sender import Rejects, Sender
from ops.telemetry.progress import progress
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import producer_config
from schemas.kafka.producer import DeliveryError, DurableProducer


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option("--partition", type=click.IntRange(0), help="Where records without a key go: work and answers.")
@click.option("--rejected", "path", type=click.Path(dir_okay=False), help="Keep bad lines in this new file.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def send(topic_name: str, partition: int | None, path: str | None, as_json: bool) -> int:
    """Send JSON lines from stdin to TOPIC, each held against what the topic's readers believe.

    A line is a record as `intertidal read` prints it: packed arrays are lists of numbers, other bytes base64. A bad
    line is named by its number and field and kept, on stderr or in the file of --rejected; the others are sent. The
    exit code is 1 if there was a bad one. Every record is acknowledged by the broker at the end; after a failure the
    line from which to go on is told, and a record behind it may be sent twice.

    \b
    Example:
      intertidal send fleet.capacity < events.jsonl
      zcat outcomes.jsonl.gz | intertidal send ranking.outcomes --rejected bad.jsonl --json
    """
    topic = topic_named(topic_name)
    if topic.key != "none" and partition is not None:
        raise click.UsageError(f"--partition: on {topic.name} the key ({topic.key}) says which.")
    if topic.key == "none" and partition is None:
        raise click.UsageError(f"{topic.name} has no key: give --partition.")
    config = broker_config("send")
    intake = intake_of(config, topic)
    if partition is not None and partition >= intake.num_partitions(topic):
        raise click.UsageError(f"--partition: {topic.name} has {intake.num_partitions(topic)}.")
    full_name = namespace().topic(topic)
    try:
        with (
            DurableProducer(producer_config(config, **{"linger.ms": 5})) as producer,
            Rejects(path) as rejects,
            progress(f"sending to {full_name}") as done,
        ):
            sender = Sender(producer, topic, intake, full_name=full_name, partition=partition)
            counts = sender.send(click.get_binary_stream("stdin"), rejects, done=done)
    except (BrokerError, DeliveryError) as error:
        raise UserError(str(error)) from error
    if as_json:
        click.echo(json.dumps({"topic": full_name, "sent": counts.num_sent, "rejected": counts.num_rejected}))
    else:
        click.echo(f"{full_name}: {counts.num_sent} sent, {counts.num_rejected} rejected", err=True)
    return 1 if counts.num_rejected else 0
