"""Any command as scientist: the specimen is offered to it as JSON lines on stdin and stdout.

    us       {"protocol": "vesalius-specimen/1", "components": ["L0_MLP", ...], "budget": {...}, ...}
    command  {"call": "predict", "arguments": {"inputs": [["BOS-free", "tokens"]]}}
    us       {"result": [...], "left": {"calls": 59, "claims": 45}}
    command  {"claim": {"kind": "necessary", "component": "L0_MLP"}}
    us       {"records": [{"kind": "necessary", "verdict": "supported", "evidence": [...]}], "left": {...}}
    command  {"explanation": {"components": [{"id": "L0_MLP", "tag": "MAPPER", "note": "..."}], ...}}

Instruments are those of the HyVE agent: the functions that its programs find, run in its sandbox on a blind copy of the
specimen, and its claims, decided by the engine. The command has the agent's budgets, for the circuit as a whole.
Verdicts and evidence are the engine's: an explanation may say what it likes, and what was tested is put beside it. The
command itself runs unconfined.
"""

import ast
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Explanation, Tag
from vesalius.documents.trace import Attempt, ComponentTrace
from vesalius.errors import BadInput, choices, quoted
from vesalius.explanations.claims import Claim
from vesalius.explanations.hyve import scope
from vesalius.explanations.hyve.grammar import CIRCUIT, read_circuit
from vesalius.explanations.hyve.natural import scope as natural_scope
from vesalius.explanations.hyve.prompting import MAX_ITERATIONS, TAXONOMY, helper_lines
from vesalius.explanations.hyve.setting import LazyWorkspace, Setting, setting_of
from vesalius.explanations.hyve.shapes import CircuitSummary, Role
from vesalius.explanations.hyve.stages import Finding, State
from vesalius.explanations.hyve.tools import (
    LONGEST_CODE,
    MAX_CLAIMS,
    MAX_EXECUTIONS,
    ComponentJudge,
    record_text,
    which_code,
)
from vesalius.explanations.hyve.verdicts import verdict_of
from vesalius.explanations.hyve.writing import explanation_of
from vesalius.files import plain_json
from vesalius.json_lines import LONGEST_CONVERSATION, TIMEOUT, LineProgram
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.sandbox import Executions, Outcome

PROTOCOL = "vesalius-specimen/1"
WHICH = "which_variable"
#: Per component: looks and programs of all stages of the agent, and claims of all its hypotheses.
CALLS, CLAIMS = MAX_EXECUTIONS * (MAX_ITERATIONS + 1), MAX_CLAIMS * MAX_ITERATIONS
_NOT_EXPLAINED = "(nothing was said about this component)"


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str
    tag: Tag | None = None
    note: str


class _Given(BaseModel):
    """What is read of an explanation; verdicts, evidence and whatever else stands in it are the engine's to give."""

    model_config = ConfigDict(extra="ignore")

    components: list[_Part]
    information_flow: str
    task_description: str


def explain_by_command(
    command: str,
    specimen: Specimen,
    *,
    components: Sequence[str] | None,
    executions: Executions,
    seed: int = 0,
    n: int | None = None,
    top: int | None = None,
    force: bool = False,
    sandbox_unsafe: bool = False,
    timeout: float = TIMEOUT,
) -> Explanation:
    """Start the command, carry out the experiments it asks for, and return its explanation with what was tested."""
    started = time.monotonic()
    with ExitStack() as stack:
        setting = setting_of(specimen, components, stack, seed=seed, n=n, top=top, force=force)
        workspace = LazyWorkspace(setting, stack, executions, unsafe=sandbox_unsafe)
        table = InstrumentTable(setting, workspace.execute)
        program = stack.enter_context(LineProgram(command, timeout=timeout))
        program.send(plain_json(table.task(seed=seed, timeout=timeout)))
        while "explanation" not in (line := program.receive()):
            try:
                program.send(plain_json(table.answer(line)))
            except BadInput as error:
                program.send({"error": str(error), "left": table.left})
            except _Unknown:
                raise program.failed(
                    f"wrote {quoted(line, 80)}; a line has 'call', 'code', 'claim' or 'explanation'"
                ) from None
        state = _state(program, line["explanation"], table)
        seconds = time.monotonic() - started
        explanation = explanation_of(state, setting.lab, specimen=specimen.id, seed=seed, cost=0.0, seconds=seconds)
    return explanation.model_copy(update={"scientist": "command", "behaviour": setting.behaviour})


