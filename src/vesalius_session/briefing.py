"""What an agent is told of a specimen: facts that it shows itself, its instruments, and how claims are written.

No fact is here that the specimen itself does not show: not its name, not its kind, never its answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import getdoc, signature
from typing import Any, ClassVar

from vesalius.behaviours.prompts import Prompts
from vesalius.components import Component
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims import CIRCUIT_KINDS, NATURAL_KINDS, Claim, claim_from
from vesalius.explanations.verdicts import FUNCTIONAL_NATURAL
from vesalius.model.specimen import FiniteVocabulary, Specimen, json_value
from vesalius.rasp import Comparison
from vesalius.sandbox.lockdown import Limits
from vesalius_session.budget import Budget
from vesalius_session.grammar import (
    COMPACT_KINDS,
    OPERATORS,
    claims_schema,
    describe_claims,
    example_claims,
    read_claim,
)
from vesalius_session.natural_scope import instrument_lines
from vesalius_session.scope import INPUTS, LIBRARIES, public

MAX_ITERATIONS = 3
#: What one stage may use: the paper's limit on executions, as many claims, and looks into the toolbox. Compact prompts
#: have less, since every experiment makes the conversation longer.
STAGE, STAGE_COMPACT = Budget(looks=8, executions=5, claims=5), Budget(looks=8, executions=3, claims=3)
LONGEST_RESULT = 6_000
MOST_EXAMPLES, MOST_EXAMPLES_COMPACT = 6, 4
MOST_OUTPUTS = 40

#: The role taxonomy (the paper's appendix B in our words); no prompt but that of classification shows it.
TAXONOMY = {
    "INDICATOR": "looks at one input and says whether it has a property: a yes-or-no signal.",
    "AGGREGATOR": "gathers content from several positions into one summary, such as a count, a share or a running "
    "value; what was gathered can no longer be told apart.",
    "ROUTER": "copies content from one position to another, chosen by position or index.",
    "MAPPER": "turns the one input at each position, on its own, into something that is not yes-or-no: arithmetic, a "
    "look-up, another form; also where the result steers others.",
    "COMBINER": "reads two or more different upstream signals and fuses them into one output.",
}


@dataclass(frozen=True)
class Briefing:
    """What there is to say of one specimen and the circuit under study; `compact` says less."""

    specimen: Specimen
    circuit: tuple[Component, ...]
    compact: bool = field(default=False, kw_only=True)
    #: Whether candidate variables can be scored: a natural model has texts, not token lists.
    scores_variables: ClassVar[bool] = True

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What every prompt and every tool may say of the specimen."""
        config, vocabulary = self.specimen.model.config, self.specimen.vocabulary
        assert isinstance(vocabulary, FiniteVocabulary)
        outputs = vocabulary.outputs
        return {
            "config": config,
            "vocab": list(vocabulary.tokens),
            "outputs": None if outputs is None else [json_value(value) for value in outputs[:MOST_OUTPUTS]],
            "more_outputs": 0 if outputs is None else max(0, len(outputs) - MOST_OUTPUTS),
            "min_len": vocabulary.min_len,
            "max_len": vocabulary.max_len,
            "examples": list(self.specimen.examples[: MOST_EXAMPLES_COMPACT if self.compact else MOST_EXAMPLES]),
            "components": [str(component) for component in self.circuit],
            "max_executions": stage_budget(compact=self.compact).executions,
            "max_claims": stage_budget(compact=self.compact).claims,
            "max_iterations": MAX_ITERATIONS,
            "n_inputs": INPUTS,
            "limits": Limits(),
            "longest_result": LONGEST_RESULT,
            "compact": self.compact,
            "scores_variables": self.scores_variables,
        }

    def helpers(self, *libraries: str) -> list[str]:
        """The helper functions of some libraries, or of all, one line each."""
        return helper_lines(*libraries)

    def grammar(self) -> dict[str, Any]:
        """What the typed prompts say about claims; the same for every component."""
        examples = example_claims(str(self.circuit[0]), self.specimen.vocabulary)  # type: ignore[arg-type]
        return {
            "claims": describe_claims(self._kinds),
            "claim_examples": examples,
            "operators": OPERATORS,
            "comparisons": list(Comparison.__members__),
        }

    @property
    def _kinds(self) -> Mapping[str, type[Claim]]:
        return COMPACT_KINDS if self.compact else CIRCUIT_KINDS

    def claims_schema(self, component: Component) -> dict[str, Any]:
        """The JSON schema of a call that puts a claim about a component to the engine."""
        return claims_schema(str(component), [str(part) for part in self.circuit], self._kinds)

    def read_claim(self, given: Any, component: Component) -> Claim:
        """A claim about a component, in the grammar that these prompts show."""
        config, vocabulary = self.specimen.model.config, self.specimen.vocabulary
        return read_claim(given, component, vocabulary, causal=config.causal)  # type: ignore[arg-type]


