"""Accounts of optional items by lever, which must add up exactly. Pure."""

from collections import defaultdict

from schemas.errors import RecordError
from schemas.records import Account, ShedUnits
from schemas.records.fields import Lever
from streams.ingest.bounds import OTHER, bounded, largest

# Reasons for which a window lists what was shed; the contract knows about ten.
MAX_REASONS = 64


def believe_account(account: Account, *, field: str) -> None:
    """Raise RecordError unless what was offered is what was admitted, shed, late or lost, in units and in value."""
    ended = account.admitted + account.late + account.lost + sum(shed.units for shed in account.sheds)
    if account.offered != ended:
        raise RecordError("invalid_field", f"offered {account.offered} units, ended {ended}", field=field)
    ended_value = (
        account.admitted_value_micro
        + account.late_value_micro
        + account.lost_value_micro
        + sum(shed.value_micro for shed in account.sheds)
    )
    if account.offered_value_micro != ended_value:
        raise RecordError(
            "invalid_field", f"offered a value of {account.offered_value_micro}, ended {ended_value}", field=field
        )


class _Lever:
    """Sums of one lever: units and value of each ending."""

    def __init__(self) -> None:
        self.admitted = self.late = self.lost = 0
        self.admitted_value = self.late_value = self.lost_value = 0
        self.shed_units: defaultdict[str, int] = defaultdict(int)
        self.shed_values: defaultdict[str, int] = defaultdict(int)


class AccountSums:
    """Accounts of one window, summed up by lever and, for what was shed, by reason."""

    def __init__(self) -> None:
        self._levers: dict[Lever, _Lever] = {}

    def add(self, account: Account) -> None:
        """Add one account that adds up."""
        sums = self._levers.setdefault(account.lever, _Lever())
        sums.admitted += account.admitted
        sums.late += account.late
        sums.lost += account.lost
        sums.admitted_value += account.admitted_value_micro
        sums.late_value += account.late_value_micro
        sums.lost_value += account.lost_value_micro
        for shed in account.sheds:
            sums.shed_units[shed.reason] += shed.units
            sums.shed_values[shed.reason] += shed.value_micro

    def accounts(self) -> list[Account]:
        """One account a lever, in order of levers and reasons, that adds up again."""
        return [_account(lever, sums) for lever, sums in sorted(self._levers.items())]


def _account(lever: Lever, sums: _Lever) -> Account:
    sheds = _sheds(sums)
    admitted, late, lost = bounded(sums.admitted), bounded(sums.late), bounded(sums.lost)
    admitted_value, late_value, lost_value = map(bounded, (sums.admitted_value, sums.late_value, sums.lost_value))
    return Account(
        lever=lever,
        offered=bounded(admitted + late + lost + sum(shed.units for shed in sheds)),
        admitted=admitted,
        late=late,
        lost=lost,
        sheds=sheds,
        offered_value_micro=bounded(admitted_value + late_value + lost_value + sum(shed.value_micro for shed in sheds)),
        admitted_value_micro=admitted_value,
        late_value_micro=late_value,
        lost_value_micro=lost_value,
    )


def _sheds(sums: _Lever) -> list[ShedUnits]:
    kept, rest = largest(sums.shed_units, MAX_REASONS)
    units = {reason: sums.shed_units[reason] for reason in kept}
    values = {reason: sums.shed_values[reason] for reason in kept}
    if rest:
        units[OTHER] = sum(sums.shed_units[reason] for reason in rest)
        values[OTHER] = sum(sums.shed_values[reason] for reason in rest)
    return [
        ShedUnits(reason=reason, units=bounded(units[reason]), value_micro=bounded(values[reason]))
        for reason in sorted(units)
    ]
