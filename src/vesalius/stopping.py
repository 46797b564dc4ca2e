"""Long work that can be stopped from outside: between layers and batches it asks whether to continue.

    with stoppable(check):
        ves.faithfulness(...)

`check(step, done, total)` is called often, from the thread that works, and raises `Stopped` to end it; `step` is empty
where only that is asked. Work that is not watched pays one look-up for each layer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from vesalius.progress import Progress

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
