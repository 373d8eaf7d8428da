"""The replica of `benchmarks.mixed`: ``python -m benchmarks.mixed_replica NAMESPACE BUNDLE TRACE``."""

import sys
from pathlib import Path

from ops.telemetry.logs import set_up_logging
from ranking.consumer.options import RankerOptions
from ranking.consumer.worker import run
from schemas.settings import TimeSettings
from schemas.topics import Namespace


def main(prefix: str, bundle: str, trace: str) -> None:
    """Serve until told to stop; `intertidal run ranker` writes no trace."""
    set_up_logging("ranker")
    run(
        RankerOptions(
            namespace=Namespace(prefix),
            time=TimeSettings(),
            ranker_id="mixed",
            cell="us-east",
            routes=("baseline", "wide"),
            bundle=Path(bundle),
            trace_path=Path(trace),
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
