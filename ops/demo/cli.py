"""`intertidal demo`: the whole pipeline on a local Kafka."""

import json
import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from ops.broker.locate import find_broker
from ops.connection import use_schema_registry
from ops.demo.collector import Collector
from ops.demo.file_options import file_options, wanted_files
from ops.demo.ledger import Ledger
from ops.demo.parts import Layout
from ops.demo.pipeline import Pipeline, Traffic, now_ms
from ops.demo.report import Run, broken_invariants, build_report, first_reclaim
from ops.demo.summary import summary_lines
from ops.demo.supervisor import PartFailed
from ops.demo.view import Glance, glance, live_view
from ops.errors import UserError
from ops.simulator.files.apply import load_traffic
from ops.simulator.files.frozen import SUFFIX, write_frozen
from ops.simulator.scenario import Scenario
from ops.status.facts import Facts
from ops.telemetry.progress import progress
from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, client_config
from schemas.kafka.producer import DeliveryError
from schemas.topics import Namespace

_LOOK_S: Final = 1.0
# Pending items close, and metrics of the last interval are written, after the last request.
_SETTLE_S: Final = 3.0


@click.command()
@click.option("--seconds", type=click.FloatRange(10.0, 86_400.0), help="Measured time after the warm-up.")
@click.option("--scenario", "scenario_name", default="generated", show_default=True, help="Built in, or a TOML file.")
@click.option(
    "--report", "report_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here, in JSON."
)
@click.option("--keep", is_flag=True, help="Keep the run's topics, and its folder with the logs of all parts.")
@file_options
def demo(seconds: float | None, scenario_name: str, report_path: Path | None, keep: bool, **files: Any) -> int:
    """Run the whole pipeline on a local Kafka; watch idle capacity become extra ranking and be given back.

    Exit code 1 when an invariant was broken.

    Requests, idle capacity and candidates may come from real files; factors that are not given are chosen, and what was
    chosen is printed. Rows that are not as they should be are counted by kind. Where a file gives nothing to judge,
    such as a stretch without a reclaim, the report says so and nothing counts as broken. See docs/real-files.md.

    \b
    Example:
      intertidal demo --seconds 90 --report report.json
      intertidal demo --arrivals requests.csv --capacity fleet.csv --capacity-speed 60 --pairs quantiles.txt
    """
    try:
        wanted = wanted_files(files)
        with progress("reading the scenario"):
            scenario = load_traffic(scenario_name, duration_s=seconds, files=wanted)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    _check_writable(report_path)
    run_dir = Path(tempfile.mkdtemp(prefix="intertidal-demo-"))
    # What was read and chosen is handed on whole: every part plays the same, also one that starts again.
    frozen = run_dir / f"scenario{SUFFIX}"
    write_frozen(scenario, frozen)
    layout = Layout(run_dir=run_dir, scenario=str(frozen), duration_s=scenario.duration_s)
    for file in scenario.file_reports:
        click.echo(f"{file.kind:<10} {file.line()}")
    failed = True
    try:
        report = _run(scenario, layout, keep=keep)
        failed = bool(broken_invariants(report))
    except (PartFailed, BrokerError, DeliveryError) as error:
        raise UserError(str(error)) from error
    finally:
        if failed or keep:
            click.echo(f"logs of all parts: {run_dir / 'logs'}", err=True)
        else:
            shutil.rmtree(run_dir, ignore_errors=True)
    if report_path is not None:
        report_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for line in summary_lines(report):
        click.echo(line)
    return 1 if failed else 0


def _run(scenario: Scenario, layout: Layout, *, keep: bool) -> dict[str, Any]:
    """1. Broker, 2. topics and cells, 3. parts until ready, 4. traffic to its end, 5. settling, 6. stop, 7. report."""
    with ExitStack() as stack:
        with progress("starting a local Kafka"):
            bootstrap = stack.enter_context(find_broker()).bootstrap  # 1
        environ = {**os.environ, BOOTSTRAP_ENV: bootstrap}
        use_schema_registry(environ)
        # What goes wrong is raised; a client that only retries is nothing to read about.
        config = {**client_config("intertidal-demo", environ=environ), "log_level": 2}
        # A namespace of its own: on a broker that others use, nothing of theirs is touched.
        namespace = Namespace(f"demo-{now_ms()}.")
        pipeline = stack.enter_context(Pipeline(scenario, config, namespace, layout=layout))
        pipeline.prepare()  # 2
        with progress("starting the parts"):
            pipeline.start()  # 3
        ledger, facts = Ledger(), Facts()
        collector = Collector(config, namespace, ledger, facts)
        traffic = pipeline.start_traffic()  # 4
        _watch(pipeline, collector, (ledger, facts), traffic)
        collector.poll(_SETTLE_S)  # 5
        pipeline.stop()  # 6
        collector.drain()
        collector.close()
        if not keep:
            # The broker may be one that stays.
            TopicAdmin(config).delete(namespace)
        return build_report(ledger, _as_run(pipeline, traffic))  # 7


def _watch(pipeline: Pipeline, collector: Collector, seen: tuple[Ledger, Facts], traffic: Traffic) -> None:
    with live_view() as show:
        while not pipeline.traffic_over():
            started = time.monotonic()
            collector.poll(_LOOK_S)
            pipeline.supervisor.check()
            show(_glance(pipeline, *seen, traffic))
            time.sleep(max(0.0, _LOOK_S - (time.monotonic() - started)))


def _glance(pipeline: Pipeline, ledger: Ledger, facts: Facts, traffic: Traffic) -> Glance:
    now = now_ms()
    reclaim = first_reclaim(ledger)
    if now < traffic.warm_up_end_ms:
        phase = "warm-up"
    elif reclaim is None or now < reclaim[0]:
        phase = "before"
    else:
        phase = "reclaim" if now < reclaim[1] else "after"
    return glance(
        ledger,
        facts,
        now_ms=now,
        start_ms=traffic.warm_up_end_ms,
        phase=phase,
        restarts=dict(pipeline.supervisor.restarts),
    )


def _as_run(pipeline: Pipeline, traffic: Traffic) -> Run:
    scenario = pipeline.scenario
    return Run(
        scenario=scenario.name,
        warm_up_end_ms=traffic.warm_up_end_ms,
        traffic_end_ms=traffic.end_ms,
        requests_per_s=scenario.arrivals.rate_per_s,
        deadline_ms=scenario.requests.deadline_ms,
        window_ms=scenario.time.window_ms,
        host_ttl_ms=scenario.time.host_ttl_ms,
        restarts=dict(pipeline.supervisor.restarts),
        files={file.kind: file.to_dict() for file in scenario.file_reports},
        callers=_said_by_callers(pipeline.supervisor.log_path("callers")),
    )


def _said_by_callers(log: Path) -> dict[str, Any]:
    # Their report is the line of JSON among the lines of their log.
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    said = json.loads(lines[-1]) if lines else {}
    return {
        name: said[name]
        for name in ("num_sent", "num_not_accepted", "send_lag_ms", "ack_lag_ms", "is_on_time")
        if name in said
    }


def _check_writable(path: Path | None) -> None:
    # Before a minute is spent on a report that cannot be written.
    if path is not None and not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
        raise click.UsageError(f"--report: cannot write {path}")
