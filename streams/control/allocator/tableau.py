"""Columns and rows of a linear program as they are added one by one."""

import math
from dataclasses import dataclass, field

import numpy as np

from streams.control.allocator.solver import LinearProgram

# What a row bounds ("accelerator", "cpu", "memory", "work", "cap", "floor"), and of which pool or lever.
RowKey = tuple[str, int]


@dataclass(kw_only=True)
class Columns:
    """Columns as they are added; ``places`` says of which place a column is the units, in which size."""

    num_places: int
    costs: list[float] = field(default_factory=list)
    uppers: list[float] = field(default_factory=list)
    places: dict[int, tuple[int, float]] = field(default_factory=dict)
    of_place: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.of_place = [[] for _ in range(self.num_places)]

    def add(self, *, cost: float, upper: float = math.inf) -> int:
        self.costs.append(cost)
        self.uppers.append(upper)
        return len(self.costs) - 1

    def add_place(self, at: int, *, size: float, cost: float, upper: float = math.inf) -> None:
        column = self.add(cost=cost, upper=upper)
        self.places[column] = at, size
        self.of_place[at].append(column)


@dataclass(kw_only=True)
class Rows:
    """Rows as they are added, each divided by its size."""

    keys: list[RowKey] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    lowers: list[float] = field(default_factory=list)
    uppers: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    columns: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)

    def add(
        self,
        key: RowKey,
        terms: list[tuple[int, float]],
        *,
        size: float,
        lower: float = -math.inf,
        upper: float = math.inf,
    ) -> None:
        self.keys.append(key)
        self.sizes.append(size)
        self.lowers.append(lower / size)
        self.uppers.append(upper / size)
        self.columns += [column for column, _ in terms]
        self.coefficients += [coefficient / size for _, coefficient in terms]
        self.starts.append(len(self.columns))

    def program(self, columns: Columns) -> LinearProgram:
        return LinearProgram(
            costs_N=np.array(columns.costs),
            uppers_N=np.array(columns.uppers),
            row_lowers_M=np.array(self.lowers),
            row_uppers_M=np.array(self.uppers),
            starts_M1=np.array(self.starts, dtype=np.int32),
            columns_E=np.array(self.columns, dtype=np.int32),
            coefficients_E=np.array(self.coefficients),
        )
