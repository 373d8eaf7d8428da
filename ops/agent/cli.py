"""`intertidal agent`: what can be asked about fleet agents, whoever wrote them."""

import click
import msgspec

from ops.agent.check import check as check_range
from ops.agent.check_document import RULES, CheckDocument
from ops.connection import broker_config, namespace, time_settings
from ops.errors import UserError
from ops.time_option import Time
from schemas.kafka.admin import BrokerError


@click.group()
def agent() -> None:
    """Look at fleet agents, in whatever language they are written.

    \b
    Example:
      intertidal agent check --since -15m --host gpu-17
    """


@agent.command()
@click.option("--since", "since_ms", type=Time(), default="-15m", show_default=True, help="Where the range begins.")
@click.option("--until", "until_ms", type=Time(), default="+0s", show_default="now", help="Where it ends.")
@click.option("--host", default="", help="This host alone.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON as docs/agent-check.schema.json has it.")
def check(since_ms: int, until_ms: int, host: str, as_json: bool) -> int:
    """Name each rule that what was sent to fleet.capacity breaks, with the first records that do.

    Reads a range of the topic; joins no group and changes nothing. The exit code is 1 where a rule is broken, or where
    there is nothing to judge.

    \b
    Example:
      intertidal agent check
      intertidal agent check --since 2026-03-01T12:00:00Z --json | jq '.broken[].rule'
    """
    try:
        found = check_range(
            broker_config("agent-check"),
            namespace(),
            time=time_settings(),
            since_ms=since_ms,
            until_ms=until_ms,
            host=host,
        )
    except BrokerError as error:
        raise UserError(str(error)) from error
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        _print(found)
    return 0 if found.is_conformant and found.num_records else 1


def _print(found: CheckDocument) -> None:
    for host in found.hosts:
        click.echo(
            f"{host.cell} {host.host}: {host.num_records} records, {host.num_epochs} epochs, "
            f"{host.num_missing} missing, {host.num_repeats} repeats, silent for {host.longest_silence_ms} ms at most"
        )
    for broken in found.broken:
        click.echo(f"broken: {broken.rule} ({RULES[broken.rule]})")
        click.echo(f"  {broken.cell} {broken.host or '(no host)'}: {broken.num_records} records")
        for example in broken.examples:
            click.echo(f"  partition {example.partition}, offset {example.offset}: {example.detail}")
    if not found.num_records:
        click.echo("no record in this range")
    elif found.is_conformant:
        click.echo(f"{found.num_records} records of {len(found.hosts)} hosts break no rule")
