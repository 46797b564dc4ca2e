"""What lasts between calls: the run directory, loaded models, and for every connection its budget and submissions.

One call computes at a time. A result is kept by what was asked, so that asking again costs nothing; the ledger holds
every finished call, and a server that is started on the same run directory goes on where the last one stopped: budgets,
submissions, and the claims that were decided.
"""

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from vesalius import api
from vesalius.components import Component
from vesalius.errors import BadInput, quoted
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.model.transformer import metered
from vesalius.sandbox import Executions
from vesalius_agents.mcp.calls import ToolRun
from vesalius_agents.session import AgentSession
from vesalius_functions.bench.functions import FunctionCases
from vesalius_functions.options import Drawn
from vesalius_session.budget import Budget, OutOfBudget, Spending
from vesalius_session.session import Memory
from vesalius_session.setting import LazyWorkspace, Setting, setting_of

#: What a connection may use, unless the server is started with other limits.
BUDGET = Budget(forwards=2_000_000, executions=100, seconds=1_800, memory=2 << 30, queries=400)
EXHAUSTED = (
    "budget exhausted: all {limit:,.0f} {words} of this connection are used; "
    "submit what you have (submit_explanation, submit_function), or ask for a larger budget"
)
MOST_SPECIMENS = 3
#: The scheme of the addresses of resources.
SCHEME = "vesalius"
#: Seconds between two looks whether a call that waits was cancelled.
_LOOK = 0.05
Kept = TypeVar("Kept")


@dataclass
class Connection:
    """One client: what it has used, what it has submitted, what it has asked of functions and what it knows."""

    name: str
    spending: Spending
    #: Explanations by specimen, answers by function, as they were submitted.
    explanations: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Inputs asked of each function.
    asked: dict[str, list[Any]] = field(default_factory=dict)
    #: Boxes that were opened in this process.
    boxes: dict[str, Any] = field(default_factory=dict)
    #: What is known of each specimen with a behaviour, and decided claims of the ledger that it does not hold yet.
    memories: dict[str, Memory] = field(default_factory=dict)
    unread: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    n_decided: int = 0


@dataclass(frozen=True)
class Options:
    """How a server is started."""

    root: Path
    budget: Budget = BUDGET
    functions_seed: int = 2309
    functions: int = 50
    hub: bool = False
    unsafe_sandbox: bool = False
    #: Clients over HTTP that have a budget and submissions of their own; with 1, all share one.
    clients: int = 1


class Equipment:
    """The settings and the sandbox of one specimen, which the sessions of all connections share. In a natural model
    every component that claims are about has held-out prompts of its own.
    """

    def __init__(self, specimen: Specimen, *, memory: int | None, unsafe: bool) -> None:
        self.specimen, self.listed = specimen, isinstance(specimen.vocabulary, FiniteVocabulary)
        self._stack, self._settings = ExitStack(), dict[str, Setting]()
        self.setting = self.setting_for(specimen.components[0])
        limits = self.setting.limits
        if memory is not None:
            limits = replace(limits, memory_bytes=min(memory, limits.memory_bytes))
        held = replace(self.setting, limits=limits)
        self.workspace = LazyWorkspace(held, self._stack, Executions(), unsafe=unsafe)

    def setting_for(self, part: Component) -> Setting:
        """The setting in which a component is studied."""
        name = "" if self.listed else str(part)
        if name not in self._settings:
            self._settings[name] = setting_of(self.specimen, None if self.listed else [part], self._stack, seed=0)
        return self._settings[name]

    def close(self) -> None:
        """End the sandbox."""
        self._stack.close()


