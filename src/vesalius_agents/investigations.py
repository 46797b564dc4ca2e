"""A specimen opened for an agent of another program: our instruments on a blind copy of it, held to a budget.

    with investigate("frac_prevs") as study:
        print(study.briefing())
        study.predict([["a", "b"]])
        study.check_claim("L0_MLP", {"kind": "necessary"})
        explanation = study.submit({"L0_MLP": {"tag": "INDICATOR", "description": "..."}}, "...", "...")

Whatever an agent asks comes from the model, its vocabulary or prompts, and experiments on held-out inputs. The name,
the kind and the answer key stay shut. What cannot be done is a `BadInput` that says what to do instead; an explanation
is made of what was submitted and of the claims that were checked.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from pydantic import BaseModel, ValidationError

from vesalius.api.catalogue import next_tokens, predict
from vesalius.api.knockouts import what_if
from vesalius.api.loading import loaded
from vesalius.api.looking import attention, lens
from vesalius.api.sweeps import sweep_report
from vesalius.backbones import ToolCall
from vesalius.components import Component
from vesalius.documents.explanation import Executable, Explanation, Tag
from vesalius.documents.look import AttentionLook, LensLook
from vesalius.documents.sweep import Sweep
from vesalius.documents.trace import Attempt, ComponentTrace
from vesalius.documents.what_if import WhatIf
from vesalius.errors import BadInput, choices, require_whole
from vesalius.explanations.hyve.prompting import TAXONOMY
from vesalius.explanations.hyve.setting import LazyWorkspace, setting_of
from vesalius.explanations.hyve.shapes import CircuitSummary, Role
from vesalius.explanations.hyve.stages import Finding, State
from vesalius.explanations.hyve.tools import CHECK, EXECUTE, WHICH, Bench, ComponentJudge, Memory, record_text
from vesalius.explanations.hyve.verdicts import verdict_of
from vesalius.explanations.hyve.writing import explanation_of
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.options import Load
from vesalius.rasp.text import render
from vesalius.sandbox import Executions
from vesalius_agents.experiments import submitted_program

AGENT = "agent"
#: Stands for all components of the model.
EVERY = "all"
#: Prompts of one measurement, and inputs of one prediction, at most.
MOST_PROMPTS, MOST_INPUTS = 64, 64
Kind = Literal["looks", "executions", "claims"]


@dataclass(frozen=True)
class Budget:
    """What an agent may do: `looks` are measurements (predict, attention, sweep, intervene), `executions` programs and
    scored variables, `claims` claims that the engine decides.
    """

    looks: int = 60
    executions: int = 30
    claims: int = 40

    def __post_init__(self) -> None:
        require_whole(looks=self.looks, executions=self.executions, claims=self.claims)
        for name in ("looks", "executions", "claims"):
            if getattr(self, name) < 0:
                raise BadInput(f"budget: {name} {getattr(self, name)} is less than none; give 0 or more")


class Said(BaseModel):
    """What an agent says of a component in the end."""

    tag: Tag | None = None
    description: str


def investigate(
    specimen: Specimen | str | int | Path,
    components: Any = None,
    *,
    behaviour: Any = None,
    budget: Budget | None = None,
    n: int | None = None,
    top: int | None = None,
    seed: int = 0,
    unsafe_sandbox: bool = False,
) -> "Investigation":
    """Open a specimen for an agent; `components` names the circuit to explain (default: the specimen's own, or what
    the built-in scientist selects in a natural model; "all" for every component). `n` prompts decide a claim about a
    natural model.
    """
    require_whole(n=0 if n is None else n, top=0 if top is None else top, seed=seed)
    opened = loaded(specimen, Load(behaviour), progress=False)
    names = components.split(",") if isinstance(components, str) else components
    names = opened.model.components if names == [EVERY] else names
    return Investigation(opened, names, budget or Budget(), n=n, top=top, seed=seed, unsafe_sandbox=unsafe_sandbox)


class Investigation:
    """The instruments on one specimen. Calls come one at a time, from whatever thread."""

    def __init__(
        self,
        specimen: Specimen,
        components: Any,
        budget: Budget,
        *,
        n: int | None,
        top: int | None,
        seed: int,
        unsafe_sandbox: bool,
    ) -> None:
        self.budget, self.looks = budget, 0
        self.explanation: Explanation | None = None
        self._id, self._seed, self._started = specimen.id, seed, time.monotonic()
        self._stack, self._lock = ExitStack(), threading.RLock()
        self.natural = not isinstance(specimen.vocabulary, FiniteVocabulary)
        self._setting = setting_of(specimen, components, self._stack, seed=seed, n=n, top=top)
        self._blind = self._setting.prompts.specimen
        workspace = LazyWorkspace(self._setting, self._stack, Executions(), unsafe=unsafe_sandbox)
        self._judges: dict[Component, ComponentJudge] = {}
        self._bench = Bench(
            "validate",
            workspace,
            judge_of=self._judge,
            memory=Memory(() if self.natural else self.circuit),
            most_executions=budget.executions,
            most_claims=budget.claims,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox, where one was opened; waits for a call that is under way."""
        with self._lock:
            self._stack.close()

    @property
    def circuit(self) -> tuple[Component, ...]:
        """The components to explain."""
        return self._setting.prompts.circuit

    @property
    def left(self) -> dict[str, int]:
        """What is left of the budget."""
        used = {"looks": self.looks, "executions": len(self._bench.executions), "claims": len(self._bench.given)}
        return {name: max(0, getattr(self.budget, name) - spent) for name, spent in used.items()}

    def briefing(self, *, locate: bool = False) -> str:
        """What an agent has to know: the task, the model, the claims, the programs and the budget; with `locate`, of
        one that has to find the circuit.
        """
        prompts = self._setting.prompts
        facts = {**prompts.grammar(), "helpers": prompts.helpers(), "taxonomy": TAXONOMY, "budget": self.budget}
        return prompts.stage("briefing.md", **facts, locate=locate)

    def predict(self, inputs: Any) -> list[Any]:
        """The model's outputs for each input; of a natural model the likeliest next tokens of each text."""
        inputs = [inputs] if isinstance(inputs, str) else inputs
        if isinstance(inputs, list) and len(inputs) > MOST_INPUTS:
            raise BadInput(f"inputs: {len(inputs)} in one call; give at most {MOST_INPUTS}")
        with self._spent("looks"):
            return next_tokens(self._blind, inputs, progress=False) if self.natural else predict(self._blind, inputs)

    def attention(self, prompt: Any, layer: int) -> AttentionLook:
        """The attention of every head of one layer on one prompt."""
        with self._spent("looks"):
            return attention(self._blind, prompt, layer=layer)

    def lens(self, prompt: str, components: list[str]) -> LensLook:
        """The tokens whose logits each component raises most on one prompt; of natural models alone."""
        with self._spent("looks"):
            return lens(self._blind, prompt, components)

    def sweep(self, *, kind: str = "resample", n: int = 32) -> Sweep:
        """The effect of replacing each component of the model."""
        with self._spent("looks"):
            return sweep_report(self._blind, kind=kind, n=_few(n), seed=self._seed, split="train", progress=False)

    def intervene(
        self,
        components: list[str],
        *,
        kind: str = "resample",
        at: str | int | None = None,
        prompt: Any = None,
        source: Any = None,
        n: int = 16,
    ) -> WhatIf:
        """Replace components together and compare what the model says."""
        options = {"kind": kind, "at": at, "prompt": prompt, "source": source, "split": "train"}
        with self._spent("looks"):
            return what_if(self._blind, components, n=_few(n), seed=self._seed, progress=False, **options)

    def run_code(self, code: str) -> str:
        """Run a program in the sandbox, with the model and the helpers at hand; it must assign `result`."""
        with self._spent("executions"):
            return self._bench.answer(ToolCall(id="", name=EXECUTE.name, arguments={"code": code}))

    def which_variable(self, component: str, candidates: Mapping[str, str]) -> str:
        """Score candidate variables, Python expressions in `tokens` and `i`, by moving the component's value."""
        if self.natural:
            raise BadInput("which_variable is for models with listed tokens; use intervene or run_code")
        with self._spent("executions"):
            self._bench.subject = self._part(component)
            return self._bench.answer(_call(WHICH.name, {"candidates": dict(candidates)}, WHICH.arguments))

    def check_claim(self, component: str, claim: Mapping[str, Any]) -> str:
        """Put a claim about a component to the engine, which experiments on held-out inputs and decides."""
        with self._spent("claims"):
            self._bench.judge = self._judge(self._part(component))
            return self._bench.answer(_call(CHECK.name, {"claim": dict(claim)}, CHECK.arguments))

    def submit(
        self,
        components: Mapping[str, Any],
        information_flow: str,
        task_description: str,
        *,
        program: Mapping[str, Any] | None = None,
        carriers: Mapping[str, Any] | None = None,
        scientist: str = AGENT,
    ) -> Explanation:
        """The agent's explanation: what it says of each component, with the claims that were checked. Once only.

        `program` and `carriers` (who carries which of its variables) are the program to grade; without them it is the
        one that supported claims rest on.
        """
        with self._lock:
            if self.explanation is not None:
                raise BadInput("an explanation is submitted already; only the first counts")
            said = self._said(components)
            executable = self._executable(program, carriers)
            roles = {name: Role(tag=one.tag, description=one.description) for name, one in said.items() if one.tag}
            summary = CircuitSummary.model_construct(
                information_flow=information_flow, derived_task_description=task_description
            )
            state = State(findings=tuple(map(self._finding, self.circuit)), roles=roles, summary=summary)
            seconds = time.monotonic() - self._started
            made = explanation_of(
                state, self._setting.lab, specimen=self._id, seed=self._seed, cost=0.0, seconds=seconds
            )
            parts = [
                part.model_copy(update={"tag": said[part.id].tag or part.tag, "note": said[part.id].description})
                if part.id in said
                else part.model_copy(update={"tag": None})
                for part in made.components
            ]
            update: dict[str, Any] = {"scientist": scientist, "behaviour": self._setting.behaviour}
            if executable is not None:
                update |= {"executable": executable, "program": render(executable.program), "program_agreement": None}
            self.explanation = made.model_copy(update={**update, "components": tuple(parts)})
            return self.explanation

    @contextmanager
    def _spent(self, kind: Kind) -> Iterator[None]:
        """Hold the instruments and take one from the budget."""
        with self._lock:
            if self.explanation is not None:
                raise BadInput("the explanation is submitted; there is nothing more to measure")
            if not self.left[kind]:
                raise BadInput(f"budget: all {getattr(self.budget, kind)} {kind} are used; submit what you found")
            if kind == "looks":
                self.looks += 1
            yield

    def _part(self, name: str) -> Component:
        part = Component.parse(name)
        if part not in self.circuit:
            raise BadInput(f"component {name!r:.40} is not in the circuit; it has {choices(map(str, self.circuit))}")
        return part

    def _judge(self, component: Component) -> ComponentJudge:
        read = self._setting.prompts.read_claim
        return self._judges.setdefault(component, ComponentJudge(self._setting.lab, component, read))

    def _said(self, given: Any) -> dict[str, Said]:
        if not isinstance(given, Mapping):
            raise BadInput('components: give an object such as {"L0_MLP": {"tag": "MAPPER", "description": "..."}}')
        said: dict[str, Said] = {}
        for name, one in given.items():
            part = str(self._part(str(name)))
            one = {"description": one} if isinstance(one, str) else one
            tag = one.get("tag") if isinstance(one, Mapping) else None
            try:
                said[part] = Said.model_validate({**one, "tag": tag.strip().upper()} if isinstance(tag, str) else one)
            except (ValidationError, TypeError):
                raise BadInput(
                    f'components: {part} needs {{"tag": TAG, "description": TEXT}}; tags are {choices(TAXONOMY)}'
                ) from None
        return said

    def _executable(self, program: Any, carriers: Any) -> Executable | None:
        if program is None:
            if carriers is not None:
                raise BadInput("carriers: they are of a program; give program too")
            return None
        executable = submitted_program(self._blind, program, carriers)
        for name in executable.carriers:
            self._part(name)
        return executable

    def _finding(self, component: Component) -> Finding:
        """What was decided of a component: claims that hold or are open; those refuted are attempts that lost."""
        checked = [(claim, record) for claim, record in self._bench.checked if claim.part == component]
        settled = self._bench.memory.established.get(str(component))
        checked += [settled] if settled is not None and settled not in checked else []
        lost = [record for _, record in checked if record.verdict == "refuted"]
        kept = [(claim, record) for claim, record in checked if record.verdict != "refuted"]
        records = tuple(record for _, record in kept)
        attempts = tuple(
            Attempt(
                iteration=number,
                hypothesis=record.text,
                verdict=record.verdict,
                reasoning=record_text(record),
                decided_by="engine",
            )
            for number, record in enumerate(lost, 1)
        )
        verdict = verdict_of(records)
        return Finding(
            ComponentTrace(component=str(component), observation="", attempts=attempts),
            "refuted" if verdict == "untested" and lost else verdict,
            records,
            tuple(kept),
        )


def _call(name: str, arguments: dict[str, Any], shape: type[BaseModel]) -> ToolCall:
    try:
        shape.model_validate(arguments)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return ToolCall(id="", name=name, arguments=arguments)


def _few(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_PROMPTS:
        raise BadInput(f"n {n!r:.20}: give between 1 and {MOST_PROMPTS} prompts")
    return n
