"""What a simulation can be steered by: the controller of production, and what it is compared with."""

from typing import Final

from ops.twin import oracle, threshold
from ops.twin.cell import CellTwin
from ops.twin.controllers import Production
from ops.twin.metrics import CellRun
from ops.twin.play import CellPlay
from ops.twin.threshold import ThresholdRule
from ops.twin.value import ValueTable

CONTROLLERS: Final = (Production.name, threshold.NAME, oracle.NAME)


def run_of(controller: str, play: CellPlay, table: ValueTable) -> CellRun:
    """One cell under a controller of ``CONTROLLERS``."""
    if controller == oracle.NAME:
        return oracle.oracle_run(play, table)
    steering = ThresholdRule(table) if controller == threshold.NAME else Production(play.name)
    return CellTwin(play, steering, table).run()
