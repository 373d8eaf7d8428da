"""Optional work over a range: what was offered, what was dropped and why, and what it was expected to earn. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from ops.report.model import ArmCounts, Shedding
from schemas.records import Account, ArmGuard
from schemas.records.fields import Lever
from schemas.records.measurement import ARMS, ArmName
from streams.control.facts import MICRO

_COUNTS: Final = tuple(name for name in ArmCounts.__struct_fields__ if name != "arm")


class SheddingTally:
    """Accounts of each lever, summed."""

    def __init__(self) -> None:
        self._sums: defaultdict[Lever, Counter[str]] = defaultdict(Counter)
        self._sheds: defaultdict[Lever, Counter[str]] = defaultdict(Counter)
        self._values: defaultdict[Lever, Counter[str]] = defaultdict(Counter)

    def add(self, accounts: Sequence[Account]) -> None:
        """Take in the accounts of one latency window."""
        for account in accounts:
            if not account.offered:
                continue
            sums = self._sums[account.lever]
            sums.update(
                offered=account.offered,
                admitted=account.admitted,
                late=account.late,
                lost=account.lost,
                value=account.offered_value_micro,
                admitted_value=account.admitted_value_micro,
                num_windows=1,
                num_windows_shedding=int(account.admitted < account.offered),
            )
            self._sheds[account.lever].update({shed.reason: shed.units for shed in account.sheds})
            self._values[account.lever].update({shed.reason: shed.value_micro for shed in account.sheds})

    def shedding(self) -> list[Shedding]:
        """By lever; none without optional work."""
        return [self._of(lever) for lever in sorted(self._sums)]

    def _of(self, lever: Lever) -> Shedding:
        sums = self._sums[lever]
        lost_micro = sums["value"] - sums["admitted_value"]
        return Shedding(
            lever=lever,
            offered_units=sums["offered"],
            admitted_units=sums["admitted"],
            late_units=sums["late"],
            lost_units=sums["lost"],
            sheds=dict(sorted(self._sheds[lever].items())),
            sheds_value={reason: micro / MICRO for reason, micro in sorted(self._values[lever].items())},
            dropped_share=1.0 - sums["admitted"] / sums["offered"] if sums["offered"] else None,
            offered_value=sums["value"] / MICRO,
            lost_value=lost_micro / MICRO,
            value_lost_share=lost_micro / sums["value"] if sums["value"] else None,
            num_windows=sums["num_windows"],
            num_windows_shedding=sums["num_windows_shedding"],
        )


class ArmTally:
    """What became of each arm's requests, over all segments."""

    def __init__(self) -> None:
        self._sums: defaultdict[ArmName, Counter[str]] = defaultdict(Counter)

    def add(self, guard: ArmGuard) -> None:
        """Take in what requests of one segment and arm met in one window."""
        self._sums[guard.arm].update({name: getattr(guard, name) for name in _COUNTS})

    def arms(self) -> list[ArmCounts]:
        """In the order of the arms; none without requests."""
        return [
            ArmCounts(arm=arm, **{name: self._sums[arm][name] for name in _COUNTS})
            for arm in ARMS
            if self._sums[arm]["num_requests"]
        ]
