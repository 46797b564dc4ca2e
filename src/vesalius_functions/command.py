"""Any command as interpreter: the function is offered to it as JSON lines on stdin and stdout.

    us       {"protocol": "vesalius-function/1", "category": "numeric", "input": {...}, "budget": 400, ...}
    command  {"query": [0.5, 1.5]}
    us       {"values": [3.0, null], "errors": [null, "division by zero"], "asked": 2, "left": 398}
    command  {"answer": {"description": "...", "code": "def f(x): ...", "domain": "..."}}

A query that does not fit what is left of the budget is answered by `{"error": ...}` and costs nothing. A line that is
neither a query nor an answer ends the conversation: it costs this function's answer and no other's.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vesalius.errors import quoted
from vesalius.files import plain_json
from vesalius.json_lines import LONGEST_CONVERSATION, TIMEOUT, LineProgram
from vesalius_functions.answer import Answer, json_value
from vesalius_functions.box import Box, OutOfQueries, Reply

PROTOCOL = "vesalius-function/1"
#: Inputs and outputs of each category, for programs that serve several.
FORMS: dict[str, dict[str, Any]] = {
    "numeric": {"input": {"type": "number", "low": -128, "high": 128}, "output": {"type": "number"}},
    "strings": {"input": {"type": "string"}, "output": {"type": "string"}},
    "entities": {"input": {"type": "string"}, "output": {"type": "number", "low": 0, "high": 1}},
    "relations": {"input": {"type": "string"}, "output": {"type": "string"}},
}
#: Inputs of one query.
MOST_AT_ONCE = 10_000


class _GivenAnswer(BaseModel):
    """What a command may say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    description: str
    domain: str | None = None
    code: str | None = None
    structure: dict[str, Any] = Field(default_factory=dict)
    table: bool = False


def interpret_by_command(command: str, box: Box, *, seed: int = 0, timeout: float = TIMEOUT) -> Answer:
    """Start the command, answer its queries from the box, and return its answer."""
    with LineProgram(command, timeout=timeout) as program:
        program.send(task_of(box, seed=seed, timeout=timeout))
        while True:
            line = program.receive()
            if set(line) == {"query"}:
                program.send(_queried(line["query"], box))
            elif set(line) == {"answer"}:
                return _answer(program, line["answer"])
            else:
                raise program.failed(f"wrote {quoted(line, 80)}; a line is {{'query': [...]}} or {{'answer': {{...}}}}")


def task_of(box: Box, *, seed: int, timeout: float) -> dict[str, Any]:
    """The first line: what is asked, and the limits."""
    return {
        "protocol": PROTOCOL,
        "category": box.category,
        **FORMS[box.category],
        "budget": box.budget,
        "most_at_once": MOST_AT_ONCE,
        "timeout_seconds": timeout,
        "seconds": LONGEST_CONVERSATION,
        "seed": seed,
        **({} if box.layers is None else {"layers": box.layers}),
        "answer": {"description": "text", "code": "Python that defines f, or null", "domain": "text, or null"},
    }


def _queried(inputs: Any, box: Box) -> dict[str, Any]:
    """The outputs, or why nothing was asked."""
    if not isinstance(inputs, list) or not inputs:
        return {"error": f"a query is a list of inputs, not {quoted(inputs, 60)}", "left": box.left}
    if len(inputs) > MOST_AT_ONCE:
        return {"error": f"{len(inputs)} inputs in one query; ask at most {MOST_AT_ONCE}", "left": box.left}
    if any(isinstance(value, list | dict) for value in inputs):
        return {"error": "an input is a number or a text; a query is a flat list of them", "left": box.left}
    try:
        replies = box.ask(inputs)
    except OutOfQueries as error:
        return {"error": str(error), "left": box.left}
    return {**values_of(replies), "asked": box.asked, "left": box.left}


def values_of(replies: list[Reply]) -> dict[str, Any]:
    """Replies as JSON: a value each, null where there is none, and then why. NaN and infinities are texts."""
    values = [json_value(reply.value) for reply in replies]
    errors = [reply.error for reply in replies]
    return {"values": values, **({"errors": errors} if any(errors) else {})}


def _answer(program: LineProgram, given: Any) -> Answer:
    try:
        answer = _GivenAnswer.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("answer", *first["loc"])))
        raise program.failed(f"gave an answer that cannot be read: {where}: {first['msg']}") from None
    return Answer(**answer.model_dump(exclude={"structure"}), structure=plain_json(answer.structure))
