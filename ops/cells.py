"""How a cell's declaration changes: a new revision is added, none is ever rewritten. Pure."""

from collections.abc import Sequence

from schemas.records import CellDeclaration, CellLimits, CellRevision

# A declaration takes effect this many windows ahead, so that every ingest worker has read it by then.
LEAD_WINDOWS = 2


class CellChangeError(ValueError):
    """A change of a cell that cannot be made; the message names the cell."""


def first_window(now_ms: int, window_ms: int) -> int:
    """First window that a change made now may take effect in."""
    return now_ms // window_ms + LEAD_WINDOWS


def declare(
    existing: CellDeclaration | None,
    cell: str,
    *,
    limits: CellLimits,
    from_window: int,
    window_ms: int,
    providers: Sequence[str] = (),
) -> CellDeclaration:
    """Declaration with ``limits`` in force from ``from_window`` on; CellChangeError where that rewrites history."""
    if existing is None:
        return CellDeclaration(
            cell=cell,
            window_ms=window_ms,
            revisions=[CellRevision(from_window=from_window, limits=limits)],
            providers=list(providers),
        )
    if existing.window_ms != window_ms:
        raise CellChangeError(
            f"cell {cell} is declared with windows of {existing.window_ms} ms, the settings say {window_ms} ms"
        )
    if existing.until_window is not None:
        raise CellChangeError(f"cell {cell} is retired from window {existing.until_window} on; declare a new name")
    kept = [revision for revision in existing.revisions if revision.from_window < from_window]
    if len(kept) < len(existing.revisions) and existing.revisions[-1].from_window > from_window:
        raise CellChangeError(
            f"cell {cell} already has a revision from window {existing.revisions[-1].from_window} on, "
            f"after window {from_window}"
        )
    return CellDeclaration(
        cell=cell,
        window_ms=window_ms,
        revisions=[*kept, CellRevision(from_window=from_window, limits=limits)],
        providers=sorted({*existing.providers, *providers}),
        note=existing.note,
    )


def retire(existing: CellDeclaration | None, cell: str, *, until_window: int) -> CellDeclaration:
    """Declaration that ends before ``until_window``; raises CellChangeError for an unknown or retired cell."""
    if existing is None:
        raise CellChangeError(f"cell {cell} is not declared")
    if existing.until_window is not None:
        raise CellChangeError(f"cell {cell} is already retired from window {existing.until_window} on")
    return CellDeclaration(
        cell=existing.cell,
        window_ms=existing.window_ms,
        revisions=existing.revisions,
        until_window=max(until_window, existing.revisions[0].from_window),
        providers=existing.providers,
        note=existing.note,
    )
