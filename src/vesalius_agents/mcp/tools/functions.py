"""Black-box functions: ask them within a budget, say what they do, be graded."""

from typing import Annotated, Any, Literal

from pydantic import Field

from vesalius.errors import BadInput, quoted
from vesalius_agents.mcp.desk import Call
from vesalius_agents.mcp.results import Graded, Received, Rows
from vesalius_agents.mcp.tools.arguments import cut
from vesalius_functions.bench.functions import asked, category_words
from vesalius_functions.box import Answer

Category = Literal["numeric", "strings", "entities", "relations"]
FunctionName = Annotated[str, Field(description="Such as numeric/f00003")]


def list_functions(call: Call, category: Category = "numeric") -> Rows:
    """List black-box functions with hidden rules, and what their inputs are."""
    names = [f"{category}/{one}" for one in call.desk.functions(category).ids]
    text = f"{len(names)} functions, {names[0]} to {names[-1]}. {category_words(category)}"
    return Rows(text=text, rows=[{"function": name} for name in names])


def query_function(
    call: Call,
    function: FunctionName,
    inputs: Annotated[list[float | str], Field(min_length=1, max_length=64)],
) -> Rows:
    """Ask a function: one output per input. Inputs are counted."""
    category, name = _split(function)
    client = call.connection
    _require_open(call, function)
    if function not in client.boxes:
        box = call.desk.functions(category).box(name, budget=client.spending.budget.queries)
        if before := client.asked.get(function):
            box.ask(before)  # as in an earlier process: noise depends on the number of the call
        client.boxes[function] = box
    box = client.boxes[function]
    call.check()
    rows = asked(box, inputs)
    call.noted["asked"] = {function: [row["input"] for row in rows]}
    lines = "\n".join(f"f({row['input']!r}) = {row.get('output', row.get('error'))!r}" for row in rows)
    return Rows(text=cut(f"{lines}\n({box.left} inputs left)", 4_000), rows=rows)


def submit_function(
    call: Call,
    function: FunctionName,
    description: Annotated[str, Field(min_length=1, max_length=4_000)],
    code: Annotated[str | None, Field(max_length=20_000, description="Python: def f(x): ...")] = None,
    domain: Annotated[str | None, Field(max_length=4_000, description="Where the rule does not hold")] = None,
) -> Received:
    """Submit what a function does. Once per function: afterwards it can be neither asked nor described again."""
    category, name = _split(function)
    _require_open(call, function)
    call.desk.functions(category).box(name)
    if not description.strip():
        raise BadInput("description: says nothing; say what the function does, for it is taken once")
    call.noted["answer"] = {function: {"description": description, "code": code, "domain": domain}}
    return Received(text="taken; now call grade_function", received=function)


def grade_function(call: Call, function: FunctionName) -> Graded:
    """The grade of your answer to a function."""
    category, name = _split(function)
    client = call.connection
    answer: dict[str, Any] | None = client.answers.get(function)
    if answer is None:
        raise BadInput(f"function {quoted(function, 60)}: nothing was submitted; call submit_function")
    call.require("seconds")
    result = call.desk.functions(category).grade(name, Answer(**answer, queries=len(client.asked.get(function, ()))))
    metrics = {figure: value for figure, value in result.metrics.items() if value is not None}
    shown = ", ".join(f"{figure} {value:.3g}" for figure, value in metrics.items())
    text = f"{shown}{f'; {cut(result.fault, 300)}' if result.fault else ''}"
    return Graded(text=text or "no figure applies", metrics=metrics, fault=result.fault)


def _split(function: str) -> tuple[Category, str]:
    category, _, name = function.partition("/")
    if category not in ("numeric", "strings", "entities", "relations"):
        raise BadInput(f"function {quoted(function, 60)} does not exist; use a name of list_functions, numeric/f00003")
    return category, name


def _require_open(call: Call, function: str) -> None:
    if function in call.connection.answers:
        raise BadInput(f"function {quoted(function, 60)}: an answer was submitted already; call grade_function")
