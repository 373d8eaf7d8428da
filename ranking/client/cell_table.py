"""Which cells are declared, for who must not keep anything for the others. Pure.

Callers name cells. A name that nobody declared is no reason to refuse a request, as its base work depends on nothing
that the control plane says; but nothing is measured, controlled or remembered for it.
"""

from collections.abc import Callable

from schemas.records import CellDeclaration

# Whether a cell may be reported at a time of the broker's clock, in ms.
IsDeclared = Callable[[str, float], bool]


class CellTable:
    """The latest declaration of each cell. Until it was read whole, and where there is none at all, any cell passes.

    ``is_read`` is asked whether what stood there at the start has been read.
    """

    def __init__(self, is_read: Callable[[], bool] = lambda: False) -> None:
        self._declared: dict[str, CellDeclaration] = {}
        self._is_read = is_read

    def update(self, declaration: CellDeclaration) -> None:
        """Take a declaration in."""
        self._declared[declaration.cell] = declaration

    def remove(self, cell: str) -> None:
        """Take a declaration back."""
        self._declared.pop(cell, None)

    def is_declared(self, cell: str, now_ms: float) -> bool:
        """Whether a cell is declared and not retired. One whose first window has yet to come counts."""
        if not self._is_read() or not self._declared:
            return True
        declaration = self._declared.get(cell)
        if declaration is None:
            return False
        until = declaration.until_window
        return until is None or now_ms < until * declaration.window_ms
