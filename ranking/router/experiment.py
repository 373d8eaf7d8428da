"""Who may meet which lever, and what is drawn for whom: the same settings at every router, or results disagree."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct

from ranking.router.arms import ArmSettings
from schemas.segments import SegmentRules


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Arms of users, segments of requests, and the share of requests whose dose of extras is not all that is asked for.

    ``is_aa``: arms and doses are drawn and written down, and everybody is served by base work alone.
    Raises ValueError for a share outside [0, 1].
    """

    arms: ArmSettings = field(default_factory=ArmSettings)
    segments: SegmentRules = field(default_factory=SegmentRules)
    explored_share: float = 0.1
    is_aa: bool = False

    def __post_init__(self) -> None:
        # So written that NaN is refused as well.
        if not 0.0 <= self.explored_share <= 1.0:
            raise ValueError(f"explored_share must be in [0, 1], is {self.explored_share}")


class _Doses(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    explored_share: float = Experiment.explored_share


class _Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    arms: dict[str, float] = {}
    doses: _Doses = _Doses()
    segments: SegmentRules = SegmentRules()
    aa: bool = False


def parse_experiment(text: str) -> Experiment:
    """Settings from TOML, all optional: ``aa``, and tables ``arms``, ``doses`` and ``segments`` as their types have it.

    Raises ValueError for what is no TOML, an unknown or missing name, or a value that is refused.
    """
    try:
        document = msgspec.convert(tomllib.loads(text), _Document)
        return Experiment(
            arms=ArmSettings(**document.arms),
            segments=document.segments,
            explored_share=document.doses.explored_share,
            is_aa=document.aa,
        )
    except TypeError as error:
        raise ValueError(f"arms: {error}") from error
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def load_experiment(path: Path) -> Experiment:
    """Settings of a file; raises ValueError naming the file, OSError where it cannot be read."""
    try:
        return parse_experiment(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
