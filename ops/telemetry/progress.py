"""Progress of something that takes a while: a bar on a terminal, nothing in a pipe."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, *, total: int | None = None, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Shows `what` while the block runs, on stderr; yields a function to report how many more are done.

    `total` is the number of steps, None when it is not known. With a `unit` of theirs, the rate and the time left are
    shown too.
    """
    # rich comes with the demo's extra; a host without it waits in silence.
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda _num_done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.completed:,.0f} {unit}, {task.speed or 0.0:,.0f} a second, left:")

    columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn()]
    columns += [Rate(), TimeRemainingColumn()] if unit else [TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda num_done: shown.advance(task, num_done)
