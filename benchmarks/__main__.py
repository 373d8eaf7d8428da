"""``python -m benchmarks``: run all measurements and print them as markdown."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    agent,
    allocation,
    beside_replay,
    ingest,
    isolation,
    mixed,
    overhead,
    pipeline,
    planning,
    replay,
    scoring,
)
from benchmarks.machine import describe, load_average
from benchmarks.measurement import Measurement, markdown
from benchmarks.plan import Plan

PARTS = {
    part.NAME: part
    for part in (
        planning,
        scoring,
        allocation,
        ingest,
        pipeline,
        mixed,
        isolation,
        overhead,
        replay,
        beside_replay,
        agent,
    )
}


RESULTS_BEGIN, RESULTS_END = "<!-- results -->", "<!-- end of results -->"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table to stdout, and write every value to the file that ``--json`` names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measurements beside their references.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every value as JSON")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="also put the table between the marks of this page")
    parser.add_argument("--quick", action="store_true", help="less of everything: minutes, and rougher figures")
    parser.add_argument("--only", action="append", choices=sorted(PARTS), help="only this part; may be repeated")
    parser.add_argument("--tiny", action="store_true", help="only show that the code runs: no broker, no figures")
    options = parser.parse_args(arguments)
    plan = Plan(quick=options.quick, tiny=options.tiny)
    machine = describe()
    measured: list[tuple[str, Measurement]] = []
    for name, part in PARTS.items():
        if not options.only or name in options.only:
            measured += [(name, found) for found in part.measure(plan)]
    machine["load average before, after"] += f", {load_average()}"
    table = markdown(machine, [found for _, found in measured])
    print(table)
    if options.docs is not None:
        options.docs.write_text(with_results(options.docs.read_text(), table))
    if options.json is not None:
        report = {
            "machine": machine,
            "plan": plan.name,
            "measurements": [{"part": name, **found.to_dict()} for name, found in measured],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")


def with_results(page: str, table: str) -> str:
    """The page with the table between its marks. Raises ValueError where they are missing."""
    before, begin, rest = page.partition(RESULTS_BEGIN)
    _, end, after = rest.partition(RESULTS_END)
    if not begin or not end:
        raise ValueError(f"the page has no {RESULTS_BEGIN} and {RESULTS_END} behind it")
    return f"{before}{RESULTS_BEGIN}\n\n{table}\n\n{RESULTS_END}{after}"


if __name__ == "__main__":
    main()
