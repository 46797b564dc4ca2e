"""Who interprets, by name.

`builtin` searches without a language model. `oracle` knows the truth: what it scores is the ceiling. `table` asks for
points and interpolates between them: it predicts and understands nothing, and is the baseline of the numeric functions.
`aia`, `milan` and `aia+milan` need a language model. Others bring their own: `command:./mine.sh` is a program that asks
by JSON lines (`command`), `answers:DIR` reads what an agent wrote about functions that were served to it (`serving`),
and a plug-in's name or `package.module:function` is called with the box and `seed=`, and returns an `Answer`; with
`confined:` before it, it runs as a confined program like a command (`guest`).
"""

import hashlib
import os
import random
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vesalius.documents.base import Ran
from vesalius.errors import BadInput, Failed, choices, quoted
from vesalius.files import plain_json
from vesalius.json_lines import LONGEST_CONVERSATION, TIMEOUT, arguments_of, command_of
from vesalius.plugins import INTERPRETERS, find_plugin, named_function
from vesalius.sandbox.command import NOTHING, Grants
from vesalius.sandbox.line_program import LineProgram
from vesalius_backbones import Backbone
from vesalius_functions.agents import DialogueLimits, interpret_with
from vesalius_functions.agents.dialogue import exemplars_for
from vesalius_functions.box import Answer, Box, Function, Interpreter, OutOfQueries, Reply, json_value, layers_of
from vesalius_functions.serving import answer_in, answers_directory
from vesalius_functions.suite import Suite

# Any command as interpreter: the function is offered to it as JSON lines on stdin and stdout.
#
#     us       {"protocol": "vesalius-function/1", "category": "numeric", "input": {...}, "budget": 400, ...}
#     command  {"query": [0.5, 1.5]}
#     us       {"values": [3.0, null], "errors": [null, "division by zero"], "asked": 2, "left": 398}
#     command  {"answer": {"description": "...", "code": "def f(x): ...", "domain": "..."}}
#
# A query that does not fit what is left of the budget, or of `MOST_IN_ALL`, is answered by `{"error": ...}` and costs
# nothing. A line that is neither a query nor an answer ends the conversation: it costs this function's answer and no
# other's.

PROTOCOL = "vesalius-function/1"
#: Inputs and outputs of each category, for programs that serve several.
FORMS: dict[str, dict[str, Any]] = {
    "numeric": {"input": {"type": "number", "low": -128, "high": 128}, "output": {"type": "number"}},
    "strings": {"input": {"type": "string"}, "output": {"type": "string"}},
    "entities": {"input": {"type": "string"}, "output": {"type": "number", "low": 0, "high": 1}},
    "relations": {"input": {"type": "string"}, "output": {"type": "string"}},
}
#: Inputs of one query, and of one function where no budget is given: the caller keeps every one of them.
MOST_AT_ONCE, MOST_IN_ALL = 10_000, 200_000


