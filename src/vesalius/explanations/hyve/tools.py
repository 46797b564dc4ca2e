"""The tools of a stage: looking into the toolbox, running code, and (typed) putting claims to the engine.

Whatever the model asks for, it gets text back: a result, or what to do differently. Results hold no times and no
paths of this machine, so that the same replies lead to the same conversation. Experiments and looks are counted; when
they are used up, the model is told to answer.
"""

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel, Field, model_validator

from vesalius.backbones import Tool, ToolCall
from vesalius.backbones.json_repair import objects
from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Evidence
from vesalius.documents.trace import Execution, Stage
from vesalius.errors import BadInput
from vesalius.explanations.claims import Claim, Computes, check
from vesalius.explanations.claims.interchange import AGREEMENT, MIN_AGREEMENT
from vesalius.explanations.hyve.failures import category_of
from vesalius.explanations.hyve.grammar import CIRCUIT, LAST, read_circuit
from vesalius.explanations.hyve.tries import Tries, counted_as
from vesalius.explanations.laboratory import CircuitLab, Lab
from vesalius.files import plain_json
from vesalius.sandbox import Outcome

#: The paper's limit on executions per stage; claims have as many of their own.
MAX_EXECUTIONS = 5
MAX_CLAIMS = 5
MAX_LOOKS = 8
#: The same where prompts are compact: every experiment makes the conversation longer.
MAX_EXECUTIONS_COMPACT = MAX_CLAIMS_COMPACT = 3
LONGEST_RESULT_COMPACT = 600
MAX_CANDIDATES = 24
LONGEST_RESULT, LONGEST_OUTPUT, LONGEST_CODE = 6_000, 2_000, 20_000


class Workspace(Protocol):
    """The part of a sandbox that a stage uses."""

    def execute(self, code: str) -> Outcome:
        """Run one program."""
        ...

    def list_directory(self, path: str = ".") -> list[str]:
        """Names in the toolbox."""
        ...

    def read_file(self, path: str) -> str:
        """A file of the toolbox."""
        ...


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

    candidates: dict[str, str] = Field(min_length=1, max_length=MAX_CANDIDATES)


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


@dataclass
class Memory:
    """What later stages of a run may refer to: the program given last, and what a circuit claim settled."""

    circuit: tuple[Component, ...] = ()
    last: dict[str, Any] | None = None
    established: dict[str, tuple[Computes, ClaimRecord]] = field(default_factory=dict)

    def complete(self, given: dict[str, Any]) -> dict[str, Any]:
        """A claim with "last" replaced by the program, and where it has none by the carriers, given before."""
        if given.get("program") != LAST:
            return given
        if self.last is None:
            raise BadInput('program "last": no program was given before; write one')
        return {**given, "program": self.last["program"], "carriers": given.get("carriers") or self.last["carriers"]}

    def keep(self, given: dict[str, Any]) -> None:
        """Remember a program that could be read, with its carriers."""
        if isinstance(given.get("program"), dict):
            self.last = {"program": given["program"], "carriers": given.get("carriers")}


@dataclass
class ComponentJudge:
    """The engine, for one component: reads claims, checks them, and counts how many were tried."""

    lab: Callable[[], Lab]
    component: Component
    #: How a claim is read, in the grammar that the prompts show.
    read: Callable[[Any, Component], Claim]
    tries: Tries = field(default_factory=Tries)

    def examine(self, given: Any) -> tuple[Claim, ClaimRecord]:
        """The claim and its record; what cannot be read or tested is a `BadInput`."""
        claim = self.read(given, self.component)
        return claim, self.decide(claim)

    def decide(self, claim: Claim) -> ClaimRecord:
        """The record of a claim about this component, which counts as one more that was tried."""
        counted = counted_as(claim)
        record = check(claim, self.lab(), tried=self.tries.number(*counted))
        self.tries.add(*counted)
        return record


