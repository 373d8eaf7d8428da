"""One record of control.windows taken in, as the live agent and a replay both do it. Pure.

1. it is believed, or refused as it stands;
2. its window is applied to the state of its cell. A window that cannot be applied would fail again after every restart,
   and hold up all cells of its partition: it is refused, and the cell goes without.
"""

from schemas.dead_letters import RawRecord, envelope
from schemas.errors import RecordError
from schemas.records import ControlWindow, DeadLetter
from streams.control.processor import Applied, apply
from streams.control.settings import ControlSettings
from streams.control.state import CellState

PART = "control"
STAGE = "window"


def applied(state: CellState, window: ControlWindow, *, settings: ControlSettings) -> Applied:
    """What ``apply`` gives; raises RecordError ``cannot_be_applied``, with the cause, where it fails."""
    try:
        return apply(state, window, settings=settings)
    except Exception as error:
        raise RecordError("cannot_be_applied", f"{type(error).__name__}: {error}") from error


def letter_of(record: RawRecord, error: RecordError) -> DeadLetter:
    """The dead letter of a refused record of control.windows."""
    return envelope(record, error, part=PART, stage=STAGE)