class _GivenAnswer(BaseModel):
    """What a command may say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    description: str
    domain: str | None = None
    code: str | None = None
    structure: dict[str, Any] = Field(default_factory=dict)
    table: bool = False


class ConfinedOptions(TypedDict, total=False):
    """How a command is confined; see `LineProgram`."""

    grants: Grants
    own: Sequence[str]
    log: Path | None


def interpret_by_command(
    command: str, box: Box, *, seed: int = 0, timeout: float = TIMEOUT, **confined: Unpack[ConfinedOptions]
) -> tuple[Answer, Ran]:
    """Start the command, answer its queries from the box, and return its answer and how it ran."""
    with LineProgram(command, timeout=timeout, **confined) as program:
        program.send(task_of(box, seed=seed, timeout=timeout))
        while True:
            line = program.receive()
            if set(line) == {"query"}:
                program.send(_queried(line["query"], box))
            elif set(line) == {"answer"}:
                return _answer(program, line["answer"]), Ran(**vars(program.ran))
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


def _queried(inputs: object, box: Box) -> dict[str, Any]:
    """The outputs, or why nothing was asked."""
    if not isinstance(inputs, list) or not inputs:
        return {"error": f"a query is a list of inputs, not {quoted(inputs, 60)}", "left": box.left}
    if len(inputs) > MOST_AT_ONCE:
        return {"error": f"{len(inputs)} inputs in one query; ask at most {MOST_AT_ONCE}", "left": box.left}
    if any(isinstance(value, list | dict) for value in inputs):
        return {"error": "an input is a number or a text; a query is a flat list of them", "left": box.left}
    if box.asked + len(inputs) > MOST_IN_ALL:
        return {"error": f"a function is asked at most {MOST_IN_ALL} inputs by a program", "left": box.left}
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


def _answer(program: LineProgram, given: object) -> Answer:
    try:
        answer = _GivenAnswer.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("answer", *first["loc"])))
        raise program.failed(f"gave an answer that cannot be read: {where}: {first['msg']}") from None
    return Answer(**answer.model_dump(exclude={"structure"}), structure=plain_json(answer.structure))


BUILTIN, ORACLE, TABLE = "builtin", "oracle", "table"
AIA, MILAN, BOTH = "aia", "milan", "aia+milan"
NAMES = (BUILTIN, ORACLE, TABLE, AIA, MILAN, BOTH)
WITH_MODEL = (AIA, MILAN, BOTH)
WITH_EXEMPLARS = (MILAN, BOTH)
ASKING = (AIA, BOTH)
#: How many points a table asks for where no budget is given.
TABLE_POINTS = 256


@dataclass(frozen=True)
class Interpretation:
    """An answer and, where exemplars were shown, how many of the function's own list are test items as well; of a
    foreign program, how it ran.
    """

    answer: Answer
    exemplar_overlap: int | None = None
    ran: Ran | None = None


def check_interpreter(name: str, category: str, *, backbone: str | None) -> None:
    """Refuse a name that does not exist, or that does not go with the category or the language model."""
    if name in NAMES:
        pass
    elif (command := command_of(name)) is not None:
        arguments_of(command)
    elif (guest := confined_guest(name)) is not None:
        guest_command(guest)
    elif answers_directory(name) is not None:
        pass
    else:
        _guest(name)
    if name == TABLE and category != "numeric":
        raise BadInput("interpreter table interpolates between numbers; use it with `category` numeric")
    if name in WITH_MODEL and backbone is None:
        raise BadInput(f"interpreter {name} needs a language model; name one, as in `backbone` openai:gpt-5.4")
    if name in (BUILTIN, ORACLE, TABLE) and backbone is not None:
        raise BadInput(f"`backbone`: interpreter {name} asks no language model; use one of {choices(WITH_MODEL)}")


def check_white_box(name: str, suite: Suite) -> None:
    """Refuse white-box access where no function is a net, or where the interpreter would not look at one."""
    if name in (BUILTIN, ORACLE, TABLE) or answers_directory(name) is not None:
        raise BadInput(f"`white_box`: interpreter {name} does not read weights; use aia, milan, aia+milan or your own")
    if not any(map(layers_of, suite.functions())):
        raise BadInput(
            "`white_box`: none of the functions is a neural net; use it with `category` numeric and more functions"
        )


def check_askable(function: Function) -> None:
    """Refuse to have a function asked that was published as test pairs, and that nothing can stand in for."""
    silent = getattr(function, "why_silent", None)
    if silent is not None:
        raise Failed(f"{silent}; only the oracle, which asks nothing, can be graded on it")


def interpret(
    name: str,
    function: Function,
    box: Box,
    *,
    suite: Suite,
    seed: int = 0,
    backbone: Backbone | None = None,
    limits: DialogueLimits | None = None,
    grading_seed: int | None = None,
    timeout: float = TIMEOUT,
    **confined: Unpack[ConfinedOptions],
) -> Interpretation:
    """Let the interpreter of that name explain a function. Only the oracle is given more than the box.

    `grading_seed` is needed only to show no exemplar that is an input of a unit test, `timeout` only for commands: the
    seconds that one may be silent; `confined` says what one is given, and where what it used is kept.
    """
    if name == ORACLE:
        return Interpretation(suite.module.oracle(function))
    if (directory := answers_directory(name)) is not None:
        return Interpretation(answer_in(directory, function.id))
    check_askable(function)
    if name == BUILTIN:
        return Interpretation(suite.module.interpret(box, seed=seed))
    if name == TABLE:
        return Interpretation(interpolate(box, seed=seed))
    guest_seed = seed_for_guests(function)
    if (command := command_of(name)) is not None:
        answer, ran = interpret_by_command(command, box, seed=guest_seed, timeout=timeout, **confined)
        return Interpretation(answer, ran=ran)
    if (guest := confined_guest(name)) is not None:
        command, read = guest_command(guest)
        grants = confined.get("grants", NOTHING)
        confined = {**confined, "grants": replace(grants, read=(*grants.read, *read)), "own": guest_files()}
        answer, ran = interpret_by_command(command, box, seed=guest_seed, timeout=timeout, **confined)
        return Interpretation(answer, ran=ran)
    if name not in WITH_MODEL:
        answer = _guest(name)(box, seed=guest_seed)
        if not isinstance(answer, Answer):
            raise Failed(f"interpreter {name} returned a {type(answer).__name__}; it must return an Answer")
        return Interpretation(answer)
    assert backbone is not None
    talk: dict[str, Any] = {"limits": limits, "name": name, "mode": suite.mode, "prompts": suite.prompts}
    if name == AIA:
        return Interpretation(interpret_with(backbone, box, **talk))
    exemplars = exemplars_for(function, suite, grading_seed=grading_seed)
    answer = interpret_with(backbone, box, asking=name == BOTH, exemplars=exemplars, **talk)
    return Interpretation(answer, exemplars.overlap)


def seed_for_guests(function: Function) -> int:
    """A seed for dice that interpreters from elsewhere may throw. It follows from the function's name alone: one that
    followed from the suite's seed would give that, and with it the functions, to who tries all small seeds.
    """
    return int.from_bytes(hashlib.sha256(f"{function.id}/interpreter".encode()).digest()[:4], "big") >> 1


def interpolate(box: Box, *, seed: int = 0) -> Answer:
    """Straight lines between randomly chosen points, never the points that grading uses."""
    dice = random.Random(seed)
    asked = sorted(dice.uniform(-128, 128) for _ in range(box.left or TABLE_POINTS))
    replies = box.ask(asked)
    points = [
        (x, float(reply.value))
        for x, reply in zip(asked, replies, strict=True)
        if isinstance(reply.value, (int, float)) and abs(reply.value) < float("inf")
    ]
    return Answer(
        description=f"A table of {len(points)} points with straight lines between them; no rule was looked for.",
        code=_table_code(points),
        table=True,
        interpreter=TABLE,
        queries=box.asked,
    )


def _table_code(points: Sequence[tuple[float, float]]) -> str:
    xs, ys = [x for x, _ in points] or [0.0], [y for _, y in points] or [0.0]
    return f"import numpy as np\n\nX = {xs!r}\nY = {ys!r}\n\n\ndef f(x):\n    return float(np.interp(x, X, Y))\n"


#: What names a function of a package that is run as a confined program: `confined:package.module:function`.
CONFINED = "confined:"
#: The script that runs it, and the files of ours that it needs: how to speak, and what an answer is.
_GUEST_FILES = (
    *("vesalius/__init__.py", "vesalius/version.py", "vesalius/errors.py"),
    *("vesalius_functions/__init__.py", "vesalius_functions/box.py", "vesalius_functions/guest.py"),
)


def may_be_foreign(name: str) -> bool:
    """Whether an interpreter of this name is code of others."""
    return name not in NAMES


def confined_guest(name: str) -> str | None:
    """The plug-in or function in `confined:...`; None where a name is not of this form."""
    return name.removeprefix(CONFINED) if name.startswith(CONFINED) else None


def guest_files() -> tuple[str, ...]:
    """The files of ours that a confined guest needs."""
    return tuple(str(Path(__file__).parents[1] / name) for name in _GUEST_FILES)


def guest_command(name: str) -> tuple[str, tuple[str, ...]]:
    """The command that runs a plug-in or `package.module:function` confined, and the paths that it reads. Nothing of it
    is imported here.
    """
    plugin = find_plugin(INTERPRETERS, name, NAMES)
    target = name if plugin is None else plugin.target
    module, colon, function = target.partition(":")
    if not (colon and module and function):
        raise BadInput(f"interpreter {name!r} does not exist; use {choices(NAMES)} or package.module:function")
    spec = PathFinder.find_spec(module.partition(".")[0])
    places = [] if spec is None else [*(spec.submodule_search_locations or ())] or [spec.origin or ""]
    if not places or not all(map(os.path.exists, places)):
        raise BadInput(f"interpreter {name!r}: there is no module {module}; put its folder on PYTHONPATH")
    roots = [os.path.dirname(os.path.abspath(place)) for place in places]
    words = [sys.executable, "-s", "-P", guest_files()[-1], target, *roots]
    return " ".join(map(shlex.quote, words)), tuple(os.path.abspath(place) for place in places)


def _guest(name: str) -> Interpreter:
    return named_function(INTERPRETERS, name, known=NAMES)
