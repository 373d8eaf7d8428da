"""Where a partition's reading may start again, and what is already out: an offset and its commit metadata. Pure."""

from dataclasses import dataclass

import msgspec


class ProgressError(ValueError):
    """Commit metadata that this processor did not write, or wrote under other settings."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A place to start reading from, with what must be known to go on from there as if nothing had happened.

    ``offset``: first offset to read. ``before_ms``: largest append time before it, None where nothing counted.
    ``last_offset``: last offset processed, -1 for none; no dead letter up to it is sent again. ``largest_ms``: largest
    append time up to there. ``next_window``: first window not yet emitted.
    """

    offset: int
    before_ms: int | None = None
    last_offset: int = -1
    largest_ms: int | None = None
    next_window: int | None = None


class _Metadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """JSON of the commit metadata; its letters are short because the broker stores them with every commit."""

    v: int
    w: int
    n: int | None
    c: int | None
    o: int
    b: int | None
    s: str = ""


VERSION = 1


def to_metadata(progress: Progress, *, window_ms: int, settings: str = "") -> str:
    """Commit metadata of a progress, as compact JSON; the offset itself is the commit's."""
    return msgspec.json.encode(
        _Metadata(
            v=VERSION,
            w=window_ms,
            n=progress.next_window,
            c=progress.largest_ms,
            o=progress.last_offset,
            b=progress.before_ms,
            s=settings,
        )
    ).decode()


def from_metadata(offset: int, metadata: str | None, *, window_ms: int, settings: str | None = "") -> Progress:
    """Progress of a commit; raises ProgressError with the sentence why it cannot be gone on from.

    ``settings`` None: whatever they are, for who only looks.
    """
    if not metadata:
        raise ProgressError("the commit has no metadata")
    try:
        held = msgspec.json.decode(metadata, type=_Metadata)
    except msgspec.DecodeError as error:
        raise ProgressError(f"the commit's metadata cannot be read: {error}") from None
    if held.v != VERSION:
        raise ProgressError(f"the commit's metadata is of version {held.v}, not {VERSION}")
    if held.w != window_ms:
        raise ProgressError(f"the commit counts windows of {held.w} ms, INTERTIDAL_WINDOW_MS is {window_ms}")
    if settings is not None and held.s != settings:
        raise ProgressError(
            f"the commit's windows are of the settings {held.s or '(none)'}, not {settings or '(none)'}"
        )
    if (held.n is None) != (held.c is None) or (held.c is None and held.b is not None) or held.o < -1:
        raise ProgressError("the commit's metadata contradicts itself")
    if held.c is not None and held.b is not None and held.b > held.c:
        raise ProgressError("the commit's metadata contradicts itself")
    return Progress(offset=offset, before_ms=held.b, last_offset=held.o, largest_ms=held.c, next_window=held.n)
