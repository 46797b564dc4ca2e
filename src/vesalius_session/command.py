"""Any command as scientist: the specimen is offered to it as JSON lines on stdin and stdout.

    us       {"protocol": "vesalius-specimen/1", "components": ["L0_MLP", ...], "budget": {...}, ...}
    command  {"call": "predict", "arguments": {"inputs": [["BOS-free", "tokens"]]}}
    us       {"result": [...], "left": {"calls": 59, "claims": 45}}
    command  {"claim": {"kind": "necessary", "component": "L0_MLP"}}
    us       {"records": [{"kind": "necessary", "verdict": "supported", "evidence": [...]}], "left": {...}}
    command  {"explanation": {"components": [{"id": "L0_MLP", "tag": "MAPPER", "note": "..."}], ...}}

It is a face of a `Session`: instruments are the functions that HyVE's programs find, run in its sandbox on a blind copy
of the specimen, and its claims, decided by the engine. The command has HyVE's budgets, for the circuit as a whole.
Verdicts and evidence are the engine's: an explanation may say what it likes, and what was tested is put beside it. The
command itself is confined (`vesalius.sandbox.command`): it sees its own files and what its caller names.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from pydantic import BaseModel, ConfigDict, ValidationError

from vesalius.documents.base import Ran
from vesalius.documents.explanation import Explanation, Tag
from vesalius.errors import BadInput, choices, quoted
from vesalius.files import plain_json
from vesalius.json_lines import LONGEST_CONVERSATION, TIMEOUT
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.sandbox import Executions
from vesalius.sandbox.command import NOTHING, Grants
from vesalius.sandbox.line_program import LineProgram
from vesalius_session import natural_scope, scope
from vesalius_session.briefing import MAX_ITERATIONS, STAGE, TAXONOMY, helper_lines
from vesalius_session.budget import Budget, OutOfBudget
from vesalius_session.findings import Said, Statement
from vesalius_session.proposals.reading import GRAMMAR
from vesalius_session.session import Session, which_code
from vesalius_session.setting import SettingOptions

PROTOCOL = "vesalius-specimen/1"
WHICH = "which_variable"
#: Per component: looks and programs of all stages of the agent, and claims of all its hypotheses.
CALLS, CLAIMS = (STAGE.executions or 0) * (MAX_ITERATIONS + 1), (STAGE.claims or 0) * MAX_ITERATIONS
USED_UP = "all {name} are used; write the explanation"


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
    sandbox_unsafe: bool = False,
    timeout: float = TIMEOUT,
    grants: Grants = NOTHING,
    log: Path | None = None,
    **options: Unpack[SettingOptions],
) -> Explanation:
    """Start the command, carry out the experiments it asks for, and return its explanation with what was tested.

    `grants` is what the command is given beyond its own files, and `log` keeps what it used.
    """
    with Session.open(
        specimen, components, seed=seed, executions=executions, unsafe=sandbox_unsafe, **options
    ) as session:
        parts = len(session.circuit)
        session.spending.budget = Budget(executions=CALLS * parts, claims=CLAIMS * parts)
        session.spending.refusal = USED_UP
        table = InstrumentTable(session)
        given = replace(grants, unsafe=grants.unsafe or sandbox_unsafe)
        with LineProgram(command, timeout=timeout, grants=given, log=log) as program:
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
            explanation = session.submit(_statement(program, line["explanation"], session), scientist="command")
            return explanation.model_copy(update={"ran": Ran(**vars(program.ran))})


class _Unknown(Exception):
    """A line that is no request."""


class InstrumentTable:
    """The lines of a command as questions to a session."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def names(self) -> list[str]:
        """What can be called: the functions that the agent's programs find."""
        libraries = scope.LIBRARIES.values()
        listed = [name for one in libraries for name in scope.public(one)]
        return natural_scope.INSTRUMENTS if self.session.natural else listed

    @property
    def left(self) -> dict[str, float]:
        """What may still be asked."""
        left = self.session.spending.left()
        return {"calls": left["executions"], "claims": left["claims"]}

    def task(self, *, seed: int, timeout: float) -> dict[str, Any]:
        """The first line: the specimen without its name, the instruments, the grammar of claims and the limits."""
        briefing = self.session.setting.briefing
        specimen = briefing.specimen
        config, vocabulary = specimen.model.config, specimen.vocabulary
        tokens: dict[str, Any] = {}
        if isinstance(vocabulary, FiniteVocabulary):
            tokens = {"vocab": list(vocabulary.tokens), "min_len": vocabulary.min_len, "max_len": vocabulary.max_len}
        return {
            "protocol": PROTOCOL,
            "components": [str(part) for part in self.session.circuit],
            "shape": {"layers": config.n_layers, "heads": config.n_heads, "d_model": config.d_model},
            "causal": config.causal,
            **tokens,
            "examples": list(specimen.examples),
            "instruments": natural_scope.instrument_lines() if self.session.natural else helper_lines(),
            "claims": briefing.grammar(),
            **({"runs": GRAMMAR} if self.session.natural else {}),
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
            decided = self.session.check(line["claim"])
            note = {"note": decided.note} if decided.note else {}
            return {"records": [one.model_dump(mode="json") for one in decided.records], **note, "left": self.left}
        raise _Unknown

    def _run(self, code: str) -> dict[str, Any]:
        try:
            outcome = self.session.execute(code)
        except OutOfBudget:
            raise BadInput("all calls are used; write the explanation") from None
        printed = {"printed": outcome.stdout} if outcome.stdout else {}
        if outcome.error is not None:
            lines = outcome.error.strip().splitlines() or ["it failed"]
            partial = {} if outcome.result is None else {"result": outcome.result}
            return {"error": lines[-1], **partial, **printed, "left": self.left}
        return {"result": outcome.result, **printed, "left": self.left}

    def _code(self, name: str, arguments: object) -> str:
        """The program that calls one instrument; inputs that are left out are those that programs find."""
        if name not in self.names:
            raise BadInput(f"instrument {quoted(name, 60)} does not exist; call one of {choices(self.names, limit=30)}")
        if not isinstance(arguments, dict) or not all(str(key).isidentifier() for key in arguments):
            raise BadInput(f"arguments: must be an object of names and values, not {quoted(arguments, 60)}")
        listed = not self.session.natural
        if name == WHICH and listed:
            candidates = arguments.get("candidates")
            if not isinstance(candidates, dict) or not all(isinstance(text, str) for text in candidates.values()):
                raise BadInput("candidates: must be an object of names and Python expressions in tokens and i")
            return which_code(str(arguments.get("component")), candidates)
        given = [f"{key}={_literal(value)}" for key, value in arguments.items()]
        library = next((one for one in scope.LIBRARIES.values() if listed and hasattr(one, name)), None)
        if library is not None and "inputs" not in arguments and _takes_inputs(getattr(library, name)):
            given.append("inputs=inputs")
        return f"result = {name}({', '.join(given)})"


def _takes_inputs(function: Callable[..., Any]) -> bool:
    return "inputs" in function.__code__.co_varnames[: function.__code__.co_argcount]


def _literal(value: object) -> str:
    """A JSON value as Python writes it; numbers that are none, and values nested too deep, are refused."""
    try:
        return repr(ast.literal_eval(repr(value)))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise BadInput("arguments: hold NaN, an infinite number or values nested too deep") from None


def _statement(program: LineProgram, given: object, session: Session) -> Statement:
    """What the command says; anything that cannot be read ends its case."""
    try:
        said = _Given.model_validate(plain_json(given))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("explanation", *first["loc"])))
        raise program.failed(f"gave an explanation that cannot be read: {where}: {first['msg']}") from None
    named = [str(part) for part in session.circuit]
    if strangers := [part.id for part in said.components if part.id not in named]:
        raise program.failed(f"explained {strangers[0]!r:.40}, which is not in the circuit: {choices(named)}")
    words = {part.id: Said(tag=part.tag, description=part.note or "-") for part in said.components}
    return Statement(words, said.information_flow or "-", said.task_description or "-")
