"""``python -m schemas.compatibility``: is each record's schema in the history, and can all versions read each other?"""

import argparse
import sys

from schemas.compatibility.history import add_current, faults
from schemas.registered import contract_types


def main() -> int:
    """Print each fault, or add what is new; returns 1 when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m schemas.compatibility", description=__doc__)
    parser.add_argument("--add", action="store_true", help="write new schemas into the history, if compatible")
    record_types = contract_types()
    try:
        if parser.parse_args().add:
            for path in add_current(record_types):
                print(f"added {path}")
            return 0
        found = [str(fault) for fault in faults(record_types)]
    except ValueError as error:
        found = [str(error)]
    for fault in found:
        print(fault, file=sys.stderr)
    if not found:
        print(f"{len(record_types)} records: every version can read every other")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
