"""How long work reports what it is doing: one shape of callback, and what shows it.

Every function that takes long accepts `progress`, called as `progress(step, done, total)`; `total` is 0 where it is not
known. `shown` turns the option of the same name of a public function into such a callback: a bar in a terminal or a
notebook, plain lines on stderr elsewhere, or nothing. `VESALIUS_PROGRESS=0` in the environment silences the default.
"""

import html
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

Progress = Callable[[str, int, int], None]
#: Seconds between plain lines; work that takes less prints nothing.
LINE_EVERY = 10.0
#: Seconds between updates of a notebook's bar, and before the first.
BAR_EVERY, BAR_AFTER = 0.2, 1.0
SILENT = "VESALIUS_PROGRESS"
#: The variable that tells a worker its number among those that work at the same time.
REPLICA = "VESALIUS_REPLICA"


def silent(step: str, done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def shown(progress: Progress | bool | None = None) -> Iterator[Progress]:
    """The callback for an option `progress`: None or True shows bars or lines, False nothing; a function is itself."""
    if callable(progress):
        yield progress
    elif progress is False or (progress is None and os.environ.get(SILENT) == "0"):
        yield silent
    elif _in_notebook():
        with _notebook_bar() as bar:
            yield bar
    elif sys.stderr.isatty():
        with _terminal_bar() as bar:
            yield bar
    else:
        yield Lines(sys.stderr)


class Lines:
    """Plain lines: one at most every `LINE_EVERY` seconds, the first no earlier."""

    def __init__(self, file: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock, self._last = file, clock, clock()

    def __call__(self, step: str, done: int, total: int) -> None:
        if self._clock() - self._last >= LINE_EVERY:
            self._last = self._clock()
            print(f"{step}: {done} of {total}" if total else step, file=self._file, flush=True)


@contextmanager
def _terminal_bar() -> Iterator[Progress]:
    """A bar that begins with the first report and is gone afterwards."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=None)

    def update(step: str, done: int, total: int) -> None:
        bar.start()
        bar.update(task, description=step, completed=done, total=total or None)

    try:
        yield update
    finally:
        bar.stop()


@contextmanager
def _notebook_bar() -> Iterator[Progress]:
    """The browser's own progress element, drawn again in place; needs nothing but IPython itself."""
    from IPython.display import HTML, display  # type: ignore[reportMissingImports]

    begun, last, handle = time.monotonic(), 0.0, None

    def update(step: str, done: int, total: int) -> None:
        nonlocal last, handle
        now = time.monotonic()
        if now - begun < BAR_AFTER or now - last < BAR_EVERY:
            return
        last, drawn = now, HTML(bar_html(step, done, total))
        if handle is None:
            handle = display(drawn, display_id=True)
        else:
            handle.update(drawn)

    try:
        yield update
    finally:
        if handle is not None:
            handle.update(HTML(""))


def bar_html(step: str, done: int, total: int) -> str:
    """One step of the work as an HTML progress element."""
    place = f' value="{done}" max="{total}"' if total else ""
    return f"<progress{place}></progress> {html.escape(step)}{f' {done}/{total}' if total else ''}"


def _in_notebook() -> bool:
    """Whether this process is a notebook's kernel; IPython in a terminal is a terminal."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


# Long work that can be stopped from outside: between layers and batches it asks whether to continue.
#
#     with stoppable(check):
#         ves.faithfulness(...)
#
# `check(step, done, total)` is called often, from the thread that works, and raises `Stopped` to end it; `step` is
# empty where only that is asked. Work that is not watched pays one look-up for each layer.

_CHECK: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("check", default=None)


class Stopped(Exception):
    """The work was stopped on request; the message says why."""


@contextmanager
def stoppable(check: Progress) -> Iterator[None]:
    """Let `check` decide whether the work in this block goes on."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def checkpoint(step: str = "", done: int = 0, total: int = 0) -> None:
    """Where work can be stopped, and says how far it is."""
    check = _CHECK.get()
    if check is not None:
        check(step, done, total)
