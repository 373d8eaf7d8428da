"""`intertidal train`: a ranking model from logged results and outcomes, or from the built-in world."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from ops.connection import broker_config
from ops.errors import UserError
from ops.read_cli import Duration
from ops.simulator.fit import drawn_views, lines_of, ranked_values
from ops.simulator.world import World, WorldConfig
from ops.telemetry.progress import progress
from ops.time_option import Time
from ops.train_files import records_of_files
from ops.train_log import records_of_log
from ranking.models.load import save_model
from ranking.models.scorer import Scorer
from ranking.models.training.fresh import ARCHITECTURES
from ranking.models.training.logs import NoViewsError, TooManyRequestsError, ViewJoin
from ranking.models.training.quality import PredictionQuality
from ranking.models.training.run import trained
from ranking.models.training.views import SplitViews, split_in_order
from schemas.records import RankingOutcome, RankingRequest, RankingResult
from schemas.topics import RANKING_OUTCOMES, RANKING_REQUESTS, RANKING_RESULTS

# What is appended so long after a window has passed still counts: outcomes are sent by systems that lag.
_LAG_MS = 60_000


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` says; `quality` is that of views from which nothing was learned."""

    version: str
    out: str
    num_parameters: int
    num_training_requests: int
    num_training_views: int
    num_held_out_requests: int
    num_left_out: dict[str, int]
    quality: PredictionQuality


