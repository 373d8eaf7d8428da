"""Which architectures there are: the project's own, and those that installed packages bring.

A package of yours adds one by an entry point, whose name is what manifests say:

    [project.entry-points."intertidal.models"]
    own-model = "own_model:ARCHITECTURE"

So the code of a model is what somebody installed. A bundle holds data and a name: no code, and no path to any.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol

import msgspec
from torch import Tensor

from ranking.models.baseline import BaselineConfig, BaselineModel
from ranking.models.cost import BASELINE_COST, ModelCost
from ranking.models.protocol import RankingModel
from ranking.models.wukong import WukongConfig, WukongModel, expected_cost

ENTRY_POINTS = "intertidal.models"


class UnknownArchitectureError(Exception):
    """An architecture that cannot be had here; one line that says why."""


class ModelConfig(Protocol):
    """What every config says, whatever its architecture; configs are msgspec structs with bounded fields."""

    @property
    def num_features(self) -> int:
        """Features of each user."""


class BundledModel(RankingModel, Protocol):
    """A model that can be written as a bundle: a PyTorch module whose whole state is in its `state_dict`."""

    @property
    def architecture(self) -> str:
        """Name of its architecture."""

    @property
    def config(self) -> Any:
        """What it was built from."""

    def state_dict(self) -> dict[str, Tensor]:
        """Its tensors by name."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How models of one kind are built.

    `config_type` is a msgspec struct with a field `num_features`; bound its fields, as a config is read before it is
    believed. `build` makes a model of a config and a version, a `torch.nn.Module`; it is called on the meta device,
    where tensors have shapes and no memory. `cost` is what such a model is expected to cost before it was measured.
    """

    config_type: type[msgspec.Struct]
    build: Callable[[Any, str], RankingModel]
    cost: Callable[[Any], ModelCost]


BUILT_IN = {
    BaselineModel.architecture: Architecture(
        config_type=BaselineConfig, build=BaselineModel, cost=lambda _: BASELINE_COST
    ),
    WukongModel.architecture: Architecture(config_type=WukongConfig, build=WukongModel, cost=expected_cost),
}


def architecture_named(name: str) -> Architecture:
    """The built-in architecture of that name, or the one that an installed package brings.

    Raises: UnknownArchitectureError where there is none, where two packages bring it, and where it cannot be imported.
    """
    built_in = BUILT_IN.get(name)
    if built_in is not None:
        return built_in
    found = entry_points(group=ENTRY_POINTS, name=name)
    if len(found) != 1:
        what = f"architecture {name} is neither built in ({', '.join(BUILT_IN)}) nor that of an installed package"
        if found:
            what = f"architecture {name} is brought by {len(found)} installed packages: keep one"
        raise UnknownArchitectureError(what)
    (entry_point,) = found
    try:
        architecture = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise UnknownArchitectureError(
            f"architecture {name}: {entry_point.value} cannot be imported: {error}"
        ) from error
    if not isinstance(architecture, Architecture):
        raise UnknownArchitectureError(f"architecture {name}: {entry_point.value} is no Architecture")
    return architecture
