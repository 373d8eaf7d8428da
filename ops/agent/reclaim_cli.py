"""`intertidal reclaim`: the owner's, or an operator's, way to take capacity of this host back now."""

from pathlib import Path

import click
import msgspec

from ops.agent.claim_files import remove_hold
from ops.agent.notices import MAX_HOLD_S
from ops.agent.reclaim import Host, PoolReclaim, pools_of
from ops.agent.reclaim import reclaim as take_back
from ops.agent.wake import knock
from ops.errors import UserError
from ops.times import parse_duration_s
from schemas.gate import GateError, runtime_folder


class Duration(click.ParamType):
    """Seconds, written as 30s, 15m or 1h30m."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_duration_s(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("pools", metavar="[POOL]...", nargs=-1)
@click.option("--all", "every_pool", is_flag=True, help="Every pool of this host.")
@click.option("--wait", is_flag=True, help="Return when every ranker has given way, device memory included.")
@click.option("--timeout", "timeout_s", type=Duration(), default="60s", show_default=True, help="Longest --wait.")
@click.option(
    "--for", "for_s", type=Duration(), default="5m", show_default=True, help="Not offered again for so long at least."
)
@click.option("--reason", default="command", show_default=True, help="Told to Kafka and the log.")
@click.option("--release", is_flag=True, help="Give it up instead: offered again once it has been idle.")
@click.option(
    "--runtime-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the gates.  [default: INTERTIDAL_RUNTIME_DIR]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON as docs/reclaim.schema.json has it.")
def reclaim(pools: tuple[str, ...], *, every_pool: bool, release: bool, as_json: bool, **how: object) -> int:
    """Take POOLs of this host back: the gate is closed first, then Kafka is told. Needs no broker.

    Without --wait it returns when the agent has been asked. The exit code is 1 where --wait ran out of time.

    \b
    Example:
      intertidal reclaim h200-0 h200-1 --wait --timeout 10s && ./launch-training
      intertidal reclaim --all --for 2h --reason deployment
      intertidal reclaim --all --release
    """
    runtime_dir = how["runtime_dir"]
    folder = runtime_dir if isinstance(runtime_dir, Path) else runtime_folder()
    if bool(pools) == every_pool:
        raise click.UsageError("either POOLs or --all are needed.")
    try:
        names = pools_of(folder) if every_pool else list(dict.fromkeys(pools))
        if release:
            return _release(folder, names)
        timeout_s, for_s = how["timeout_s"], how["for_s"]
        assert isinstance(timeout_s, float)
        assert isinstance(for_s, float)
        if for_s > MAX_HOLD_S:
            raise click.UsageError(f"--for: at most {MAX_HOLD_S / 86_400:g} days.")
        reason = str(how["reason"])
        if len(reason) > 256:
            raise click.UsageError("--reason: at most 256 characters.")
        done = take_back(
            names, Host(folder=folder), for_s=for_s, reason=reason, timeout_s=timeout_s if how["wait"] else None
        )
    except (GateError, ValueError, OSError) as error:
        raise UserError(str(error)) from error
    if as_json:
        click.echo(msgspec.json.encode(done).decode())
    else:
        for pool in done.pools:
            click.echo(_line(pool))
    return 1 if how["wait"] and not done.is_drained else 0


def _release(folder: Path, pools: list[str]) -> int:
    for pool in pools:
        was_held = remove_hold(folder, pool)
        click.echo(f"{pool}: {'given up' if was_held else 'was not held by this command'}")
    knock(folder)
    return 0


def _line(pool: PoolReclaim) -> str:
    agent = "" if pool.had_agent else " (no agent runs here)"
    dead = f", {len(pool.dead_pids)} had died" if pool.dead_pids else ""
    match pool.state:
        case "open":
            return f"{pool.pool}: asked{agent}; its gate is not closed yet, after {pool.waited_ms:g} ms"
        case "draining":
            pids = ", ".join(map(str, pool.pending_pids))
            return (
                f"{pool.pool}: closed{agent} after {pool.closed_ms:g} ms; rankers that have not given way: pid {pids}"
            )
        case "drained":
            closed = f"closed after {pool.closed_ms:g} ms" if pool.closed_ms else "closed"
            rankers = f"{pool.num_rankers} ranker{'' if pool.num_rankers == 1 else 's'}"
            return (
                f"{pool.pool}: free after {pool.waited_ms:g} ms{agent}: {closed}, last optional chunk "
                f"{pool.last_chunk_ms:g} ms and {rankers} drained {pool.drained_ms:g} ms behind it{dead}"
            )
