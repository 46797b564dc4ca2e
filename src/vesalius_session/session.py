"""One study of one specimen by an agent: claims, code, a budget, a memory and one submission.

    with Session.open(specimen, budget=Budget(executions=30, claims=40)) as session:
        session.execute("result = predict(inputs[:3])").result
        session.check({"kind": "necessary", "component": "L0_MLP"}).records
        explanation = session.submit(Statement({"L0_MLP": Said(tag="MAPPER", description="...")}, "...", "..."))

HyVE's stages, the tools of MCP and inspect, and the JSON lines of an outside command are faces of it: they translate,
and what is asked, counted, remembered and refused is the same for all. Everything happens on a copy of the specimen
without name, id and kind; verdicts are the engine's. What cannot be done is a `BadInput` that says what to do instead.
"""

import ast
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol, Self, Unpack

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Executable, Explanation, Verdict
from vesalius.documents.proposal import RUNS, Proposal, RunProposal
from vesalius.errors import BadInput, choices, quoted
from vesalius.explanations.claims import Aggregates, Claim, Computes, Copies, check
from vesalius.explanations.claims.interchange import AGREEMENT, MIN_AGREEMENT
from vesalius.explanations.laboratory import CircuitLab, Lab
from vesalius.explanations.verdicts import counterexamples, shown_beside
from vesalius.files import plain_json
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.rasp.document import to_document
from vesalius.rasp.text import render
from vesalius.sandbox import Executions, Outcome
from vesalius_session.budget import Budget, Spending
from vesalius_session.findings import NOTHING_SAID, Checked, Finding, Said, Statement, explanation_of, finding_of
from vesalius_session.grammar import CIRCUIT, LAST, read_carriers, read_circuit, read_program
from vesalius_session.proposals.reading import read_proposal
from vesalius_session.proposals.run import GRADING, TRYING, Runs, run_proposal
from vesalius_session.setting import LazyWorkspace, Setting, SettingOptions, setting_of

LONGEST_CODE, MOST_CANDIDATES = 20_000, 24
NOT_YET = "The others were not checked: the program does not give the model's outputs yet."


class Workspace(Protocol):
    """The part of a sandbox that a session uses."""

    def execute(self, code: str) -> Outcome:
        """Run one program."""
        ...

    def list_directory(self, path: str = ".") -> list[str]:
        """Names in the toolbox."""
        ...

    def read_file(self, path: str) -> str:
        """A file of the toolbox."""
        ...


@dataclass
class Tries:
    """The claims tried on one component, by which the rule grows stricter: how many of each kind, and the programs.

    Claims that a component carries variables of a program are one kind, whatever they are called: they follow one
    rule, so the same program with the same variables has the same number, and with it the same verdict, every time.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    programs: list[str] = field(default_factory=list)

    def number(self, kind: str, program: str | None = None) -> int:
        """The number of the next claim of a kind, itself included; of a program, the number that it has or gets."""
        if program is None:
            return self.kinds[kind] + 1
        return (self.programs.index(program) if program in self.programs else len(self.programs)) + 1

    def add(self, kind: str, program: str | None = None) -> None:
        """Count a claim."""
        if program is None:
            self.kinds[kind] += 1
        elif program not in self.programs:
            self.programs.append(program)


def counted_as(claim: Claim) -> tuple[str, str | None]:
    """What a claim is counted by: its kind and, where the component is said to carry variables of a program, a digest
    of both that is equal where they are.
    """
    if isinstance(claim, Computes | Aggregates):
        program, carried = claim.hypothesis.program, claim.hypothesis.carried_by(claim.component)
    elif isinstance(claim, Copies) and claim.carried:
        program, carried = claim.program, claim.carried
    else:
        return claim.kind, None
    text = json.dumps([to_document(program), carried], sort_keys=True)
    return claim.kind, hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Memory:
    """What a study knows so far: the claims that were decided, how many were tried on each component, the program given
    last, and what a claim about the whole circuit settled beside the component under study. Of a natural model,
    `proposal` is the last explanation as data that was run in the model's place.
    """

    checked: list[Checked] = field(default_factory=list)
    tries: dict[Component, Tries] = field(default_factory=dict)
    last: dict[str, Any] | None = None
    established: dict[Component, Checked] = field(default_factory=dict)
    proposal: Proposal | None = None

    def tries_of(self, component: Component) -> Tries:
        """The claims tried on a component."""
        return self.tries.setdefault(component, Tries())

    def copy(self) -> "Memory":
        """One that can go on without changing this."""
        return Memory(list(self.checked), deepcopy(self.tries), self.last, dict(self.established), self.proposal)

    def complete(self, given: dict[str, Any]) -> dict[str, Any]:
        """A claim with "last" replaced by the program, and where it has none by the carriers, given before."""
        if given.get("program") != LAST:
            return given
        if self.last is None:
            raise BadInput('program "last": no program was given before; write one')
        return {**given, "program": self.last["program"], "carriers": given.get("carriers") or self.last["carriers"]}

    def keep(self, given: Mapping[str, Any]) -> None:
        """Remember a program that could be read, with its carriers."""
        if isinstance(given.get("program"), dict):
            self.last = {"program": given["program"], "carriers": given.get("carriers")}


@dataclass(frozen=True)
class Decided:
    """A claim that was decided, as it was given with "last" filled in; one about a whole circuit is one claim for each
    component that was tested, the one under study first. `note` says why others were not.
    """

    given: dict[str, Any]
    checked: tuple[Checked, ...]
    note: str = ""

    @property
    def records(self) -> tuple[ClaimRecord, ...]:
        """What was decided."""
        return tuple(record for _, record in self.checked)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the whole: of a circuit, refuted where one component is or where its program does not give the
        model's outputs, supported where all are, else undecided.
        """
        verdicts: set[Verdict] = {record.verdict for record in self.records}
        if self.note == NOT_YET or "refuted" in verdicts:
            return "refuted"
        return verdicts.pop() if len(verdicts) == 1 else "undecided"

    def singly(self) -> list[dict[str, Any]]:
        """Each claim about one component as it can be recalled (`Session.recall`), with its record."""
        shared = {"kind": "computes"} if self.given.get("kind") == CIRCUIT else {}
        return [
            {"claim": {**self.given, **shared, "component": claim.component}, "record": record.model_dump(mode="json")}
            for claim, record in self.checked
        ]