@dataclass
class Bench:
    """The tools of one stage, and what was done with them."""

    stage: Stage
    workspace: Workspace
    judge: ComponentJudge | None = None
    #: The judges of all components, for claims about the whole circuit.
    judge_of: Callable[[Component], ComponentJudge] | None = None
    memory: Memory = field(default_factory=Memory)
    #: The component that `which_variable` is offered for.
    subject: Component | None = None
    #: No free code, claims and `which_variable` only; fewer experiments, and shorter results.
    compact: bool = False
    #: The schema of a call of `check_claim`, for servers that hold replies to one.
    claims_schema: dict[str, Any] | None = None
    malformed: Callable[[], None] = lambda: None
    executions: list[Execution] = field(default_factory=list)
    #: Claims as they were given, each with its verdict or with why it could not be checked.
    given: list[dict[str, Any]] = field(default_factory=list)
    checked: list[tuple[Claim, ClaimRecord]] = field(default_factory=list)
    #: Calls that were not experiments, those refused included.
    looks: int = 0
    #: Whether an answer without any program was sent back.
    sent_back: bool = False
    #: Whether a claim about the circuit settled the component: nothing is left to ask.
    finished: bool = False
    #: How many programs and claims, where it is not what a stage has.
    most_executions: int | None = None
    most_claims: int | None = None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the model is offered."""
        check = CHECK.model_copy(update={"guide": self.claims_schema})
        engine = (*((check,) if self.judge else ()), *((WHICH,) if self.subject else ()))
        if self.compact and engine:
            return engine
        return (*engine, EXECUTE, LIST, READ) if engine else (LIST, READ, EXECUTE)

    @property
    def exhausted(self) -> bool:
        """No experiment is left, or the model does nothing but look."""
        claims_left = self.judge is not None and len(self.given) < self.max_claims
        return self.looks >= MAX_LOOKS or not (claims_left or len(self.executions) < self.max_executions)

    @property
    def max_executions(self) -> int:
        """How many programs may be run."""
        if self.most_executions is not None:
            return self.most_executions
        return MAX_EXECUTIONS_COMPACT if self.compact else MAX_EXECUTIONS

    @property
    def max_claims(self) -> int:
        """How many claims may be checked."""
        if self.most_claims is not None:
            return self.most_claims
        return MAX_CLAIMS_COMPACT if self.compact else MAX_CLAIMS

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
        said = self._answer(call)
        return _cut(said, LONGEST_RESULT_COMPACT) if self.compact else said

    def _answer(self, call: ToolCall) -> str:
        # In one order, whether they come from the model or from the record: later prompts quote them.
        arguments = json.loads(json.dumps(plain_json(call.arguments), sort_keys=True))
        call = call.model_copy(update={"arguments": arguments})
        if call.error is None and call.name == EXECUTE.name:
            return self._execute(CodeArgument.model_validate(call.arguments).code)
        if call.error is None and call.name == CHECK.name and self.judge is not None:
            return self._check(ClaimArgument.model_validate(call.arguments).claim, self.judge)
        if call.error is None and call.name == WHICH.name and self.subject is not None:
            return self._which(CandidatesArgument.model_validate(call.arguments).candidates, self.subject)
        self.looks += 1
        if self.looks > MAX_LOOKS:
            return "no more looks into the toolbox in this stage: run an experiment, or answer with the JSON object"
        if call.error is not None:
            return call.error
        return self._look(call.name, PathArgument.model_validate(call.arguments).path)

    def _look(self, tool: str, path: str) -> str:
        try:
            if tool == READ.name:
                return _cut(self.workspace.read_file(path), LONGEST_CODE)
            return "\n".join(name for name in self.workspace.list_directory(path) if not name.startswith("_"))
        except BadInput as error:
            return str(error)

    def _which(self, candidates: dict[str, str], component: Component) -> str:
        """Score candidates in the sandbox, by the helper of the same name."""
        try:
            code = which_code(str(component), candidates)
        except BadInput as error:
            self.looks += 1
            return str(error)
        return self._execute(code)

    def _execute(self, code: str) -> str:
        if len(self.executions) >= self.max_executions:
            self.looks += 1  # so that asking in vain comes to an end too
            return f"not run: all {self.max_executions} executions of this stage are used; answer with the JSON object"
        outcome = self.workspace.execute(code)
        result = "" if outcome.error is not None else _cut(json.dumps(_shortened(outcome.result)), LONGEST_RESULT)
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
        left = self.max_executions - len(self.executions)
        said = f"error:\n{outcome.error}\nFind the cause and revise." if outcome.error else f"result = {result}"
        printed = f"\nprinted:\n{stdout}" if stdout else ""
        return f"{said}{printed}\n({left} of {self.max_executions} executions left)"

    def _check(self, given: dict[str, Any], judge: ComponentJudge) -> str:
        if len(self.given) >= self.max_claims:
            self.looks += 1
            return f"not checked: all {self.max_claims} claims of this stage are used; answer with the JSON object"
        try:
            given = self.memory.complete(given)
            if given.get("kind") == CIRCUIT and self.memory.circuit:
                claim, record, said = self._check_circuit(given, judge)
            else:
                claim, record = judge.examine(given)
                said = record_text(record)
        except BadInput as error:
            self.malformed()
            self.given.append({**given, "error": str(error)})
            said = f"this claim cannot be checked: {error}"
        else:
            self.memory.keep(given)
            self.given.append({**given, "verdict": record.verdict})
            self.checked.append((claim, record))
        return f"{said}\n({self.max_claims - len(self.given)} of {self.max_claims} claims left)"

    def _check_circuit(self, given: dict[str, Any], judge: ComponentJudge) -> tuple[Claim, ClaimRecord, str]:
        """Check what every component is said to carry; the rest only once the program gives the model's outputs."""
        assert self.judge_of is not None
        lab = CircuitLab.require(judge.lab(), CIRCUIT)
        claims = read_circuit(given, self.memory.circuit, lab.vocabulary, causal=lab.model.config.causal)
        own = next((claim for claim in claims if claim.part == judge.component), None)
        if own is None:
            raise BadInput(f"carriers: it is not said what {judge.component}, the component of this stage, carries")
        record = judge.decide(own)
        said = [record_text(record)]
        if any(one.measure == AGREEMENT and (one.value or 0.0) < MIN_AGREEMENT for one in record.evidence):
            said.append("The other components were not checked: the program does not give the model's outputs yet.")
            return own, record, "\n".join(said)
        for claim in claims:
            if claim is own:
                continue
            other = self.judge_of(claim.part).decide(claim)
            said.append(record_text(other))
            if other.verdict == "supported":
                self.memory.established[claim.component] = claim, other
        refuted = any(earlier.verdict == "refuted" for _, earlier in self.checked)
        self.finished = record.verdict == "supported" and not refuted
        return own, record, "\n".join(said)