@dataclass(frozen=True)
class NaturalBriefing(Briefing):
    """That of a natural model, with its answers on `observed`."""

    observed: Prompts
    examples: tuple[dict[str, Any], ...]
    accuracy: float
    scores_variables: ClassVar[bool] = False

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What every prompt may say of the model."""
        return {
            "config": self.specimen.model.config,
            "examples": list(self.examples[: 2 if self.compact else MOST_EXAMPLES]),
            "accuracy": self.accuracy,
            "token_roles": list(self.observed.roles),
            "components": [str(component) for component in self.circuit],
            "max_executions": stage_budget(compact=self.compact).executions,
            "max_claims": stage_budget(compact=self.compact).claims,
            "max_iterations": MAX_ITERATIONS,
            "n_inputs": len(self.observed),
            "compact": self.compact,
            "scores_variables": self.scores_variables,
        }

    def helpers(self, *libraries: str) -> list[str]:
        """The instruments, one line each."""
        return instrument_lines()

    def read_claim(self, given: Any, component: Component) -> Claim:
        """Read a claim about `component` from a model's JSON; what is wrong is said in one line for the model."""
        if not isinstance(given, dict) or given.get("kind") not in NATURAL_KINDS:
            kind = given.get("kind") if isinstance(given, dict) else given
            raise BadInput(f"claim of kind {kind!r:.40} does not exist; the kinds are {choices(sorted(NATURAL_KINDS))}")
        fields = {"component": str(component), **given}
        if not isinstance(fields["component"], str) or Component.parse(fields["component"]) != component:
            raise BadInput(f"claim is about {fields['component']!r:.40}; in this stage claims are about {component}")
        return claim_from(fields, NATURAL_KINDS)

    @property
    def _kinds(self) -> Mapping[str, type[Claim]]:
        return NATURAL_KINDS

    def grammar(self) -> dict[str, Any]:
        """What the typed prompts say about claims."""
        role = next((role for role in self.observed.roles if role != "end"), "end")
        name = str(self.circuit[0])
        return {
            "claims": describe_claims(NATURAL_KINDS),
            "functional": sorted(FUNCTIONAL_NATURAL),
            "claim_examples": [
                {"kind": "necessary", "component": name},
                {"kind": "moves_role", "component": name, "role": role, "to": "end"},
                {"kind": "redundant", "component": name, "others": ["L0H0", "L0H1"]},
            ],
        }


def stage_budget(*, compact: bool) -> Budget:
    """What one stage may use."""
    return STAGE_COMPACT if compact else STAGE


def helper_lines(*libraries: str) -> list[str]:
    """The helper functions of some libraries, or of all: library, signature and what they do, one line each."""
    lines = []
    for library in libraries or LIBRARIES:
        kind = LIBRARIES[library]
        for name in public(kind):
            parameters = [str(one.name) for one in list(signature(getattr(kind, name)).parameters.values())[1:]]
            sentences = " ".join((getdoc(getattr(kind, name)) or "").split()).split(". ")
            said = [sentences[0], *(one for one in sentences[1:] if one.startswith("Returns"))]
            lines.append(f"{library}: {name}({', '.join(parameters)}): {'. '.join(said).rstrip('.')}.")
    return lines