class Session:
    """The instruments on one specimen for one agent. Calls may come from any thread, one at a time.

    `memory` goes on from an earlier session. Where every component has a laboratory of its own (a natural model of
    which no circuit was named), `setting_for` gives it.
    """

    def __init__(
        self,
        setting: Setting,
        workspace: Workspace,
        *,
        spending: Spending | None = None,
        memory: Memory | None = None,
        setting_for: Callable[[Component], Setting] | None = None,
    ) -> None:
        self.setting, self.workspace = setting, workspace
        self.spending = spending or Spending()
        self.memory = memory or Memory()
        self.explanation: Explanation | None = None
        self.lock = threading.RLock()
        self._setting_for = setting_for
        self._shown: dict[int, tuple[CircuitLab, CircuitLab]] = {}
        self._stack, self._started, self._unsafe = ExitStack(), time.monotonic(), False

    @classmethod
    def open(
        cls,
        specimen: Specimen,
        components: Iterable[str | Component] | None = None,
        *,
        seed: int = 0,
        budget: Budget | None = None,
        executions: Executions | None = None,
        unsafe: bool = False,
        **options: Unpack[SettingOptions],
    ) -> Self:
        """A session with a sandbox of its own, which ends with it. `components` names the circuit (default: the
        specimen's own; of a natural model what the built-in scientist selects), `executions` keeps what programs gave,
        `unsafe` runs them even where they cannot be contained.
        """
        stack, started = ExitStack(), time.monotonic()
        try:
            setting = setting_of(specimen, components, stack, seed=seed, **options)
            workspace = LazyWorkspace(setting, stack, executions or Executions(), unsafe=unsafe)
            session = cls(setting, workspace, spending=Spending(budget or Budget()))
        except BaseException:
            stack.close()
            raise
        session._stack, session._started, session._unsafe = stack, started, unsafe
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox, where one was opened; waits for a call that is under way."""
        with self.lock:
            self._stack.close()

    @property
    def circuit(self) -> tuple[Component, ...]:
        """The components to explain."""
        return self.setting.briefing.circuit

    @property
    def natural(self) -> bool:
        """Whether the specimen is a natural model: claims about programs and variables are for the others."""
        return self.setting.behaviour is not None

    @property
    def lab(self) -> Callable[[], Lab]:
        """The laboratory that decides."""
        return self.setting.lab

    def spent(self, name: str) -> None:
        """Count what is about to be used; refused once the explanation is submitted, or where nothing is left."""
        if self.explanation is not None:
            raise BadInput("the explanation is submitted; there is nothing more to measure")
        self.spending.spend(name)

    def execute(self, code: str) -> Outcome:
        """Run a program in the sandbox, with the model and the helpers at hand; it must assign `result`."""
        with self.lock:
            if len(code) > LONGEST_CODE:
                raise BadInput(f"code: has {len(code)} characters; at most {LONGEST_CODE} are run")
            self.spent("executions")
            return self.workspace.execute(code)

    def which_variable(self, component: str | Component, candidates: Mapping[str, str]) -> Outcome:
        """Score candidate variables, Python expressions in `tokens` and `i`, by moving the component's value; the
        result is a list, best first.
        """
        if self.natural:
            raise BadInput("which_variable is for models with listed tokens; use intervene or run_code")
        if not 1 <= len(candidates) <= MOST_CANDIDATES:
            raise BadInput(f"candidates: {len(candidates)} are given; give 1 to {MOST_CANDIDATES}")
        part = Component.parse(component).within(self.setting.briefing.specimen.model.config)
        return self.execute(which_code(str(part), candidates))

    def check(self, given: Any, about: Component | None = None) -> Decided:
        """Put a claim to the engine, which experiments on held-out inputs and decides. With `about`, claims are about
        that component, or about the whole circuit with it.
        """
        with self.lock:
            self.spent("claims")
            if not isinstance(given, dict):
                raise BadInput(f"claim: must be an object with kind and component, not {quoted(given, 60)}")
            given = self.memory.complete(plain_json(given))
            if given.get("kind") == CIRCUIT and not self.natural:
                decided = self._check_circuit(given, about)
            elif given.get("kind") == RUNS and self.natural:
                decided = self._check_runs(given, about)
            else:
                component = self.part(given.get("component")) if about is None else about
                claim = self._setting_of(component).briefing.read_claim(given, component)
                decided = Decided(given, ((claim, self.decide(claim)),))
            self.memory.keep(given)
            return decided

    def decide(self, claim: Claim) -> ClaimRecord:
        """The record of a claim, which counts as one more that was tried on its component."""
        tries, counted = self.memory.tries_of(claim.part), counted_as(claim)
        lab = self._setting_of(claim.part).lab()
        record = check(claim, lab, tried=tries.number(*counted))
        program_fails = any(one.measure == AGREEMENT and one.passed is False for one in record.evidence)
        if (record.verdict == "refuted" or program_fails) and isinstance(lab, CircuitLab):
            shown = tuple(dict(one) for one in counterexamples(claim, self._beside(lab)))
            record = record.model_copy(update={"counterexamples": shown})
        tries.add(*counted)
        self.memory.checked.append((claim, record))
        return record

    def recall(self, given: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        """Remember a claim about one component that was decided in an earlier session, as it was given then."""
        if given.get("kind") == RUNS:
            self.memory.proposal = read_proposal(given, self.setting.briefing.specimen.model.config)
            return
        component = self.part(given.get("component"))
        claim = self._setting_of(component).briefing.read_claim(dict(given), component)
        self.memory.checked.append((claim, ClaimRecord.model_validate(record)))
        self.memory.tries_of(component).add(*counted_as(claim))
        self.memory.keep(given)

    def part(self, name: Any) -> Component:
        """A component of the circuit by name; where every component has a laboratory of its own, any of the model."""
        if not isinstance(name, str | Component):
            raise BadInput('claim: name the component it is about, as in {"kind": "necessary", "component": "L0H1"}')
        part = Component.parse(name).within(self.setting.briefing.specimen.model.config)
        if self._setting_for is None and part not in self.circuit:
            raise BadInput(f"component {part} is not in the circuit; it has {choices(map(str, self.circuit))}")
        return part

    def executable(self, program: Any, carriers: Any) -> Executable | None:
        """A program in the notation of claims, and which of its variables each component carries, ready to be graded;
        None without a program.
        """
        if program is None:
            if carriers is not None:
                raise BadInput("carriers: they are of a program; give program too")
            return None
        specimen = self.setting.briefing.specimen
        vocabulary, config = specimen.vocabulary, specimen.model.config
        if not isinstance(vocabulary, FiniteVocabulary):
            raise BadInput("program: a natural model is explained in words and claims; leave it out")
        compiled = read_program(program, vocabulary, causal=config.causal)
        carried = read_carriers(carriers, compiled)
        named = {str(self.part(name)): variables for name, variables in carried.items()}
        return Executable(program=to_document(compiled), carriers=named)

    def submit(
        self, said: Statement, *, program: Any = None, carriers: Any = None, scientist: str = "agent"
    ) -> Explanation:
        """The agent's explanation: what it says, beside the claims that were decided. Once only.

        `program` and `carriers` (who carries which of its variables) are the program to grade; without them it is the
        one that supported claims rest on.
        """
        with self.lock:
            if self.explanation is not None:
                raise BadInput("an explanation is submitted already; only the first counts")
            silent = {str(part): Said(description=NOTHING_SAID) for part in self.circuit}
            named = silent | {str(self.part(name)): words for name, words in said.components.items()}
            executable = self.executable(program, carriers)
            findings = [finding_of(component, self.memory.checked) for component in self.circuit]
            made = self.explained(findings, replace(said, components=named), scientist=scientist)
            if executable is not None:
                update = {"executable": executable, "program": render(executable.program), "program_agreement": None}
                made = made.model_copy(update=update)
            self.explanation = made
            return made

    def explained(
        self, findings: Iterable[Finding], said: Statement, *, scientist: str, cost: float = 0.0
    ) -> Explanation:
        """The explanation that findings and words make."""
        explanation = explanation_of(
            list(findings),
            said,
            self.lab,
            specimen=self.setting.id,
            seed=self.setting.seed,
            cost=cost,
            seconds=time.monotonic() - self._started,
        )
        own = {
            "behaviour": self.setting.behaviour,
            "performance": self.setting.performance,
            "proposed": self.last_proposal(),
        }
        explained = [Component.parse(part.id) for part in explanation.components]
        account = self.setting.account(explained) if explained else None
        return explanation.model_copy(update={"scientist": scientist, **own}).with_account(account)

    def last_proposal(self) -> RunProposal | None:
        """The last explanation that was given as data, on prompts that no proposal has seen."""
        return None if self.memory.proposal is None else self.run(self.memory.proposal)

    def run(self, proposal: Proposal, *, trying: bool = False) -> RunProposal:
        """What a proposal is worth: on prompts for `trying` some, or on those that no proposal has seen."""
        return run_proposal(
            self.setting.briefing.specimen,
            proposal,
            split=TRYING if trying else GRADING,
            seed=self.setting.seed,
            unsafe=self._unsafe,
        )

    def _check_runs(self, given: dict[str, Any], about: Component | None) -> Decided:
        """Run an explanation that is given as data; the last one is what is submitted, and is then run on others."""
        proposal = read_proposal(given, self.setting.briefing.specimen.model.config)
        first = about or next(iter([*proposal.components, *self.circuit, "L0H0"]))
        claim = Runs(component=str(first), proposal=proposal)
        tried = self.run(proposal, trying=True)
        self.memory.proposal = proposal
        return Decided(given, ((claim, claim.record(tried, seed=self.setting.seed)),))

    def _check_circuit(self, given: dict[str, Any], about: Component | None) -> Decided:
        """Check what every component is said to carry; the rest only once the program gives the model's outputs."""
        specimen = self.setting.briefing.specimen
        vocabulary = specimen.vocabulary
        assert isinstance(vocabulary, FiniteVocabulary)
        claims = read_circuit(given, self.circuit, vocabulary, causal=specimen.model.config.causal)
        if about is not None:
            claims.sort(key=lambda claim: claim.part != about)
            if claims[0].part != about:
                raise BadInput(f"carriers: it is not said what {about}, the component of this stage, carries")
        checked: list[Checked] = []
        for claim in claims:
            record = self.decide(claim)
            checked.append((claim, record))
            if len(checked) == 1 and any(
                one.measure == AGREEMENT and (one.value or 0.0) < MIN_AGREEMENT for one in record.evidence
            ):
                return Decided(given, tuple(checked), NOT_YET)
            if about is not None and claim.part != about and record.verdict == "supported":
                self.memory.established[claim.part] = claim, record
        return Decided(given, tuple(checked))

    def _setting_of(self, component: Component) -> Setting:
        return self.setting if self._setting_for is None else self._setting_for(component)

    def _beside(self, lab: CircuitLab) -> CircuitLab:
        """The laboratory that counterexamples come from, made once for each that decides."""
        if id(lab) not in self._shown:
            self._shown[id(lab)] = lab, shown_beside(lab)
        return self._shown[id(lab)][1]


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
