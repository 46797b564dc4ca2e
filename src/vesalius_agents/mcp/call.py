"""One call of a tool while it runs: it spends the budget, reports progress, and can be stopped at any layer."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from vesalius.errors import BadInput
from vesalius_agents.experiments import Experiments, metered
from vesalius_agents.mcp.budget import EXECUTIONS, FORWARDS, SECONDS, OutOfBudget
from vesalius_agents.mcp.desk import Connection, Desk

#: The scheme of the addresses of resources.
SCHEME = "vesalius"
#: Seconds between two looks whether a call that waits was cancelled.
_LOOK = 0.05


class Stopped(Exception):
    """The client cancelled the call."""


class Call:
    """What a tool is given beside its arguments."""

    def __init__(self, desk: Desk, connection: Connection, tell: Callable[[str, int, int], None]) -> None:
        self.desk, self.connection = desk, connection
        #: What the whole result of the call is kept as.
        self.key = ""
        self.stopped = threading.Event()
        self.used = {FORWARDS: 0.0, EXECUTIONS: 0.0, SECONDS: 0.0}
        #: What the ledger notes of the call beside its result: submissions, inputs asked, claims tried.
        self.noted: dict[str, Any] = {}
        self._tell, self._stack = tell, ExitStack()
        self._metered: list[int] = []
        self._began: float | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the desk: one call of the server computes at a time, and it is written down before the next begins."""
        while not self.desk.turn.acquire(timeout=_LOOK):
            if self.stopped.is_set():
                raise Stopped
        try:
            yield
        finally:
            self.desk.turn.release()

    def work(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Run a tool, and count its seconds."""
        self._began = time.monotonic()
        try:
            with self._stack:
                return function(self, **arguments)
        finally:
            self.used[SECONDS] = time.monotonic() - self._began

    def progress(self, step: str, done: int, total: int) -> None:
        """Report a step; raises where the call is to stop."""
        self.check()
        self._tell(step, done, total)

    def check(self) -> None:
        """Stop here if the call was cancelled or its seconds are over."""
        if self.stopped.is_set():
            raise Stopped
        spending = self.connection.spending
        elapsed = time.monotonic() - (self._began or time.monotonic())
        if spending.used[SECONDS] + elapsed > spending.budget.seconds:
            spending.require(SECONDS, elapsed)

    def spend(self, forwards: float) -> None:
        """Count forward passes before they are made."""
        self.check()
        spending = self.connection.spending
        if spending.used[FORWARDS] + self.used[FORWARDS] + forwards > spending.budget.forwards:
            spending.require(FORWARDS, self.used[FORWARDS] + forwards)
        self.used[FORWARDS] += forwards

    def execution(self) -> None:
        """Count one execution of code. The passes that a program makes are not counted: executions bound how many
        programs run, and seconds how long.
        """
        self.check()
        self.connection.spending.require(EXECUTIONS, self.used[EXECUTIONS] + 1)
        self.used[EXECUTIONS] += 1

    def specimen(self, name: str, behaviour: str | None = None, *, free: bool = False) -> Any:
        """A loaded specimen whose passes are counted until the call ends, unless they are `free`; seconds are counted
        either way.
        """
        if not free:
            self.require()
        specimen = self.desk.specimen(name, behaviour, self.progress)
        if id(specimen.model) not in self._metered:
            self._metered.append(id(specimen.model))
            count = (lambda _: self.check()) if free else self.spend
            self._stack.enter_context(metered(specimen.model, count))
        return specimen

    def experiments(self, name: str, behaviour: str | None = None, *, free: bool = False) -> Experiments:
        """Claims and the sandbox of a specimen."""
        specimen = self.specimen(name, behaviour, free=free)
        return self.desk.experiments(name, behaviour, specimen)

    def require(self, *names: str) -> None:
        """Refuse work where passes or seconds, or what is named, are used up."""
        for name in names or (FORWARDS, SECONDS):
            self.connection.spending.require(name)

    def require_memory(self, needed: int) -> None:
        """Refuse work that needs more memory than a call may use."""
        if needed > (limit := self.connection.spending.budget.memory):
            raise OutOfBudget(
                f"this needs about {needed / 2**20:,.0f} MB and a call may use {limit / 2**20:,.0f} MB; ask for fewer "
                "prompts or start the server with a larger --memory"
            )

    def keep(self, document: Any, *, kind: str = "results") -> str:
        """Keep a whole result, and return the address of its resource."""
        self.desk.run.write_result(self.key, document)
        return f"{SCHEME}://{kind}/{self.key}"


def require_count(name: str, value: int, most: int) -> None:
    """Refuse a number of prompts or tokens that is none, or far too large."""
    if not 1 <= value <= most:
        raise BadInput(f"{name}={value}: give 1 to {most}")
