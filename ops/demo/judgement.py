"""What a run on real files cannot judge: a file need not hold a reclaim, nor traffic around it. Pure."""

from collections.abc import Mapping
from typing import Final

from ops.demo.ledger import Ledger

BEFORE: Final = "optional work before the reclaim"
DURING: Final = "optional work shed in the reclaim"
AFTER: Final = "optional work after the reclaim"
# `first_reclaim` ends a reclaim without end here.
NEVER_MS: Final = 1 << 62


def not_judged(ledger: Ledger, offered: Mapping[str, int], reclaim: tuple[int, int] | None) -> dict[str, str]:
    """Rule and why it cannot be judged, for each such one.

    ``offered`` are the extras assigned in the phases before, reclaim and after; ``reclaim`` is from flip to return, ms.
    """
    if reclaim is None:
        return dict.fromkeys((BEFORE, DURING, AFTER), "nothing was taken back within the run")
    flipped_ms, opened_ms = reclaim
    reasons: dict[str, str] = {}
    if offered["before"] == 0:
        reasons[BEFORE] = "no extras were assigned before it"
    if _units_after(ledger, flipped_ms) > 0.0:
        reasons[DURING] = "other hosts stayed offered, and may have ranked everything"
    elif offered["reclaim"] == 0:
        reasons[DURING] = "no extras were assigned in it"
    if opened_ms == NEVER_MS:
        reasons[AFTER] = "what was taken back did not return within the run"
    elif offered["after"] == 0:
        reasons[AFTER] = "no extras were assigned after it"
    return reasons


def _units_after(ledger: Ledger, flipped_ms: int) -> float:
    """Usable units that all hosts together offer once the event at ``flipped_ms`` has happened."""
    told = [[change for change in changes if change.time_ms <= flipped_ms] for changes in ledger.offers.values()]
    return sum(max(changes, key=lambda change: change.time_ms).usable_units for changes in told if changes)
