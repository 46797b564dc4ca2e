"""What our tasks share: the names they are known by, and inspect's react agent with our tools."""

from collections.abc import Callable
from typing import TypeVar

from inspect_ai.agent import AgentSubmit, as_solver, react
from inspect_ai.solver import Solver
from inspect_ai.tool import Tool

#: Messages of a sample whose agent never submits.
MESSAGES = 200

Registered = TypeVar("Registered", bound=Callable[..., object])


def ours(function: Registered) -> Registered:
    """Have what a decorator of inspect registers known as `vesalius/NAME`: inspect takes the first part from the
    package of the module, and a wing's is not the name of the distribution.
    """
    function.__module__ = "vesalius"
    return function


def agent_with(tools: list[Tool], submit: Tool) -> Solver:
    """The agent: it works until it submits, or until the sample's limits are reached."""
    return as_solver(react(tools=tools, submit=AgentSubmit(tool=submit, keep_in_messages=True)))
