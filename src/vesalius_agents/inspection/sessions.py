"""What a sample has open while it is solved: an investigation of its specimen, or the box of its function.

`opened` is the first solver of a task: it writes into the sample's store what the tools open, when they are first used,
and with `brief` puts the briefing in the place of the sample's input. The store and the messages hold nothing of the
answer key. `close` is the task's cleanup.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
from inspect_ai.agent import AgentSubmit, as_solver, react
from inspect_ai.model import ChatMessageUser
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool
from inspect_ai.util import store

from vesalius.errors import BadInput
from vesalius.options import Flat, flattened
from vesalius_agents.session import AgentSession, Allowed, investigate
from vesalius_functions.box import Box

# What our tasks share: the names they are known by, and inspect's react agent with our tools.

#: Messages of a sample whose agent never submits.
MESSAGES = 200

Made = TypeVar("Made")


def ours(function: Callable[..., Made]) -> Callable[..., Made]:
    """Have what a decorator of inspect registers known as `vesalius/NAME`: inspect takes the first part from the
    package of the module, and a wing's is not the name of the distribution. Fields of records are parameters of a task.
    """
    made: Any = flattened(function) if Flat.of(function).records else function
    made.__module__ = "vesalius"
    return made


def agent_with(tools: list[Tool], submit: Tool) -> Solver:
    """The agent: it works until it submits, or until the sample's limits are reached."""
    return as_solver(react(tools=tools, submit=AgentSubmit(tool=submit, keep_in_messages=True)))


SESSION, OPTIONS, ANSWER = "vesalius:session", "vesalius:options", "vesalius:answer"
Opened = TypeVar("Opened")
_SESSIONS: dict[str, Any] = {}
_LOCKS: dict[str, threading.Lock] = {}
_REGISTRY = threading.Lock()


@solver
@ours
def opened(
    specimen: str | None = None,
    *,
    components: str | None = None,
    behaviour: str | None = None,
    budget: dict[str, int] | None = None,
    n: int | None = None,
    seed: int = 0,
    brief: bool = False,
    locate: bool = False,
) -> Solver:
    """Make a specimen known to the tools; by default the one that the sample's metadata name.

    `components` is the circuit ("all": every component), `budget` the looks, executions and claims of an agent, `brief`
    replaces the sample's input by what an agent has to know, `locate` if it is to find the circuit.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        name = specimen if specimen is not None else state.metadata.get("specimen")
        if name is None:
            raise BadInput("the sample names no specimen; put one into its metadata, or into opened(specimen=...)")
        options = {"components": components, "behaviour": behaviour, "budget": budget, "n": n, "seed": seed}
        store().set(OPTIONS, {"specimen": name, **options})
        store().set(SESSION, state.uuid)
        if brief:
            text = await in_thread(lambda: investigation().briefing(locate=locate))
            state.messages = [ChatMessageUser(content=text)]
        return state

    return solve


async def close(state: TaskState) -> None:
    """End what a sample has open."""
    with _REGISTRY:
        session = _SESSIONS.pop(state.uuid, None)
        _LOCKS.pop(state.uuid, None)
    if isinstance(session, AgentSession):
        await anyio.to_thread.run_sync(session.close)


async def in_thread(work: Callable[[], Opened]) -> Opened:
    """Work that takes long, beside the event loop."""
    return await anyio.to_thread.run_sync(work)


def investigation() -> AgentSession:
    """The investigation of the sample under way, opened if it is not yet."""
    options = store().get(OPTIONS)
    if options is None:
        raise BadInput(
            "no specimen is open in this sample; put vesalius_agents.inspection.sessions.opened() before the agent"
        )

    def make() -> AgentSession:
        given = dict(options)
        budget = Allowed(**(given.pop("budget") or {})).budget()
        return investigate(given.pop("specimen"), given.pop("components"), budget=budget, **given)

    return session(make, AgentSession)


def box_of_sample() -> Box:
    """The box of the function of the sample under way."""
    found = _SESSIONS.get(store().get(SESSION, ""))
    if not isinstance(found, Box):
        raise BadInput("no function is open in this sample; query_function is a tool of vesalius_functions")
    return found


def session(make: Callable[[], Opened], kind: type[Opened]) -> Opened:
    """What the sample has open, made if there is nothing yet; two tools at once make one."""
    key = store().get(SESSION)
    with _REGISTRY:
        lock = _LOCKS.setdefault(key, threading.Lock())
    with lock:
        if key not in _SESSIONS:
            _SESSIONS[key] = make()
        found = _SESSIONS[key]
    assert isinstance(found, kind)
    return found
