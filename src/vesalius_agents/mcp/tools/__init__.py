"""The tools: plain functions that take a `Call` and typed arguments, call `api`, and return a `Result`.

The first line of a docstring, and what follows it, is what an agent reads. `TOOLS` is the whole list, in the order in
which it is offered.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vesalius_agents.mcp.results import Result
from vesalius_agents.mcp.tools.explaining import (
    check_claim,
    explain,
    grade,
    report,
    run_code,
    submit_explanation,
    which_variable,
)
from vesalius_agents.mcp.tools.functions import grade_function, list_functions, query_function, submit_function
from vesalius_agents.mcp.tools.measuring import (
    align,
    atlas,
    attention,
    describe_specimen,
    discover,
    intervene,
    lens,
    list_specimens,
    predict,
    sweep,
    why_attends,
)


@dataclass(frozen=True)
class ToolEntry:
    """A tool. `kept`: the same call gives the same result, so it is made once."""

    function: Callable[..., Result]
    kept: bool = True


TOOLS = (
    ToolEntry(list_specimens),
    ToolEntry(describe_specimen),
    ToolEntry(predict),
    ToolEntry(atlas),
    ToolEntry(attention),
    ToolEntry(why_attends),
    ToolEntry(lens),
    ToolEntry(sweep),
    ToolEntry(discover),
    ToolEntry(intervene),
    ToolEntry(align),
    ToolEntry(which_variable),
    ToolEntry(check_claim, kept=False),
    ToolEntry(run_code),
    ToolEntry(explain),
    ToolEntry(report),
    ToolEntry(submit_explanation, kept=False),
    ToolEntry(grade, kept=False),
    ToolEntry(list_functions),
    ToolEntry(query_function, kept=False),
    ToolEntry(submit_function, kept=False),
    ToolEntry(grade_function, kept=False),
)
