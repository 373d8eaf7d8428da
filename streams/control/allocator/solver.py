"""The thin edge to HiGHS, behind one function, so that anything else, a failure too, can take its place.

Huangfu and Hall, Parallelizing the dual revised simplex method, Mathematical Programming Computation 10 (2018). The
same program leads to the same bytes: one thread, the dual simplex in one order, no presolve (which costs more than it
saves at this size), a solver made anew for every program. What bounds its time is a number of iterations, not a clock,
so that a replay fails where the live run failed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from highspy import Highs, HighsLp, HighsModelStatus, HighsStatus, MatrixFormat
from numpy.typing import NDArray

# Programs of 8 pools, 3 levers and 192 pieces take about 25.
MAX_ITERATIONS = 20_000
TOLERANCE = 1e-9
_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    "solver": "simplex",
    "simplex_strategy": 1,
    "presolve": "off",
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
}


class UnsolvedError(RuntimeError):
    """The solver did not come to an optimum."""


@dataclass(frozen=True, kw_only=True)
class LinearProgram:
    """Minimise costs over columns in [0, upper] with each row's sum in [lower, upper].

    N columns, M rows, and E coefficients by rows: those of row m stand at ``starts_M1[m]`` to ``starts_M1[m + 1]``.
    """

    costs_N: NDArray[np.float64]
    uppers_N: NDArray[np.float64]
    row_lowers_M: NDArray[np.float64]
    row_uppers_M: NDArray[np.float64]
    starts_M1: NDArray[np.int32]
    columns_E: NDArray[np.int32]
    coefficients_E: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Columns at the optimum, and by how much a row's bound, one larger, changes the cost."""

    columns_N: NDArray[np.float64]
    row_duals_M: NDArray[np.float64]


class _Silent(Highs):
    """HiGHS without callbacks into Python, which take long to set up and print a banner before any option is set."""

    def __init__(self) -> None:
        super(Highs, self).__init__()


Solver = Callable[[LinearProgram], Solution]


def solve(program: LinearProgram, *, max_iterations: int = MAX_ITERATIONS) -> Solution:
    """The optimum of a program. Raises UnsolvedError where HiGHS finds none within ``max_iterations``."""
    highs = _Silent()
    for name, value in {**_OPTIONS, "simplex_iteration_limit": max_iterations}.items():
        if highs.setOptionValue(name, value) != HighsStatus.kOk:
            raise UnsolvedError(f"HiGHS knows no option {name}={value}")
    if highs.passModel(_model(program)) == HighsStatus.kError or highs.run() == HighsStatus.kError:
        raise UnsolvedError("HiGHS refused the program")
    status = highs.getModelStatus()
    if status != HighsModelStatus.kOptimal:
        raise UnsolvedError(f"HiGHS: {highs.modelStatusToString(status)}")
    found = highs.getSolution()
    columns_N = np.array(found.col_value, dtype=np.float64)
    row_duals_M = np.array(found.row_dual, dtype=np.float64)
    if not (np.isfinite(columns_N).all() and np.isfinite(row_duals_M).all()):
        raise UnsolvedError("HiGHS: a solution that is no number")
    return Solution(columns_N=columns_N, row_duals_M=row_duals_M)


def _model(program: LinearProgram) -> HighsLp:
    model = HighsLp()
    model.num_col_ = len(program.costs_N)
    model.num_row_ = len(program.row_lowers_M)
    model.col_cost_ = program.costs_N
    model.col_lower_ = np.zeros_like(program.costs_N)
    model.col_upper_ = program.uppers_N
    model.row_lower_ = program.row_lowers_M
    model.row_upper_ = program.row_uppers_M
    model.a_matrix_.format_ = MatrixFormat.kRowwise
    model.a_matrix_.start_ = program.starts_M1
    model.a_matrix_.index_ = program.columns_E
    model.a_matrix_.value_ = program.coefficients_E
    return model