class _Unknown(Exception):
    """A line that is no request."""


@dataclass
class InstrumentTable:
    """The instruments of one specimen, what may still be asked of them, and the claims that were decided."""

    setting: Setting
    execute: Callable[[str], Outcome]
    calls: int = 0
    claims: int = 0
    checked: dict[Component, list[tuple[Claim, ClaimRecord]]] = field(default_factory=dict)
    judges: dict[Component, ComponentJudge] = field(default_factory=dict)

    @property
    def circuit(self) -> tuple[Component, ...]:
        """The components to explain."""
        return self.setting.prompts.circuit

    @property
    def listed(self) -> bool:
        """Whether the specimen has listed tokens."""
        return self.setting.behaviour is None

    @property
    def names(self) -> list[str]:
        """What can be called: the functions that the agent's programs find."""
        libraries = scope.LIBRARIES.values()
        return [name for one in libraries for name in scope.public(one)] if self.listed else natural_scope.INSTRUMENTS

    @property
    def left(self) -> dict[str, int]:
        """What may still be asked."""
        parts = len(self.circuit)
        return {"calls": CALLS * parts - self.calls, "claims": CLAIMS * parts - self.claims}

    def task(self, *, seed: int, timeout: float) -> dict[str, Any]:
        """The first line: the specimen without its name, the instruments, the grammar of claims and the limits."""
        specimen, prompts = self.setting.prompts.specimen, self.setting.prompts
        config, vocabulary = specimen.model.config, specimen.vocabulary
        tokens: dict[str, Any] = {}
        if isinstance(vocabulary, FiniteVocabulary):
            tokens = {"vocab": list(vocabulary.tokens), "min_len": vocabulary.min_len, "max_len": vocabulary.max_len}
        return {
            "protocol": PROTOCOL,
            "components": [str(part) for part in self.circuit],
            "shape": {"layers": config.n_layers, "heads": config.n_heads, "d_model": config.d_model},
            "causal": config.causal,
            **tokens,
            "examples": list(specimen.examples),
            "instruments": helper_lines() if self.listed else natural_scope.instrument_lines(),
            "claims": prompts.grammar(),
            "tags": TAXONOMY,
            "budget": self.left,
            "timeout_seconds": timeout,
            "seconds": LONGEST_CONVERSATION,
            "seed": seed,
        }

    def answer(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one request; what cannot be carried out is a `BadInput`."""
        if set(line) <= {"call", "arguments"} and isinstance(line.get("call"), str):
            return self._run(self._code(line["call"], line.get("arguments", {})))
        if set(line) == {"code"} and isinstance(line["code"], str):
            return self._run(line["code"])
        if set(line) == {"claim"}:
            records = [record.model_dump(mode="json") for record in self._decided(line["claim"])]
            return {"records": records, "left": self.left}
        raise _Unknown

    def _run(self, code: str) -> dict[str, Any]:
        if self.left["calls"] <= 0:
            raise BadInput("all calls are used; write the explanation")
        if len(code) > LONGEST_CODE:
            raise BadInput(f"code: has {len(code)} characters; at most {LONGEST_CODE} are run")
        self.calls += 1
        outcome = self.execute(code)
        printed = {"printed": outcome.stdout} if outcome.stdout else {}
        if outcome.error is not None:
            lines = outcome.error.strip().splitlines() or ["it failed"]
            return {"error": lines[-1], **printed, "left": self.left}
        return {"result": outcome.result, **printed, "left": self.left}

    def _code(self, name: str, arguments: Any) -> str:
        """The program that calls one instrument; inputs that are left out are those that programs find."""
        if name not in self.names:
            raise BadInput(f"instrument {quoted(name, 60)} does not exist; call one of {choices(self.names, limit=30)}")
        if not isinstance(arguments, dict) or not all(str(key).isidentifier() for key in arguments):
            raise BadInput(f"arguments: must be an object of names and values, not {quoted(arguments, 60)}")
        if name == WHICH and self.listed:
            candidates = arguments.get("candidates")
            if not isinstance(candidates, dict) or not all(isinstance(text, str) for text in candidates.values()):
                raise BadInput("candidates: must be an object of names and Python expressions in tokens and i")
            return which_code(str(arguments.get("component")), candidates)
        given = [f"{key}={_literal(value)}" for key, value in arguments.items()]
        library = next((one for one in scope.LIBRARIES.values() if self.listed and hasattr(one, name)), None)
        if library is not None and "inputs" not in arguments and _takes_inputs(getattr(library, name)):
            given.append("inputs=inputs")
        return f"result = {name}({', '.join(given)})"

    def _decided(self, given: Any) -> list[ClaimRecord]:
        """The records of a claim about one component, or of one that says what every component carries."""
        if self.left["claims"] <= 0:
            raise BadInput("all claims are used; write the explanation")
        if not isinstance(given, dict):
            raise BadInput(f"claim: must be an object with kind and component, not {quoted(given, 60)}")
        given = plain_json(given)
        specimen = self.setting.prompts.specimen
        if given.get("kind") == CIRCUIT and isinstance(specimen.vocabulary, FiniteVocabulary):
            causal = specimen.model.config.causal
            claims: list[Claim] = list(read_circuit(given, self.circuit, specimen.vocabulary, causal=causal))
        else:
            claims = [self.setting.prompts.read_claim(given, self._component(given.get("component")))]
        if len(claims) > self.left["claims"]:
            raise BadInput(f"this is {len(claims)} claims, and {self.left['claims']} are left")
        return [self._record(claim) for claim in claims]

    def _record(self, claim: Claim) -> ClaimRecord:
        part = claim.part
        judge = self.judges.setdefault(part, ComponentJudge(self.setting.lab, part, self.setting.prompts.read_claim))
        self.claims += 1
        record = judge.decide(claim)
        self.checked.setdefault(part, []).append((claim, record))
        return record

    def _component(self, name: Any) -> Component:
        if not isinstance(name, str):
            raise BadInput('claim: name the component it is about, as in {"kind": "necessary", "component": "L0H1"}')
        part = Component.parse(name).within(self.setting.prompts.specimen.model.config)
        if part not in self.circuit:
            raise BadInput(f"component {part} is not explained here; the circuit is {choices(self.circuit)}")
        return part


def _takes_inputs(function: Callable[..., Any]) -> bool:
    return "inputs" in function.__code__.co_varnames[: function.__code__.co_argcount]


def _literal(value: Any) -> str:
    """A JSON value as Python writes it; numbers that are none, and values nested too deep, are refused."""
    try:
        return repr(ast.literal_eval(repr(value)))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise BadInput("arguments: hold NaN, an infinite number or values nested too deep") from None


def _state(program: LineProgram, given: Any, table: InstrumentTable) -> State:
    """What the command said and what was tested, as the agent's stages would leave it."""
    try:
        said = _Given.model_validate(plain_json(given))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("explanation", *first["loc"])))
        raise program.failed(f"gave an explanation that cannot be read: {where}: {first['msg']}") from None
    parts = {part.id: part for part in said.components}
    named = [str(part) for part in table.circuit]
    if strangers := [name for name in parts if name not in named]:
        raise program.failed(f"explained {strangers[0]!r:.40}, which is not in the circuit: {choices(named)}")
    return State(
        findings=tuple(_finding(part, parts.get(str(part)), table.checked.get(part, [])) for part in table.circuit),
        roles={part.id: Role(tag=part.tag, description=part.note or "-") for part in said.components if part.tag},
        summary=CircuitSummary(
            information_flow=said.information_flow or "-", derived_task_description=said.task_description or "-"
        ),
    )


def _finding(component: Component, said: _Part | None, checked: list[tuple[Claim, ClaimRecord]]) -> Finding:
    """A component rests on its supported claims; those that failed stand beside them as what was tried."""
    held = [(claim, record) for claim, record in checked if record.verdict == "supported"]
    lost = [record for _, record in checked if record.verdict != "supported"]
    rests_on = held or checked
    verdict = verdict_of(record for _, record in rests_on)
    attempts = [
        Attempt(
            iteration=number,
            hypothesis=record.text,
            verdict=record.verdict,
            reasoning=record_text(record),
            decided_by="engine",
        )
        for number, record in enumerate(lost, 1)
    ]
    note = _NOT_EXPLAINED if said is None else said.note
    last = Attempt(
        iteration=len(attempts) + 1, hypothesis=note, verdict=verdict, decided_by="engine" if checked else "undecided"
    )
    trace = ComponentTrace(component=str(component), observation="", attempts=(*attempts, last))
    return Finding(trace, verdict, tuple(record for _, record in rests_on), tuple(rests_on))
