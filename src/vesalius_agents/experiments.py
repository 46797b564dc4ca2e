"""Experiments on one specimen, for those who propose explanations: decide a claim, run a program in the sandbox, score
candidate variables, exchange the values of a component.

    with Experiments("frac_prevs") as experiments:
        record, _ = experiments.check_claim({"kind": "necessary", "component": "L0_MLP"})
        outcome = experiments.run_code("result = [len(inputs), vocab]")

Everything happens on a copy of the specimen without its name: neither a claim nor a program sees the answer key.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from vesalius.api.loading import loaded
from vesalius.components import Component
from vesalius.documents.claims import ClaimRecord, Executable
from vesalius.errors import BadInput
from vesalius.explanations.hyve.grammar import describe_claims, read_carriers
from vesalius.explanations.hyve.natural.prompting import KINDS as NATURAL_KINDS
from vesalius.explanations.hyve.notation import OPERATORS, read_program
from vesalius.explanations.hyve.prompting import helper_lines
from vesalius.explanations.hyve.setting import LazyWorkspace, Setting, setting_of
from vesalius.explanations.hyve.subject import Subject
from vesalius.explanations.hyve.toolbox.validation_tools import Validation
from vesalius.explanations.hyve.tools import ComponentJudge, which_code
from vesalius.explanations.hyve.tries import Tries, counted_as
from vesalius.model.metering import metered
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.options import Load
from vesalius.rasp.document import to_document
from vesalius.sandbox import Executions, Outcome

__all__ = ["LONGEST_CODE", "Experiments", "Tries", "claims_grammar", "interchange", "metered", "submitted_program"]
LONGEST_CODE = 20_000
MOST_CANDIDATES = 24


class CheckedClaim(NamedTuple):
    """A claim that was decided, and what it is counted by among the `Tries` of its component."""

    record: ClaimRecord
    counted: tuple[str, str | None]


class Experiments:
    """Experiments on one specimen. The sandbox starts with the first program and ends with the `with` statement.

    `memory` bounds the bytes of a program beyond those of the model. For a natural model every component that claims
    are about has held-out prompts of its own.
    """

    def __init__(
        self,
        specimen: Specimen | str | int | Path,
        *,
        behaviour: Any = None,
        seed: int = 0,
        memory: int | None = None,
        unsafe: bool = False,
    ) -> None:
        self.specimen = loaded(specimen, Load(behaviour), progress=False)
        self._seed, self._memory, self._unsafe = seed, memory, unsafe
        self._stack = ExitStack()
        self._settings: dict[str, Setting] = {}
        self._workspace: LazyWorkspace | None = None

    @property
    def listed(self) -> bool:
        """Whether the specimen has listed tokens, so that programs and variables can be written about it."""
        return isinstance(self.specimen.vocabulary, FiniteVocabulary)

    def check_claim(self, claim: Mapping[str, Any], *, tries: Tries | None = None) -> CheckedClaim:
        """Decide one claim by its experiment. `tries` are the claims tried on its component before, and are not
        changed: the more there were, the stricter the rule.
        """
        part = self._part(claim)
        setting = self._setting(part)
        judge = ComponentJudge(setting.lab, part, setting.prompts.read_claim, copy.deepcopy(tries or Tries()))
        examined, record = judge.examine(dict(claim))
        return CheckedClaim(record, counted_as(examined))

    def subject_of(self, claim: Mapping[str, Any]) -> str:
        """What claims are counted by: specimen, behaviour and component, however the component is spelled."""
        behaviour = getattr(self.specimen.behaviour, "name", self.specimen.behaviour)
        return "/".join(map(str, (self.specimen.id, behaviour, self._part(claim))))[:300]

    def run_code(self, code: str) -> Outcome:
        """Run a program in the sandbox; it must assign `result`."""
        if len(code) > LONGEST_CODE:
            raise BadInput(f"code: has {len(code)} characters; at most {LONGEST_CODE} are run")
        if self._workspace is None:
            setting = self._setting(self.specimen.components[0])
            if self._memory is not None:
                memory = min(self._memory, setting.limits.memory_bytes)
                setting = dataclasses.replace(setting, limits=dataclasses.replace(setting.limits, memory_bytes=memory))
            self._workspace = LazyWorkspace(setting, self._stack, Executions(), unsafe=self._unsafe)
        return self._workspace.execute(code)

    def which_variable(self, component: str, candidates: Mapping[str, str]) -> Outcome:
        """Score candidate variables, Python expressions in `tokens` and `i`, by moving the component's value; the
        result is a list, best first.
        """
        if not self.listed:
            raise BadInput(f"specimen {self.specimen.name!r} is a natural model; variables are for listed tokens")
        part = Component.parse(component).within(self.specimen.model.config)
        if not 1 <= len(candidates) <= MOST_CANDIDATES:
            raise BadInput(f"candidates: {len(candidates)} are given; give 1 to {MOST_CANDIDATES}")
        return self.run_code(which_code(str(part), candidates))

    def executable(self, program: Any, carriers: Any) -> Executable:
        """A program in the notation of claims, and which of its variables each component carries, ready to be
        graded.
        """
        return submitted_program(self.specimen, program, carriers)

    def close(self) -> None:
        """End the sandbox."""
        self._workspace = None
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _part(self, claim: Mapping[str, Any]) -> Component:
        if not isinstance(claim.get("component"), str):
            raise BadInput('claim: name the component it is about, as in {"kind": "necessary", "component": "L0H1"}')
        return Component.parse(claim["component"]).within(self.specimen.model.config)

    def _setting(self, part: Component) -> Setting:
        name = "" if self.listed else str(part)
        if name not in self._settings:
            circuit = None if self.listed else [part]
            self._settings[name] = setting_of(self.specimen, circuit, self._stack, seed=self._seed)
        return self._settings[name]


def submitted_program(specimen: Specimen, program: Any, carriers: Any) -> Executable:
    """A program in the notation of claims and who carries which of its variables, as it can be graded on a specimen."""
    vocabulary, config = specimen.vocabulary, specimen.model.config
    if not isinstance(vocabulary, FiniteVocabulary):
        raise BadInput("program: a natural model is explained in words and claims; leave it out")
    compiled = read_program(program, vocabulary, causal=config.causal)
    carried = read_carriers(carriers, compiled)
    named = {str(Component.parse(name).within(config)): variables for name, variables in carried.items()}
    return Executable(program=to_document(compiled), carriers=named)


def interchange(
    specimen: Specimen | str | int | Path,
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
    specimen = loaded(specimen, progress=False)
    if not isinstance(specimen.vocabulary, FiniteVocabulary):
        raise BadInput(f"specimen {specimen.name!r} is a natural model; use kind 'patch' with prompts of one length")
    tools = Validation(Subject(specimen.model, specimen.vocabulary))
    places = [None if one is None else list(one) for one in (at, source_at)]
    return tools.patch(component, list(base), list(source), *places)


def claims_grammar(*, natural: bool = False) -> str:
    """Every kind of claim with its JSON form, the notation of programs, and the helper functions of the sandbox."""
    if natural:
        return f"Claims:\n{describe_claims(NATURAL_KINDS)}\n"
    operators = "\n".join(f"- {name} of {reads}: {takes}" for name, (reads, takes) in OPERATORS.items())
    example = '{"variables": [{"name": "v1", "op": "map", "of": ["tokens"], "formula": "x == \'a\'"}], "output": "v1"}'
    helpers = "\n".join(f"- {line}" for line in helper_lines())
    return (
        f"Claims:\n{describe_claims()}\n\nPROGRAM is {example}; it reads `tokens` and `indices`. Operators:\n"
        f"{operators}\n\nHelper functions of the sandbox, beside model, tokenize, decode, vocab, examples, inputs:\n"
        f"{helpers}\n"
    )
