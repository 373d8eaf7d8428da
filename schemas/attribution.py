"""The attribution token: what an outcome must echo so that it can be counted without a join.

Version 1 is plain text, ``1|cell|arm|dose|intake_ms|segment``: readable, not yet tamper-evident.
"""

from dataclasses import dataclass

_VERSION = "1"


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """Where and how a request was ranked: what its outcomes are counted under."""

    cell: str
    arm: str
    dose: int
    intake_ms: int
    advertiser_segment: str

    def token(self) -> str:
        return "|".join((_VERSION, self.cell, self.arm, str(self.dose), str(self.intake_ms), self.advertiser_segment))


def parse_token(token: str) -> Attribution:
    """Attribution in a token; raises ValueError for another version or a broken one."""
    parts = token.split("|", 5)
    if len(parts) != 6 or parts[0] != _VERSION:
        raise ValueError(f"attribution token {token[:64]!r} is not of version {_VERSION}")
    return Attribution(
        cell=parts[1], arm=parts[2], dose=int(parts[3]), intake_ms=int(parts[4]), advertiser_segment=parts[5]
    )
