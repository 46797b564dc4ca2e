"""The tools of a stage: looking into the toolbox, running code, and (typed) putting claims to the engine.

They are HyVE's face of a `Session`: a tool call becomes a question to it, and whatever the model asks for, it gets text
back: a result, or what to do differently. Results hold no times and no paths of this machine, so that the same replies
lead to the same conversation. Every stage has a budget of its own; when it is used up, the model is told to answer.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field, model_validator

from vesalius.components import Component
from vesalius.documents.proposal import RUNS
from vesalius.documents.trace import Execution, Stage
from vesalius.errors import BadInput
from vesalius.explanations.verdicts import record_text, verdict_of
from vesalius.files import plain_json
from vesalius.sandbox import Outcome
from vesalius.sandbox.program import MISSING
from vesalius_backbones import Tool, ToolCall
from vesalius_backbones.untrusted_text import objects
from vesalius_session.briefing import LONGEST_RESULT, stage_budget
from vesalius_session.budget import OutOfBudget, Spending
from vesalius_session.findings import Checked
from vesalius_session.grammar import CIRCUIT
from vesalius_session.session import LONGEST_CODE, MOST_CANDIDATES, Session, which_code

LONGEST_RESULT_COMPACT, LONGEST_OUTPUT = 600, 2_000
USED_UP = "not done: all {limit:,.0f} {name} of this stage are used; answer with the JSON object"


class PathArgument(BaseModel):
    """A path in the toolbox."""

    path: str = "."


class CodeArgument(BaseModel):
    """A program."""

    code: str = Field(max_length=LONGEST_CODE)


class ClaimArgument(BaseModel):
    """A claim in the grammar of the prompt; also as a JSON text, or with its fields as the arguments themselves."""

    claim: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _as_object(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        claim = given.get("claim", given if "kind" in given else None)
        if isinstance(claim, str):
            claim = next((value for value, _ in objects(claim) if isinstance(value, dict)), claim)
        return {"claim": claim}


class CandidatesArgument(BaseModel):
    """Candidate variables: a name for each, and a Python expression in `tokens` and `i`."""

    candidates: dict[str, str] = Field(min_length=1, max_length=MOST_CANDIDATES)


LIST = Tool(name="list_directory", description="List the files of the toolbox.", arguments=PathArgument)
READ = Tool(name="read_file", description="Read a file of the toolbox.", arguments=PathArgument)
EXECUTE = Tool(
    name="execute_python",
    description="Run a self-contained Python program in the prepared environment; it must assign `result`.",
    arguments=CodeArgument,
)
CHECK = Tool(
    name="check_claim",
    description="Put one claim, a JSON object in the claim grammar, to the engine, which experiments and decides.",
    arguments=ClaimArgument,
)


#: Four candidates at most: an object of any number of names need not end.
_FEW_CANDIDATES = {
    "type": "object",
    "properties": {name: {"type": "string", "maxLength": 60} for name in "abcd"},
    "required": ["a", "b"],
}
WHICH = Tool(
    name="which_variable",
    description="Score candidate variables, Python expressions in tokens and i, by moving the component's value.",
    arguments=CandidatesArgument,
    guide={"type": "object", "properties": {"candidates": _FEW_CANDIDATES}, "required": ["candidates"]},
)


class _InVain(Exception):
    """A call that came to nothing; what the model is told."""


@contextmanager
def _in_vain() -> Iterator[None]:
    """What the model asked wrongly is told to it; whatever else is wrong is not the model's to mend."""
    try:
        yield
    except BadInput as error:
        raise _InVain(str(error)) from None