class Desk:
    """Everything that the tools of one server share."""

    def __init__(self, run: Path, options: Options) -> None:
        self.options = options
        known = {str(one.id) for one in api.specimens()}
        behaviours = {one.name for one in api.behaviours()}
        self.names = Names(options.root, known=known, behaviours=behaviours, hub=options.hub)
        settings = {"functions_seed": options.functions_seed, "functions": options.functions}
        limits = {name: limit for name in Budget.__dataclass_fields__ if (limit := getattr(options.budget, name))}
        self.run = ToolRun(run, settings=settings, limits=limits)
        self.turn = threading.Lock()
        self._specimens: OrderedDict[Any, Any] = OrderedDict()
        self._equipment: OrderedDict[Any, Equipment] = OrderedDict()
        self._functions: dict[str, FunctionCases] = {}
        self._cache: dict[str, dict[str, Any]] = {}
        self._connections: dict[str, Connection] = {}
        #: Whose a whole result is, where it came of a call whose answer is not the same for everybody.
        self.owners: dict[str, str] = {}
        self._writing = threading.Lock()
        for record in self.run.calls:
            self._take_in(record)

    def connection(self, name: str) -> Connection:
        """The client of this name, with what it has used in earlier processes."""
        with self._writing:
            if name not in self._connections:
                self._connections[name] = Connection(name, Spending(self.options.budget, EXHAUSTED))
            return self._connections[name]

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

    def equipment(self, name: str, behaviour: str | None, specimen: Specimen) -> Equipment:
        """The settings and the sandbox of a specimen; of those used longest ago the sandbox is ended."""
        options: dict[str, Any] = {"memory": self.options.budget.memory, "unsafe": self.options.unsafe_sandbox}
        return self._kept(self._equipment, (name, behaviour), lambda: Equipment(specimen, **options), Equipment.close)

    def functions(self, category: str) -> FunctionCases:
        """The black-box functions of a category."""
        if category not in self._functions:
            self._functions[category] = FunctionCases.chosen(
                category,
                Drawn(self.options.functions, self.options.functions_seed),
                repeatable=True,
                unsafe_sandbox=self.options.unsafe_sandbox,
            )
        return self._functions[category]

    def close(self) -> None:
        """End sandboxes and release the run directory."""
        with ExitStack() as stack:
            stack.callback(self.run.close)
            for one in self._equipment.values():
                stack.callback(one.close)

    def _take_in(self, record: dict[str, Any]) -> None:
        """What a record of the ledger says about its connection and the cache."""
        client = self.connection(record["connection"])
        client.spending.add(**record["used"])
        if not record["ok"] or record.get("cached"):
            return
        if record.get("key"):
            self._cache[record["key"]] = record["result"]
        elif address := (record["result"] or {}).get("resource"):
            self.owners[str(address).rpartition("/")[2]] = client.name
        noted = record.get("noted") or {}
        for name, value in noted.get("explanation", {}).items():
            client.explanations[name] = value
        for name, value in noted.get("answer", {}).items():
            client.answers[name] = value
        for name, value in noted.get("asked", {}).items():
            client.asked.setdefault(name, []).extend(value)
        for name, decided in noted.get("decided", {}).items():
            client.unread.setdefault(name, []).extend(decided)
            client.n_decided += len(decided)

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


class Stopped(Exception):
    """The client cancelled the call."""


class Call:
    """One call of a tool while it runs: it spends the budget, reports progress, and can be stopped at any layer. What
    a tool is given beside its arguments.
    """

    def __init__(self, desk: Desk, connection: Connection, tell: Callable[[str, int, int], None]) -> None:
        self.desk, self.connection = desk, connection
        #: What the whole result of the call is kept as.
        self.key = ""
        self.stopped = threading.Event()
        before = connection.spending
        self.spending = Spending(before.budget, before.refusal, before)
        #: What the ledger notes of the call beside its result: submissions, inputs asked, claims decided.
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
            self.spending.used["seconds"] = time.monotonic() - self._began

    def progress(self, step: str, done: int, total: int) -> None:
        """Report a step; raises where the call is to stop."""
        self.check()
        self._tell(step, done, total)

    def check(self) -> None:
        """Stop here if the call was cancelled or its seconds are over."""
        if self.stopped.is_set():
            raise Stopped
        elapsed = time.monotonic() - (self._began or time.monotonic())
        if elapsed > self.spending.left_of("seconds"):
            self.spending.require("seconds", elapsed)

    def spend(self, forwards: float) -> None:
        """Count forward passes before they are made."""
        self.check()
        if forwards > self.spending.left_of("forwards"):
            self.spending.require("forwards", forwards)
        self.spending.add(forwards=forwards)

    def specimen(self, name: str, behaviour: str | None = None, *, free: bool = False) -> Any:
        """A loaded specimen whose passes are counted until the call ends, unless they are `free`; seconds are counted
        either way.
        """
        if not free:
            self.require("forwards", "seconds")
        specimen = self.desk.specimen(name, behaviour, self.progress)
        if id(specimen.model) not in self._metered:
            self._metered.append(id(specimen.model))
            count = (lambda _: self.check()) if free else self.spend
            self._stack.enter_context(metered(specimen.model, count))
        return specimen

    def features(self, name: Any) -> str | None:
        """The directory of dictionaries that is named, below the root; None where none is."""
        return None if name is None else self.desk.names.features(name)

    def session(self, name: str, behaviour: str | None = None, *, free: bool = False) -> AgentSession:
        """The session of this connection on a specimen, with what was decided in it before. It works on a copy of what
        is known: only what is written down in the end counts.
        """
        equipment = self.desk.equipment(name, behaviour, self.specimen(name, behaviour, free=free))
        client, place = self.connection, place_of(equipment.specimen)
        known = client.memories.setdefault(place, Memory())
        setting_for = None if equipment.listed else equipment.setting_for
        session = AgentSession(
            equipment.setting, equipment.workspace, spending=self.spending, memory=known, setting_for=setting_for
        )
        for one in client.unread.pop(place, ()):
            session.recall(one["claim"], one["record"])
        session.memory = known.copy()
        return session

    def require(self, *names: str) -> None:
        """Refuse work where what is named is used up."""
        for name in names:
            self.spending.require(name)

    def require_memory(self, needed: int) -> None:
        """Refuse work that needs more memory than a call may use."""
        limit = self.spending.budget.memory
        if limit is not None and needed > limit:
            raise OutOfBudget(
                f"this needs about {needed / 2**20:,.0f} MB and a call may use {limit / 2**20:,.0f} MB; ask for fewer "
                "prompts or start the server with a larger --memory"
            )

    def keep(self, document: Any, *, kind: str = "results") -> str:
        """Keep a whole result, and return the address of its resource."""
        self.desk.run.write_result(self.key, document)
        return f"{SCHEME}://{kind}/{self.key}"


