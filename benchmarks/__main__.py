"""``python -m benchmarks``: run all measurements and print them as markdown."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import ingest, planning, scoring
from benchmarks.machine import describe
from benchmarks.measurement import markdown


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table to stdout, and write every value to the file that ``--json`` names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measurements of single parts.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every value as JSON")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: seconds, and rougher figures")
    options = parser.parse_args(arguments)
    machine = describe()
    measurements = [found for part in (ingest, planning, scoring) for found in part.measure(quick=options.quick)]
    print(markdown(machine, measurements))
    if options.json is not None:
        report = {
            "machine": machine,
            "quick": options.quick,
            "measurements": [found.to_dict() for found in measurements],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