@dataclass
class Bench:
    """The tools of one stage, and what was done with them."""

    stage: Stage
    session: Session
    #: The component that claims are about, and the one that `which_variable` is offered for; None: no such tool.
    about: Component | None = None
    subject: Component | None = None
    #: The schema of a call of `check_claim`, for servers that hold replies to one.
    claims_schema: dict[str, Any] | None = None
    malformed: Callable[[], None] = lambda: None
    executions: list[Execution] = field(default_factory=list)
    #: Claims as they were given, each with its verdict or with why it could not be checked.
    given: list[dict[str, Any]] = field(default_factory=list)
    #: Claims about this component that were decided.
    checked: list[Checked] = field(default_factory=list)
    #: Whether an answer without any program was sent back.
    sent_back: bool = False
    #: Whether a claim about the circuit settled the component: nothing is left to ask.
    finished: bool = False

    def __post_init__(self) -> None:
        #: No free code, claims and `which_variable` only; fewer experiments, and shorter results.
        self.compact = self.session.setting.briefing.compact
        self.spending = self.session.spending = Spending(stage_budget(compact=self.compact), USED_UP)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the model is offered."""
        check = CHECK.model_copy(update={"guide": self.claims_schema})
        engine = (*((check,) if self.about else ()), *((WHICH,) if self.subject else ()))
        if self.compact and engine:
            return engine
        return (*engine, EXECUTE, LIST, READ) if engine else (LIST, READ, EXECUTE)

    @property
    def exhausted(self) -> bool:
        """No experiment is left, or the model does nothing but look."""
        left = self.spending.left()
        return not left["looks"] or not (left["executions"] or (self.about and left["claims"]))

    def objection(self) -> str:
        """What is wrong with answering now: an observation rests on at least one program. Said once."""
        if self.stage != "observe" or self.executions or self.sent_back:
            return ""
        self.sent_back = True
        return (
            "No program has been run. Run one and look at its result first; if you answer again without one, it is "
            "recorded that nothing was observed."
        )

    def answer(self, call: ToolCall) -> str:
        """Carry out a call."""
        try:
            said = self._answer(call)
        except (OutOfBudget, _InVain) as error:
            self.spending.add(looks=1)  # so that asking in vain comes to an end too
            said = str(error)
        return _cut(said, LONGEST_RESULT_COMPACT) if self.compact else said

    def _answer(self, call: ToolCall) -> str:
        # In one order, whether they come from the model or from the record: later prompts quote them.
        arguments = json.loads(json.dumps(plain_json(call.arguments), sort_keys=True))
        if call.error is None and call.name == EXECUTE.name:
            code = CodeArgument.model_validate(arguments).code
            return self._ran(code, self.session.execute(code))
        if call.error is None and call.name == CHECK.name and self.about is not None:
            return self._check(ClaimArgument.model_validate(arguments).claim, self.about)
        if call.error is None and call.name == WHICH.name and self.subject is not None:
            candidates = CandidatesArgument.model_validate(arguments).candidates
            with _in_vain():
                code = which_code(str(self.subject), candidates)
            return self._ran(code, self.session.execute(code))
        if not self.spending.left()["looks"]:
            return "no more looks into the toolbox in this stage: run an experiment, or answer with the JSON object"
        if call.error is not None:
            raise _InVain(call.error)
        path, workspace = PathArgument.model_validate(arguments).path, self.session.workspace
        with _in_vain():
            shown = (
                _cut(workspace.read_file(path), LONGEST_CODE)
                if call.name == READ.name
                else "\n".join(name for name in workspace.list_directory(path) if not name.startswith("_"))
            )
        self.spending.add(looks=1)
        return shown

    def _ran(self, code: str, outcome: Outcome) -> str:
        result = "" if outcome.result is None and outcome.error else result_text(outcome.result)
        stdout = _cut(outcome.stdout, LONGEST_OUTPUT)
        self.executions.append(
            Execution(
                stage=self.stage,
                code=code,
                category=category_of(outcome),
                error=outcome.error or "",
                result=result,
                stdout=stdout,
            )
        )
        return f"{outcome_text(outcome)}\n{self._left('executions')}"

    def _check(self, given: dict[str, Any], about: Component) -> str:
        try:
            decided = self.session.check(given, about)
        except OutOfBudget:
            raise
        except BadInput as error:
            self.malformed()
            self.given.append({**given, "error": str(error)})
            return f"this claim cannot be checked: {error}\n{self._left('claims')}"
        own, record = decided.checked[0]
        self.given.append({**decided.given, "verdict": record.verdict})
        if record.kind != RUNS:  # of the whole behaviour, kept by the session
            self.checked.append((own, record))
        settles = given.get("kind") == CIRCUIT and record.verdict == "supported"
        self.finished = self.finished or (settles and verdict_of(one for _, one in self.checked) == "supported")
        said = [*map(record_text, decided.records), *([decided.note] if decided.note else [])]
        return "\n".join([*said, self._left("claims")])

    def _left(self, name: str) -> str:
        left, limit = self.spending.left()[name], getattr(self.spending.budget, name)
        return f"({left} of {limit} {name} left)"


def outcome_text(outcome: Outcome) -> str:
    """What a program did, for the agent that wrote it; one that failed keeps what it had assigned to `result`."""
    printed = f"\nprinted:\n{_cut(outcome.stdout, LONGEST_OUTPUT)}" if outcome.stdout else ""
    if outcome.error is None:
        return f"result = {result_text(outcome.result)}{printed}"
    partial = "" if outcome.result is None else f"\nresult, as far as it came = {result_text(outcome.result)}"
    return f"error:\n{outcome.error}\nFind the cause and revise.{partial}{printed}"


def result_text(result: Any) -> str:
    """A result as JSON, cut to what a conversation can hold."""
    return _cut(json.dumps(_shortened(result)), LONGEST_RESULT)


def _shortened(value: Any) -> Any:
    """Numbers with five digits: more are noise, and are paid for."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, list):
        return [_shortened(part) for part in value]
    if isinstance(value, dict):
        return {name: _shortened(part) for name, part in value.items()}
    return value


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... (cut; {len(text)} characters)"


