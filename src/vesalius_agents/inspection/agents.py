"""inspect's react agent with our tools."""

from inspect_ai.agent import AgentSubmit, as_solver, react
from inspect_ai.solver import Solver
from inspect_ai.tool import Tool

#: Messages of a sample whose agent never submits.
MESSAGES = 200


def agent_with(tools: list[Tool], submit: Tool) -> Solver:
    """The agent: it works until it submits, or until the sample's limits are reached."""
    return as_solver(react(tools=tools, submit=AgentSubmit(tool=submit, keep_in_messages=True)))
