"""What our tasks share: the names they are known by, and inspect's react agent with our tools."""

from collections.abc import Callable
from typing import Any, TypeVar

from inspect_ai.agent import AgentSubmit, as_solver, react
from inspect_ai.solver import Solver
from inspect_ai.tool import Tool

from vesalius.options import Flat, flattened

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