# Why generated code failed, in the categories of the HyVE paper's figure 3. The paper names Python bugs, mistakes with
# tensor shapes, misuse of helpers or of the hook API, wrong BOS offsets, and programs that forget `result`; a program
# stopped by its limits, or by the walls of the sandbox, is distinguished here too. Read from the error alone, which is
# all a log keeps.

NO_RESULT = "missing result"
LIMIT = "time, memory or output limit"
WALLS = "refused by the sandbox"
BOS = "BOS offset"
SHAPE = "tensor shape"
API = "helper or hook API"
PYTHON = "Python"
CATEGORIES = (PYTHON, SHAPE, API, BOS, NO_RESULT, LIMIT, WALLS)

_HELPER = re.compile(
    r"^BadInput:|(?:Observation|Validation|Transformer|Tap|Cache)\.\w+\(\)"
    r"|'(?:Transformer|Cache|Config|Component)' object"
    r"|\b(?:hook|fwd_hooks|run_with_cache|run_with_hooks|tokenize|decode)\b|No module named '\w*_tools",
    re.MULTILINE,
)
_SHAPE = re.compile(
    r"size of tensor|shapes? .*(?:match|align|broadcast|cannot be multiplied)|mat1 and mat2|out of (?:bounds|range)"
    r"|dimension|Sizes of tensors|too many indices|shape '\[|expanded size|not aligned|could not be broadcast"
    r"|only one element tensors|must have shape|einsum",
    re.IGNORECASE,
)
_TWO_SIZES = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)")
_INDEX_AND_SIZE = re.compile(r"index (\d+) is out of bounds for (?:dimension|axis) \d+ with size (\d+)")
_WALLS = ("PermissionError", "BlockingIOError", "ConnectionError", "Operation not permitted", "Read-only file system")


def category_of(outcome: Outcome) -> str | None:
    """The kind of failure, one of `CATEGORIES`; None where the program ran and gave a result."""
    if outcome.error is None:
        return None
    if outcome.error == MISSING:
        return NO_RESULT
    if outcome.stopped_by is not None:
        return WALLS if outcome.stopped_by == "crash" else LIMIT
    if outcome.reported_limit is not None:
        return WALLS if outcome.reported_limit == "processes" else LIMIT
    message = outcome.error.splitlines()[-1] if outcome.error else ""
    if message.startswith(_WALLS) or any(wall in message for wall in _WALLS[3:]):
        return WALLS
    if _off_by_one(message):
        return BOS
    if _HELPER.search(message):
        return API
    return SHAPE if _SHAPE.search(message) else PYTHON


def _off_by_one(message: str) -> bool:
    """It speaks of BOS, or two lengths differ by exactly the one that BOS adds."""
    if re.search(r"\bBOS\b", message):
        return True
    sizes = _TWO_SIZES.search(message)
    if sizes:
        return abs(int(sizes[1]) - int(sizes[2])) == 1
    index = _INDEX_AND_SIZE.search(message)
    return bool(index) and int(index[1]) == int(index[2])
