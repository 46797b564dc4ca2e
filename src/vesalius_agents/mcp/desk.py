"""What lasts between calls: the run directory, loaded models, and for every connection its budget and submissions.

One call computes at a time. A result is kept by what was asked, so that asking again costs nothing; the ledger holds
every finished call, and a server that is started on the same run directory goes on where the last one stopped.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from vesalius import api
from vesalius.errors import BadInput, quoted
from vesalius_agents.experiments import Experiments, Tries
from vesalius_agents.mcp.budget import Budget, Spending
from vesalius_agents.mcp.paths import Names, blind_name
from vesalius_agents.mcp.runs import ToolRun
from vesalius_functions.bench.function_cases import FunctionCases

MOST_SPECIMENS = 3
#: How the names of connections begin that have a budget each.
OWN_BUDGET = ("client-", "session-")
Kept = TypeVar("Kept")


@dataclass
class Connection:
    """One client: what it has used, what it has submitted, and what it has asked of functions."""

    name: str
    spending: Spending
    #: Explanations by specimen, answers by function, as they were submitted.
    explanations: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Inputs asked of each function, and claims tried by specimen, behaviour and component.
    asked: dict[str, list[Any]] = field(default_factory=dict)
    tried: dict[str, Tries] = field(default_factory=dict)
    #: Boxes that were opened in this process.
    boxes: dict[str, Any] = field(default_factory=dict)

    @property
    def n_tried(self) -> int:
        """How many claims count as tried."""
        return sum(one.kinds.total() + len(one.programs) for one in self.tried.values())

    def tries_of(self, subject: str) -> Tries:
        """The claims tried on a component."""
        return self.tried.setdefault(subject, Tries())


@dataclass(frozen=True)
class Options:
    """How a server is started."""

    root: Path
    budget: Budget = field(default_factory=Budget)
    functions_seed: int = 2309
    functions: int = 50
    hub: bool = False
    unsafe_sandbox: bool = False
    #: Clients over HTTP that have a budget and submissions of their own; with 1, all share one.
    clients: int = 1


class Desk:
    """Everything that the tools of one server share."""

    def __init__(self, run: Path, options: Options) -> None:
        self.options = options
        known = {str(one.id) for one in api.specimens()}
        behaviours = {one.name for one in api.behaviours()}
        self.names = Names(options.root, known=known, behaviours=behaviours, hub=options.hub)
        settings = {"functions_seed": options.functions_seed, "functions": options.functions}
        limits = {name: getattr(options.budget, name) for name in Budget.__dataclass_fields__}
        self.run = ToolRun(run, settings=settings, limits=limits)
        self.turn = threading.Lock()
        self._specimens: OrderedDict[Any, Any] = OrderedDict()
        self._experiments: OrderedDict[Any, Experiments] = OrderedDict()
        self._functions: dict[str, FunctionCases] = {}
        self._cache: dict[str, dict[str, Any]] = {}
        self._connections: dict[str, Connection] = {}
        self._writing = threading.Lock()
        for record in self.run.calls:
            self._take_in(record)

    def connection(self, name: str) -> Connection:
        """The client of this name, with what it has used in earlier processes."""
        with self._writing:
            if name not in self._connections:
                self._connections[name] = Connection(name, Spending(self.options.budget))
            return self._connections[name]

    def admit(self, name: str) -> None:
        """Refuse a client over HTTP beyond those that the server was started for: a new name would be a new budget."""
        with self._writing:
            others = {one for one in self._connections if one.startswith(OWN_BUDGET) and one != name}
        if name.startswith(OWN_BUDGET) and len(others) >= self.options.clients:
            raise BadInput(
                f"client {quoted(name.partition('-')[2], 40)}: the server has its {self.options.clients} clients "
                "already; start it with more --clients"
            )

    def cached(self, key: str) -> dict[str, Any] | None:
        """The result of the same call before."""
        return self._cache.get(key)

    def write(self, **fields: Any) -> None:
        """Write a finished call down and remember it."""
        with self._writing:
            record = self.run.append(**fields)
        self._take_in(record)

    def specimen(self, name: str, behaviour: str | None, progress: Callable[[str, int, int], None]) -> Any:
        """A loaded specimen, without the name that would tell its task; those used last are kept."""
        place, given = self.names.specimen(name), self.names.behaviour(behaviour)

        def load() -> Any:
            specimen = api.load(place, behaviour=given, progress=progress)
            return replace(specimen, name=blind_name(specimen))

        return self._kept(self._specimens, (place, given), load)

    def experiments(self, name: str, behaviour: str | None, specimen: Any) -> Experiments:
        """The claims and the sandbox of a specimen; of those used longest ago the sandbox is ended."""
        options: dict[str, Any] = {"memory": self.options.budget.memory, "unsafe": self.options.unsafe_sandbox}
        return self._kept(
            self._experiments, (name, behaviour), lambda: Experiments(specimen, **options), Experiments.close
        )

    def functions(self, category: str) -> FunctionCases:
        """The black-box functions of a category."""
        if category not in self._functions:
            self._functions[category] = FunctionCases.chosen(
                category,
                seed=self.options.functions_seed,
                count=self.options.functions,
                repeatable=True,
                unsafe_sandbox=self.options.unsafe_sandbox,
            )
        return self._functions[category]

    def close(self) -> None:
        """End sandboxes and release the run directory."""
        with ExitStack() as stack:
            stack.callback(self.run.close)
            for one in self._experiments.values():
                stack.callback(one.close)

    def _take_in(self, record: dict[str, Any]) -> None:
        """What a record of the ledger says about its connection and the cache."""
        client = self.connection(record["connection"])
        client.spending.add(**record["used"])
        if not record["ok"] or record.get("cached"):
            return
        if record.get("key"):
            self._cache[record["key"]] = record["result"]
        noted = record.get("noted") or {}
        for name, value in noted.get("explanation", {}).items():
            client.explanations[name] = value
        for name, value in noted.get("answer", {}).items():
            client.answers[name] = value
        for name, value in noted.get("asked", {}).items():
            client.asked.setdefault(name, []).extend(value)
        for one in noted.get("tried", ()):
            subject, *counted = one if isinstance(one, list) else one.rpartition("/")[::2]  # as it was written once
            client.tries_of(subject).add(*counted)

    def _kept(
        self,
        store: OrderedDict[Any, Kept],
        key: Any,
        make: Callable[[], Kept],
        drop: Callable[[Kept], None] = lambda _: None,
    ) -> Kept:
        if key not in store:
            store[key] = make()
            while len(store) > MOST_SPECIMENS:
                drop(store.popitem(last=False)[1])
        store.move_to_end(key)
        return store[key]


def key_of(tool: str, arguments: dict[str, Any], *more: str) -> str:
    """What a call asks, as the name of its result."""
    text = json.dumps([tool, arguments, *more], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
