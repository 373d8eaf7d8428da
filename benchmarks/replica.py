"""A replica to be measured: ``python -m benchmarks.replica NAMESPACE BUNDLE ID ROUTES NICE [TRACE]``."""

import sys
from pathlib import Path
from typing import cast

from ops.telemetry.logs import set_up_logging
from ranking.consumer.priority import give_way
from schemas.records.fields import Route
from schemas.settings import TimeSettings
from schemas.topics import Namespace


def main(prefix: str, bundle: str, ranker_id: str, routes: str, nice: str, trace: str = "") -> None:
    """Serve until told to stop, without a gate: `intertidal run ranker` writes no trace, and asks for a pool."""
    set_up_logging("ranker")
    names = tuple(cast("Route", route) for route in routes.split(","))
    give_way(names, nice=int(nice))
    from ranking.consumer.worker import RankerOptions, run

    run(
        RankerOptions(
            namespace=Namespace(prefix),
            time=TimeSettings(),
            ranker_id=ranker_id,
            cell="us-east",
            routes=names,
            bundle=Path(bundle),
            nice=int(nice),
            trace_path=Path(trace) if trace else None,
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
