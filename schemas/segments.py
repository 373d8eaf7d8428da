"""Segments: for whom the incremental effect of a lever is measured, as rules over what a request carries. Pure."""

import struct

from msgspec import Struct

from schemas.records.fields import FLOAT32_BYTES, INT64_BYTES, Count, Label, Name
from schemas.records.ranking import RankingRequest

# A request whose caller names no segment, or that fits no rule.
NO_SEGMENT = "(none)"
# Stands for all segments that a list has no room for.
OTHER_SEGMENT = "(other)"
# As many segments as an interval record has room for.
MAX_SEGMENTS = 64


def segment_of(advertiser_segment: str) -> str:
    """Segment of a request where no rules are declared: its label, or ``(none)`` where it has none."""
    return advertiser_segment or NO_SEGMENT


class FeatureRange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one number of ``user_features`` must be: in [at_least, below), open at the end that is not given.

    A request that carries no such number does not fit.
    """

    index: Count
    at_least: float | None = None
    below: float | None = None

    def __post_init__(self) -> None:
        low, high = self.at_least, self.below
        if low is None and high is None:
            raise ValueError(f"the range of feature {self.index} needs at_least or below")
        # So written that NaN is refused as well.
        for bound in (low, high):
            if bound is not None and not abs(bound) < float("inf"):
                raise ValueError(f"the range of feature {self.index} is bounded by {bound}")
        if low is not None and high is not None and not low < high:
            raise ValueError(f"the range of feature {self.index} is empty: {low} to {high}")

    def fits(self, packed: bytes) -> bool:
        """Whether the number that stands there is in the range."""
        first = self.index * FLOAT32_BYTES
        if first + FLOAT32_BYTES > len(packed):
            return False
        (value,) = struct.unpack_from("<f", packed, first)
        return (self.at_least is None or value >= self.at_least) and (self.below is None or value < self.below)


class SegmentRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: a request that fits all that is given belongs to segment ``name``; a list names what will do.

    ``min_past_ads`` is the shortest history that fits.
    """

    name: Name
    cell: list[Label] = []
    platform: list[Label] = []
    advertiser_segment: list[Label] = []
    provider: list[Label] = []
    features: list[FeatureRange] = []
    min_past_ads: Count = 0

    def __post_init__(self) -> None:
        if self.name == OTHER_SEGMENT:
            raise ValueError(f"{OTHER_SEGMENT} stands for all segments that are not listed")

    def fits(self, request: RankingRequest) -> bool:
        """Whether a request fits."""
        return (
            (not self.cell or request.cell in self.cell)
            and (not self.platform or request.platform in self.platform)
            and (not self.advertiser_segment or request.advertiser_segment in self.advertiser_segment)
            and (not self.provider or request.provider in self.provider)
            and len(request.history_ids) >= self.min_past_ads * INT64_BYTES
            and all(feature.fits(request.user_features) for feature in self.features)
        )


class SegmentRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Declared segments: the first rule that fits counts, ``default`` where none does.

    Without rules a request's segment is the label that its caller gave it.
    """

    rules: list[SegmentRule] = []
    default: Name = NO_SEGMENT

    def __post_init__(self) -> None:
        names = {rule.name for rule in self.rules} | {self.default}
        if len(names) > MAX_SEGMENTS:
            raise ValueError(f"{len(names)} segments are declared, at most {MAX_SEGMENTS} are told apart")

    def of(self, request: RankingRequest) -> str:
        """Segment of one request, the same wherever and whenever it is asked."""
        if not self.rules:
            return segment_of(request.advertiser_segment)
        return next((rule.name for rule in self.rules if rule.fits(request)), self.default)