@click.command("train")
@click.option("--architecture", type=click.Choice(ARCHITECTURES), default="baseline", show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder of the bundle.")
@click.option("--version", help="Name of the weights.  [default: the folder's name and the seed]")
@click.option("--requests", multiple=True, type=click.Path(exists=True, path_type=Path), help="Files of requests.")
@click.option("--results", multiple=True, type=click.Path(exists=True, path_type=Path), help="Files of results.")
@click.option("--outcomes", multiple=True, type=click.Path(exists=True, path_type=Path), help="Files of outcomes.")
@click.option("--since", "since_ms", type=Time(), help="Requests from this time on, from the broker.")
@click.option("--until", "until_ms", type=Time(), help="Requests before this time.  [default: now]")
@click.option("--world", is_flag=True, help="Views drawn from the built-in world, instead of logs.")
@click.option("--num-requests", type=click.IntRange(100), default=80_000, show_default=True, help="Of the world.")
@click.option(
    "--window",
    "window_s",
    type=Duration(),
    default="15m",
    show_default=True,
    help="A click counts so long after a view.",
)
@click.option("--max-requests", type=click.IntRange(1), default=1_000_000, show_default=True, help="Held in memory.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def train_command(out: Path, architecture: str, seed: int, as_json: bool, version: str | None, **source: Any) -> None:
    """Train a ranking model, calibrate it, judge it on what it has not seen, and write it as a bundle.

    A request, its result and its outcomes are joined by request id. A view is a label once --window has passed; one
    that is younger is left out, and so is an ad that nobody saw. The last fifth of the requests is held out. Files are
    those of `intertidal read`, or folders of them. The same data and seed give the same bundle. See docs/training.md.

    \b
    Example:
      intertidal train --since -1d --out my-model
      intertidal train --requests q.jsonl --results r.jsonl --outcomes o.jsonl --out my-model
      intertidal train --world --architecture wukong --out my-world-model
    """
    _check_sources(source)
    version = version or f"{out.resolve().name}-{seed}"
    try:
        split, num_left_out = _views(seed=seed, **source)
        with _bar() as observer:
            found = trained(architecture, split, version=version, seed=seed, observer=observer)
    except (NoViewsError, TooManyRequestsError, ValueError) as error:
        raise UserError(str(error)) from error
    save_model(found.model, out)
    said = Trained(
        version=version,
        out=str(out),
        num_parameters=sum(tensor.numel() for tensor in found.model.state_dict().values()),
        num_training_requests=split.training.num_requests,
        num_training_views=len(split.training),
        num_held_out_requests=split.held_out.num_requests,
        num_left_out={reason: num for reason, num in sorted(num_left_out.items()) if num},
        quality=found.quality,
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(said), indent=2).decode())
        return
    for line in _lines(said):
        click.echo(line)
    if source["world"]:
        world = World(WorldConfig())
        num_requests = split.held_out.num_requests
        for line in lines_of(world, ranked_values(world, Scorer(found.model), seed, num_requests=num_requests)):
            click.echo(line)


def _check_sources(source: dict[str, Any]) -> None:
    """Exactly one source, whole; raises click.UsageError."""
    files = [source[name] for name in ("requests", "results", "outcomes")]
    given = [source["world"], any(files), source["since_ms"] is not None]
    if sum(given) != 1:
        raise click.UsageError("give one of --world, --since, and files of --requests, --results and --outcomes.")
    if any(files) and not all(files):
        raise click.UsageError("files are needed of all three: --requests, --results and --outcomes.")
    if source["until_ms"] is not None and source["since_ms"] is None:
        raise click.UsageError("--until needs --since.")
    if source["until_ms"] is not None and source["since_ms"] > source["until_ms"]:
        raise click.UsageError("--since is after --until.")


def _views(
    *, seed: int, world: bool, num_requests: int, window_s: float, max_requests: int, **logs: Any
) -> tuple[SplitViews, dict[str, int]]:
    """Views to train on, and how many views of the logs are none, by reason."""
    if world:
        with progress("drawing requests of the world"):
            return drawn_views(World(WorldConfig()), seed, num_requests=num_requests), {}
    join = ViewJoin(max_requests=max_requests, window_ms=round(window_s * 1e3))
    with progress("reading logs"):
        views = join.join(*_records(join.window_ms, **logs))
    return split_in_order(views), dict(join.num_left_out)


def _records(
    window_ms: int, *, since_ms: int | None, until_ms: int | None, **files: tuple[Path, ...]
) -> tuple[Iterator[RankingOutcome], Iterator[RankingResult], Iterator[RankingRequest]]:
    if since_ms is None:
        return (
            records_of_files(files["outcomes"], RankingOutcome),
            records_of_files(files["results"], RankingResult),
            records_of_files(files["requests"], RankingRequest),
        )
    config = broker_config("train")
    # What requests led to comes later than they did.
    late_ms = None if until_ms is None else until_ms + window_ms + _LAG_MS
    read = partial(records_of_log, config, since_ms=since_ms, complain=partial(click.echo, err=True))
    return (
        read(RANKING_OUTCOMES, RankingOutcome, until_ms=late_ms),
        read(RANKING_RESULTS, RankingResult, until_ms=late_ms),
        read(RANKING_REQUESTS, RankingRequest, until_ms=until_ms),
    )


class _Bar:
    """Shows steps as a bar where there is a terminal, and each epoch's quality as a line."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance = advance

    def stepped(self, epoch: int, step: int, num_steps: int) -> None:
        self._advance(1)

    def judged(self, epoch: int, quality: PredictionQuality) -> None:
        click.echo(f"epoch {epoch}: validation {_words(quality)}", err=True)


@contextmanager
def _bar() -> Iterator[_Bar]:
    # How many steps there are is known when the loss has risen, not before.
    with progress("training") as advance:
        yield _Bar(advance)


def _words(quality: PredictionQuality) -> str:
    return (
        f"log loss {quality.log_loss:.5f} (constant {quality.constant_log_loss:.5f}), AUC {quality.auc:.4f}, "
        f"predicted over observed clicks {quality.calibration:.4f}"
    )


def _lines(said: Trained) -> Iterator[str]:
    yield (
        f"trained on {said.num_training_views} views of {said.num_training_requests} requests, "
        f"{said.num_parameters} parameters"
    )
    if said.num_left_out:
        yield "views left out: " + ", ".join(f"{num} {reason}" for reason, num in said.num_left_out.items())
    yield f"held out, {said.num_held_out_requests} requests: {_words(said.quality)}"
    yield f"written: {said.out}, version {said.version}"