def place_of(specimen: Specimen) -> str:
    """What a connection's memory is kept by: specimen and behaviour."""
    return f"{specimen.id}/{getattr(specimen.behaviour, 'name', specimen.behaviour)}"[:300]


def key_of(tool: str, arguments: dict[str, Any], *more: str) -> str:
    """What a call asks, as the name of its result."""
    text = json.dumps([tool, arguments, *more], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


# Which models and files an agent may name: what ships, and what lies below the directory of `--root`.

#: Where the core and its wings lie: in a checkout the folder of sources.
_PACKAGES = [path.parent for path in Path(__file__).resolve().parents[2].glob("vesalius*/__init__.py")]
_BEHAVIOURS = (".jsonl", ".json", ".csv", ".toml")
_CIRCUIT = "circuit "


def blind_name(specimen: Any) -> str:
    """The name of a specimen as agents see it: that of a benchmark circuit would tell its task."""
    return f"{_CIRCUIT}{specimen.id}" if specimen.kind == "benchmark" else specimen.name


class Names:
    """Reads names of specimens and behaviours; `root` is the only directory from which files are read by path."""

    def __init__(self, root: Path, *, known: set[str], behaviours: set[str], hub: bool = False) -> None:
        if not root.is_dir():
            raise BadInput(f"`root` {root}: no such directory")
        self.root, self._known, self._behaviours, self._hub = root.resolve(), known, behaviours, hub

    def specimen(self, name: str) -> str:
        """What `api.load` is given for a name: a specimen that ships, by id or blind name, or a path below the root."""
        if (listed := name.removeprefix(_CIRCUIT)) in self._known:
            return listed
        place = self._below(name, "specimen")
        if place is not None:
            return str(place)
        if "/" in name and self._hub and not name.startswith((".", "/", "~")) and name.count("/") == 1:
            return name
        raise BadInput(
            f"specimen {quoted(name, 80)} is not known; use an id of list_specimens (circuits go by "
            "number, since their names would tell their tasks) or a path below the server's root"
        )

    def behaviour(self, name: str | None) -> Any:
        """A behaviour by name, or a file of rows below the root."""
        if name is None or name in self._behaviours or name.partition(":")[0] in self._behaviours:
            return name
        place = self._below(name, "behaviour")
        if place is None or place.suffix not in _BEHAVIOURS or not place.is_file():
            known = ", ".join(sorted(self._behaviours))
            raise BadInput(f"behaviour {quoted(name, 80)} does not exist; use {known}, or a file below the root")
        if any((near / "specimen.json").is_file() for near in (place.parent, place.parent.parent)):
            raise BadInput(f"behaviour {quoted(name, 80)}: a file of a specimen is not one of prompts; give another")
        return str(place)

    def features(self, name: Any) -> str:
        """A directory of sparse dictionaries below the root."""
        place = self._below(name, "features") if isinstance(name, str) else None
        if place is None or not place.is_dir():
            raise BadInput(f"features {quoted(name, 80)} does not exist; give a directory below the server's root")
        return str(place)

    def _below(self, name: str, what: str) -> Path | None:
        """A path below the root that exists; None where there is none. Links are followed before it is decided."""
        try:
            place = (self.root / name).resolve()
            exists = place.is_relative_to(self.root) and place.exists()
        except (OSError, ValueError, RuntimeError):
            return None
        # Said of any such path, so that no caller learns what exists outside.
        if not place.is_relative_to(self.root):
            raise BadInput(f"{what} {quoted(name, 80)}: lies outside the server's root, which is all that is read")
        if not exists or place == self.root:
            return None
        if any(map(place.is_relative_to, _PACKAGES)):
            raise BadInput(f"{what} {quoted(name, 80)}: lies in the package itself; use a name of list_specimens")
        return place
