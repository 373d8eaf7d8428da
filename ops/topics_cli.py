"""`intertidal topics`: the topics of the contract on a broker."""

import json

import click

from ops.connection import broker_config, namespace
from ops.errors import UserError
from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.topics import TOPICS, planned_topics

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def topics() -> None:
    """Create, list and check the topics of the contract.

    \b
    Example:
      intertidal topics create
      intertidal topics check
    """


@topics.command()
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    help="Replicas of each partition.  [default: the broker's own]",
)
def create(replication_factor: int | None) -> None:
    """Create the topics that do not exist yet; those that do are left as they are.

    \b
    Example:
      intertidal topics create --replication-factor 3
    """
    try:
        created = TopicAdmin(broker_config("topics")).create(namespace(), replication_factor=replication_factor or -1)
    except BrokerError as error:
        raise UserError(str(error)) from error
    for name in created:
        click.echo(name)
    if not created:
        click.echo("all topics exist", err=True)


@topics.command(name="list")
@_as_json
def list_topics(as_json: bool) -> None:
    """List the topics as the contract has them, without asking a broker.

    \b
    Example:
      intertidal topics list --json
    """
    space = namespace()
    rows = [
        {
            "name": space.topic(topic),
            "key": topic.key,
            "partitions": topic.num_partitions,
            "kept": "compacted" if topic.compacted else f"{topic.retention_ms // 3_600_000} h",
            "records": [record_type.__name__ for record_type in topic.record_types],
            "dead_letters": space.dead_letters(topic),
            "purpose": topic.purpose,
        }
        for topic in TOPICS
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['name']:<24} {row['key']:<16} {row['partitions']:>2}  {row['kept']:<10} {row['purpose']}")


@topics.command()
@_as_json
def check(as_json: bool) -> int:
    """Name each way in which the broker's topics differ from the contract; exit code 1 when there is one.

    \b
    Example:
      intertidal topics check
    """
    try:
        differences = list(TopicAdmin(broker_config("topics")).differences(namespace()))
    except BrokerError as error:
        raise UserError(str(error)) from error
    if as_json:
        click.echo(
            json.dumps(
                [
                    {
                        "topic": difference.topic,
                        "setting": difference.setting,
                        "expected": difference.expected,
                        "actual": difference.actual,
                    }
                    for difference in differences
                ],
                indent=2,
            )
        )
    else:
        for difference in differences:
            click.echo(str(difference))
        if not differences:
            click.echo(f"{len(list(planned_topics(namespace())))} topics are as the contract says", err=True)
    return 1 if differences else 0
