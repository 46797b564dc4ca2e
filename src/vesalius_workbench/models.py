"""Loaded specimens and the clean runs of their prompts, kept between questions.

One question is worked on at a time, so that two windows take turns instead of doubling memory; more than a few waiting
are refused. The least recently used specimen goes first.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from vesalius import api
from vesalius.api.knockouts import answer, prepare
from vesalius.api.looking import MOST_TOKENS
from vesalius.documents.experiments import WhatIf
from vesalius.errors import BadInput
from vesalius.options import Draw, Edit, Force
from vesalius.progress import stoppable
from vesalius_workbench.store import located
from vesalius_workbench.working import Work, current

MOST_SPECIMENS, MOST_RUNS, MOST_WAITING = 2, 6, 32
#: Seconds after which waiting work looks whether it was cancelled.
LOOK = 0.2
#: Prompts of one what-if: more would take longer than a page should wait.
MOST_PROMPTS = 256
Kept = TypeVar("Kept")


class Busy(Exception):
    """Too many questions are waiting."""


class Models:
    """What the server keeps in memory. `allowed` are names and paths that may be loaded beside those that ship;
    `started_in` is a directory whose files may be read beside those of the one that is open.
    """

    def __init__(self, directory: Path, allowed: set[str], started_in: Path | None = None) -> None:
        self.directory, self.allowed = directory.resolve(), allowed
        self.started_in = None if started_in is None else started_in.resolve()
        self._specimens: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._runs: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._turn, self._waiting, self._count = threading.Lock(), 0, threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for one's turn to compute; work that is cancelled ends while it waits or at its next layer."""
        work = current() or Work()
        with self._count:
            if self._waiting >= MOST_WAITING:
                raise Busy
            self._waiting += 1
        try:
            while not self._turn.acquire(timeout=LOOK):
                work.check()
            try:
                work.begin()
                work.check()
                with stoppable(work.check):
                    yield
            finally:
                work.end()
                self._turn.release()
        finally:
            with self._count:
                self._waiting -= 1

    @staticmethod
    def report(step: str, done: int, total: int) -> None:
        """What work reports of itself goes to the page that waits for it."""
        if (work := current()) is not None:
            work.check(step, done, total)

    def specimen(self, name: str, behaviour: str | None, options: Mapping[str, Any] | None = None) -> Any:
        """A loaded specimen; call it in one's turn. `options` are further ones of `load`."""
        given: dict[str, Any] = {"behaviour": behaviour, **(options or {})}
        for what in ("behaviour", "tokenizer"):
            if isinstance(file := given.get(what), str):
                given[what] = located(self.directory, file, what, self.started_in)
        place = name if name in self.allowed else located(self.directory, name, "specimen", self.started_in)
        return kept(
            self._specimens,
            (name, *sorted((option, repr(value)) for option, value in given.items())),
            lambda: api.load(place, **given, progress=self.report),
            MOST_SPECIMENS,
        )

    def what_if(self, asked: dict[str, Any]) -> WhatIf:
        """Answer a what-if; the clean run of the same prompts is kept. Call it in one's turn."""
        name, behaviour = asked["specimen"], asked.get("behaviour")
        specimen = self.specimen(name, behaviour)
        if asked["n"] > MOST_PROMPTS:
            raise BadInput(f"n={asked['n']}: at most {MOST_PROMPTS} prompts here; `vesalius what-if` takes more")
        edit = Edit(asked["kind"], asked.get("at"), asked.get("prompt"), asked.get("source"))
        draw = Draw(asked["n"], asked["seed"], asked["split"])
        for given in (edit.prompt, edit.source):
            if given is not None and (length := specimen.vocabulary.lengths([given])[0]) > MOST_TOKENS:
                raise BadInput(
                    f"prompt: has {length} tokens; at most {MOST_TOKENS} here; `vesalius what-if` takes more"
                )
        loaded = [id(one) for one in self._specimens.values()]
        for key in [key for key, run in self._runs.items() if id(run.specimen) not in loaded]:
            del self._runs[key]  # it would keep a model in memory that was let go
        key = (name, behaviour, repr(edit.prompt), repr(edit.source), draw)  # not str: a prompt may be the word None
        ready = kept(self._runs, key, lambda: prepare(specimen, edit, draw), MOST_RUNS)
        return answer(ready, asked["components"], edit, draw, Force(True))  # the page shows the contrast with it


def kept(cache: OrderedDict[Any, Kept], key: Any, make: Callable[[], Kept], most: int) -> Kept:
    """What was made for this key before, or is made now; those used last are kept."""
    if key not in cache:
        cache[key] = make()
        while len(cache) > most:
            cache.popitem(last=False)
    cache.move_to_end(key)
    return cache[key]
