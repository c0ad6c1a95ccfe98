"""The progress bar of a download."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["download_progress"]


@contextmanager
def download_progress(
    name: str, size: Callable[[], int | None], *, enabled: bool
) -> Iterator[Callable[[int], None] | None]:
    """Show a bar on standard error while the block runs; yield what it is to be told of each piece, or None.

    Without a terminal there is no bar: a log file gains nothing from one. `size` is asked only for a bar, as the store
    may have to be.
    """
    if not enabled or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    # No markup: a name may hold brackets.
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=size())
        yield lambda size: progress.advance(task, size)
