"""`Pool.map(…, progress=True)`: a bar on stderr."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Sized
from typing import Any


class TextBar:
    """Counts on one line of stderr, for a notebook without widgets."""

    EACH_SECONDS = 0.1

    def __init__(self, total: int | None) -> None:
        self._total, self._done, self._next, self._shown = total, 0, 0.0, False

    def __call__(self, items: int) -> None:
        self._done += items
        if time.monotonic() >= self._next:
            self._show()

    def _show(self) -> None:
        self._next, self._shown = time.monotonic() + self.EACH_SECONDS, True
        of = f"/{self._total} ({100 * self._done // max(1, self._total)} %)" if self._total is not None else ""
        self._write(f"\r{self._done}{of}")

    def close(self) -> None:
        if self._shown:
            self._show()
            self._write("\n")
        self._shown = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class Bar:
    """Progress bar on a terminal or in a notebook, while the map is read: rich takes sys.stdout for that time."""

    def __init__(self, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        self._progress = Progress(*columns, console=console, disable=not (console.is_terminal or console.is_jupyter))
        self._task = self._progress.add_task("", total=total)
        self._progress.start()

    def __call__(self, items: int) -> None:
        self._progress.start()  # again, where the reader was interrupted and reads on
        self._progress.advance(self._task, items)

    def close(self) -> None:
        self._progress.stop()


def is_notebook_without_widgets() -> bool:
    return "ipykernel" in sys.modules and importlib.util.find_spec("ipywidgets") is None


def hook_of(progress: bool | Callable[[int], object], iterables: Iterable[Any]) -> Callable[[int], object] | None:
    """The callable that is told how many more items are done. Raises TypeError."""
    if progress is True:
        sized = [len(one) if isinstance(one, Sized) else None for one in iterables]
        known = [size for size in sized if size is not None]
        total = min(known) if len(known) == len(sized) else None
        return TextBar(total) if is_notebook_without_widgets() else Bar(total)
    if progress is False or progress is None:
        return None
    if not callable(progress):
        raise TypeError(
            f"progress {progress!r}: allowed are True, or what is called with the number of items just done"
        )
    return progress
