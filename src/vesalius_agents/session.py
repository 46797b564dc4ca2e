"""A specimen opened for an agent of another program: `Session` with measurements that go through `api`.

    with investigate("frac_prevs") as study:
        print(study.briefing())
        study.predict([["a", "b"]])
        study.check({"kind": "necessary", "component": "L0_MLP"})
        explanation = study.submit(statement({"L0_MLP": {"tag": "INDICATOR", "description": "..."}}, "...", "..."))

Whatever an agent asks comes from the model, its vocabulary or prompts, and experiments on held-out inputs. The name,
the kind and the answer key stay shut. inspect's tools (`inspection.tools`) and MCP's (`mcp.tools`) only translate.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError

from vesalius.api.catalogue import next_tokens, predict
from vesalius.api.knockouts import what_if
from vesalius.api.loading import loaded
from vesalius.api.looking import attention, lens
from vesalius.api.sweeps import sweep_report
from vesalius.components import Component
from vesalius.documents.experiments import AttentionLook, LensLook, WhatIf
from vesalius.documents.sweep import Sweep
from vesalius.errors import BadInput, choices, require_whole
from vesalius.explanations.claims import NATURAL_KINDS
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.options import Load, OptionRecord, flag
from vesalius_agents.hyve.prompting import StagePrompts
from vesalius_session.briefing import TAXONOMY, helper_lines
from vesalius_session.budget import Budget
from vesalius_session.findings import Said, Statement
from vesalius_session.grammar import OPERATORS, describe_claims
from vesalius_session.proposals.reading import GRAMMAR
from vesalius_session.session import Session
from vesalius_session.subject import Subject
from vesalius_session.toolbox.validation_tools import Validation

#: Stands for all components of the model.
EVERY = "all"
#: Prompts of one measurement, and inputs of one prediction, at most.
MOST_PROMPTS, MOST_INPUTS = 64, 64


class Allowed(OptionRecord):
    """What an agent of an evaluation may do."""

    looks: Annotated[int, flag("Looks at the model.")] = 60
    executions: Annotated[int, flag("Executions of code.")] = 30
    claims: Annotated[int, flag("Claims that are tested.")] = 40

    def __post_init__(self) -> None:
        self.budget()  # refuses numbers that are none

    def budget(self) -> Budget:
        """The limits as a session keeps them."""
        return Budget(**self.values())


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
) -> "AgentSession":
    """Open a specimen for an agent; `components` names the circuit to explain (default: the specimen's own, or what
    the built-in scientist selects in a natural model; "all" for every component). `n` prompts decide a claim about a
    natural model.
    """
    require_whole(n=0 if n is None else n, top=0 if top is None else top, seed=seed)
    opened = loaded(specimen, Load(behaviour), progress=False)
    names = components.split(",") if isinstance(components, str) else components
    names = opened.model.components if names == [EVERY] else names
    budget = budget or Allowed().budget()
    return AgentSession.open(opened, names, seed=seed, budget=budget, unsafe=unsafe_sandbox, n=n, top=top)


class AgentSession(Session):
    """A session whose agent also measures with the verbs of `api`, on the blind copy of the specimen."""

    def briefing(self, *, locate: bool = False) -> str:
        """What an agent has to know: the task, the model, the claims, the programs and the budget; with `locate`, of
        one that has to find the circuit.
        """
        known, budget = self.setting.briefing, self.spending.budget
        facts: dict[str, Any] = {**known.grammar(), "helpers": known.helpers(), "taxonomy": TAXONOMY, "budget": budget}
        return StagePrompts(known).stage("briefing.md", **facts, locate=locate)

    def predict(self, inputs: Any) -> list[Any]:
        """The model's outputs for each input; of a natural model the likeliest next tokens of each text."""
        inputs = [inputs] if isinstance(inputs, str) else inputs
        if isinstance(inputs, list) and len(inputs) > MOST_INPUTS:
            raise BadInput(f"inputs: {len(inputs)} in one call; give at most {MOST_INPUTS}")
        with self._look() as blind:
            return next_tokens(blind, inputs) if self.natural else predict(blind, inputs)

    def attention(self, prompt: Any, layer: int) -> AttentionLook:
        """The attention of every head of one layer on one prompt."""
        with self._look() as blind:
            return attention(blind, prompt, layer=layer)

    def lens(self, prompt: str, components: list[str]) -> LensLook:
        """The tokens whose logits each component raises most on one prompt; of natural models alone."""
        with self._look() as blind:
            return lens(blind, prompt, components)

    def sweep(self, *, kind: str = "resample", n: int = 32) -> Sweep:
        """The effect of replacing each component of the model."""
        with self._look() as blind:
            seed = self.setting.seed
            return sweep_report(blind, kind=kind, n=_few(n), seed=seed, split="train", progress=False)

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
        with self._look() as blind:
            return what_if(blind, components, n=_few(n), seed=self.setting.seed, progress=False, **options)

    @contextmanager
    def _look(self) -> Iterator[Specimen]:
        """Hold the instruments and count one look."""
        with self.lock:
            self.spent("looks")
            yield self.setting.briefing.specimen


