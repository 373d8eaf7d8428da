"""Declared cells as the log of declarations has them. Pure."""

from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.partition import partition_for
from schemas.records import CellDeclaration, CellLimits
from schemas.topics import CONTROL_CELLS


class Cells:
    """The latest declaration of each cell.

    ``version`` rises with every change, so that whoever derives something from the cells knows when to do it again.
    """

    def __init__(self, *, window_ms: int) -> None:
        self._window_ms = window_ms
        self._declared: dict[str, CellDeclaration] = {}
        self._decoder = Decoder(CONTROL_CELLS.record_types)
        self.version = 0

    def __len__(self) -> int:
        return len(self._declared)

    def read(self, key: bytes | None, value: bytes | None) -> None:
        """Take one record of the log of declarations; an empty value removes the cell of its key.

        Raises RecordError when it cannot be read or believed; what was declared before then stands.
        """
        if not value:
            if key is not None and self._declared.pop(key.decode("utf-8", "replace"), None) is not None:
                self.version += 1
            return
        declaration = self._decoder.decode(value)
        assert isinstance(declaration, CellDeclaration)
        if key != declaration.cell.encode():
            raise RecordError("key_mismatch", f"declares {declaration.cell} under key {key!r}", field="cell")
        self.declare(declaration)

    def declare(self, declaration: CellDeclaration) -> None:
        """Take one declaration; raises RecordError when its windows are not of the length that is in force here."""
        if declaration.window_ms != self._window_ms:
            raise RecordError(
                "invalid_field",
                f"{declaration.cell} is declared in windows of {declaration.window_ms} ms, "
                f"INTERTIDAL_WINDOW_MS is {self._window_ms}",
                field="window_ms",
            )
        self._declared[declaration.cell] = declaration
        self.version += 1

    def knows(self, cell: str) -> bool:
        """Whether the cell is declared for any window."""
        return cell in self._declared

    def is_over(self, cell: str, window_index: int) -> bool:
        """Whether the cell is declared for no window from this one on."""
        declaration = self._declared.get(cell)
        if declaration is None:
            return True
        return declaration.until_window is not None and window_index >= declaration.until_window

    def in_force(self, window_index: int, *, partition: int | None, num_partitions: int) -> dict[str, CellLimits]:
        """Limits of every cell declared for a window whose key leads to the partition (None: to any), by name."""
        return {
            cell: limits
            for cell, declaration in sorted(self._declared.items())
            if partition in (None, partition_for(cell.encode(), num_partitions))
            and (limits := declaration.limits_at(window_index)) is not None
        }