def which_code(component: str, candidates: Mapping[str, str]) -> str:
    """The program that scores candidate variables, Python expressions in `tokens` and `i`, in the sandbox."""
    functions = []
    for name, expression in candidates.items():
        try:
            ast.parse(expression.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            text = f"{expression!r:.80} is not a Python expression in tokens and i"
            raise BadInput(f"candidate {name!r:.60}: {text}") from None
        functions.append(f"    {name!r}: lambda tokens, i: ({expression.strip()}\n    ),")
    body = "\n".join(functions)
    return f"result = which_variable({component!r}, {{\n{body}\n}}, inputs)"


def record_text(record: ClaimRecord) -> str:
    """A checked claim as text: its verdict; where it is not supported, every experiment, those that failed first."""
    line = f"{record.verdict}: {record.text}"
    if record.verdict == "supported":
        return f"{line} ({len(record.evidence)} experiments)"
    ordered = sorted(record.evidence, key=lambda one: one.passed is not False)
    return "\n".join([line, *(f"- {_evidence(one)}" for one in ordered)])


def _evidence(one: Evidence) -> str:
    interval = "" if one.low is None or one.high is None else f" [{one.low}, {one.high}]"
    controls = "; ".join(f"{name} {value}" for name, value in one.controls.items())
    outcome = f" ({one.outcome})" if one.outcome else ""
    return (
        f"{one.mark}: {one.experiment}: {one.measure} = {one.value}{interval}{outcome}, n = {one.n}; rule {one.rule}"
        + (f"; controls: {controls}" if controls else "")
    )


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
