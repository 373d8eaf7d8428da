"""Traffic files that a scenario's TOML names; their paths count from the TOML's folder."""

from pathlib import Path

from ops.simulator.files.wanted import (
    MAX_FROM_S,
    MAX_HOSTS,
    MAX_RATE,
    MAX_SPEED,
    MIN_RATE,
    MIN_SPEED,
    WantedArrivals,
    WantedCapacity,
)
from ops.simulator.toml_table import Table

_CAPACITY = "capacity_file"
_DECIDED_BY_FILE = ("hosts", "capacity_changes", "random_reclaims")
_ARRIVAL_KEYS = ("path", "from_s", "speed", "rate")


def wanted_arrivals(table: Table, folder: Path, *, is_file: bool) -> WantedArrivals | None:
    """From the table ``arrivals``: ``path`` and factors of arrivals by file. Raises ScenarioError."""
    if not is_file:
        for key in _ARRIVAL_KEYS:
            if key in table:
                table.fail(key, 'belongs to arrivals of process "file"')
        return None
    return WantedArrivals(
        path=str(folder / table.text("path")),
        from_s=table.optional_number("from_s", at_least=0.0, at_most=MAX_FROM_S),
        speed=table.optional_number("speed", at_least=MIN_SPEED, at_most=MAX_SPEED),
        rate=table.optional_number("rate", at_least=MIN_RATE, at_most=MAX_RATE),
    )


def wanted_capacity(root: Table, folder: Path) -> WantedCapacity | None:
    """The table ``capacity_file``, None where there is none. Raises ScenarioError, also for hosts beside it."""
    table = root.table(_CAPACITY)
    if _CAPACITY not in root:
        return None
    for key in _DECIDED_BY_FILE:
        if key in root:
            root.fail(key, f"stands beside {_CAPACITY}, which decides it")
    wanted = WantedCapacity(
        path=str(folder / table.text("path")),
        from_s=table.optional_number("from_s", at_least=0.0, at_most=MAX_FROM_S),
        speed=table.optional_number("speed", at_least=MIN_SPEED, at_most=MAX_SPEED),
        hosts=table.count("hosts", at_least=1, at_most=MAX_HOSTS) if "hosts" in table else None,
    )
    table.finish()
    return wanted


def wanted_pairs(table: Table, folder: Path) -> str | None:
    """From the table ``requests``: the path of a file of quantiles, if any."""
    path = table.optional_text("pairs_file")
    return None if path is None else str(folder / path)