def statement(components: Any, information_flow: str, task_description: str) -> Statement:
    """What an agent submits, checked: for each component a tag and a sentence, or a sentence alone."""
    if not isinstance(components, Mapping):
        raise BadInput('components: give an object such as {"L0_MLP": {"tag": "MAPPER", "description": "..."}}')
    said: dict[str, Said] = {}
    for name, one in components.items():
        part = str(Component.parse(str(name)))
        one = {"description": one} if isinstance(one, str) else one
        tag = one.get("tag") if isinstance(one, Mapping) else None
        try:
            said[part] = Said.model_validate({**one, "tag": tag.strip().upper()} if isinstance(tag, str) else one)
        except (ValidationError, TypeError):
            raise BadInput(
                f'components: {part} needs {{"tag": TAG, "description": TEXT}}; tags are {choices(TAXONOMY)}'
            ) from None
    return Statement(said, information_flow, task_description)


def interchange(
    specimen: Specimen,
    component: str,
    base: Sequence[Any],
    source: Sequence[Any],
    *,
    at: Sequence[int] | None = None,
    source_at: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Run `base` while a component takes, at the positions `at`, its values from `source` at `source_at`; both may
    have any length. The outputs of both, those of the exchange, where they changed, and the `effect`: how far the
    outputs went from those of `base` (0) to those of `source` (1).
    """
    if not isinstance(specimen.vocabulary, FiniteVocabulary):
        raise BadInput(f"specimen {specimen.name!r} is a natural model; use kind 'patch' with prompts of one length")
    tools = Validation(Subject(specimen.model, specimen.vocabulary))
    places = [None if one is None else list(one) for one in (at, source_at)]
    return tools.patch(component, list(base), list(source), *places)


def claims_grammar(*, natural: bool = False) -> str:
    """Every kind of claim with its JSON form, the notation of programs, and the helper functions of the sandbox."""
    if natural:
        return f"Claims:\n{describe_claims(NATURAL_KINDS)}\n- runs: {GRAMMAR}\n"
    operators = "\n".join(f"- {name} of {reads}: {takes}" for name, (reads, takes) in OPERATORS.items())
    example = '{"variables": [{"name": "v1", "op": "map", "of": ["tokens"], "formula": "x == \'a\'"}], "output": "v1"}'
    circuit = '{"kind": "circuit", "program": PROGRAM, "carriers": {COMPONENT: [VARIABLE, ...], ...}}'
    helpers = "\n".join(f"- {line}" for line in helper_lines())
    return (
        f"Claims:\n- circuit: Every component that carriers names carries its variables; each is checked as computes "
        f"once the program gives the model's outputs.\n  {circuit}\n{describe_claims()}\n\n"
        f'PROGRAM is {example}, or "last", the one given before; it reads `tokens` and `indices`. Operators:\n'
        f"{operators}\n\nHelper functions of the sandbox, beside model, tokenize, decode, vocab, examples, inputs:\n"
        f"{helpers}\n`expected` of interchange is a function that you write, expected(base, source): the outputs that "
        "your hypothesis predicts, one per token of base.\n"
    )


def _few(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_PROMPTS:
        raise BadInput(f"n {n!r:.20}: give between 1 and {MOST_PROMPTS} prompts")
    return n
