"""`intertidal topics`: the topics of the contract on a broker, and the contract for other programs."""

import json
from pathlib import Path

import click

from ops.connection import broker_config, namespace
from ops.errors import UserError
from schemas.asyncapi import asyncapi_document, differences, render
from schemas.avro import avro_schema
from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.registered import contract_types
from schemas.topics import TOPICS, planned_topics

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def topics() -> None:
    """Create, list and check the topics of the contract, and say the contract to other programs.

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
        found = list(TopicAdmin(broker_config("topics")).differences(namespace()))
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
                    for difference in found
                ],
                indent=2,
            )
        )
    else:
        for difference in found:
            click.echo(str(difference))
        if not found:
            click.echo(f"{len(list(planned_topics(namespace())))} topics are as the contract says", err=True)
    return 1 if found else 0


@topics.command()
@click.option("--check", "is_check", is_flag=True, help="Name what differs in FILE; exit code 1 when something does.")
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("docs/asyncapi.json"),
    show_default=True,
    help="The document that --check looks at.",
)
def asyncapi(is_check: bool, path: Path) -> int:
    """Print the contract as an AsyncAPI 3 document, or check that a file still says it.

    \b
    Example:
      intertidal topics asyncapi > docs/asyncapi.json
      intertidal topics asyncapi --check
    """
    document = asyncapi_document()
    if not is_check:
        click.echo(render(document), nl=False)
        return 0
    try:
        committed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    found = list(differences(committed, document))
    for difference in found:
        click.echo(difference)
    return 1 if found else 0


@topics.command()
@click.argument("record", required=False)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Write one RECORD.avsc per record into this folder."
)
def schema(record: str | None, out: Path | None) -> None:
    """Print the Avro schema of RECORD, or of every record by name.

    \b
    Example:
      intertidal topics schema CapacityEvent
      intertidal topics schema --out schemas-avsc
    """
    schemas = {record_type.__name__: avro_schema(record_type) for record_type in contract_types()}
    if record is not None and record not in schemas:
        raise click.UsageError(f"no record {record}; there are {', '.join(schemas)}")
    if out is None:
        click.echo(json.dumps(schemas if record is None else schemas[record], indent=2))
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in schemas if record is None else [record]:
            (out / f"{name}.avsc").write_text(json.dumps(schemas[name], indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from error
