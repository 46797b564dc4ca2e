"""The prompts of the stages for natural models: the same stages, other facts, instruments and claims."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import FileSystemLoader

from vesalius.behaviours.prompts import Prompts as BehaviourPrompts
from vesalius.components import Component
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims import NATURAL_KINDS, Claim, claim_from
from vesalius.explanations.hyve.grammar import describe_claims
from vesalius.explanations.hyve.natural.scope import instrument_lines
from vesalius.explanations.hyve.prompting import MAX_ITERATIONS, MOST_EXAMPLES, PROMPTS, Prompts, stage_budget
from vesalius.explanations.verdicts import FUNCTIONAL_NATURAL


@dataclass(frozen=True)
class NaturalPrompts(Prompts):
    """Prompts about a natural model, with its answers on `observed`."""

    observed: BehaviourPrompts
    examples: tuple[dict[str, Any], ...]
    accuracy: float
    scores_variables: ClassVar[bool] = False

    @cached_property
    def _environment(self) -> Any:
        environment = super()._environment
        environment.loader = FileSystemLoader([Path(__file__).parent / "prompts", PROMPTS])
        return environment

    @cached_property
    def _facts(self) -> dict[str, Any]:
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
        """A claim about a component, in the grammar that these prompts show."""
        return read_natural_claim(given, component)

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
                {"kind": "backs_up", "component": name, "of": ["L0H0", "L0H1"]},
            ],
        }


def read_natural_claim(given: Any, component: Component) -> Claim:
    """A claim about `component` from a model's JSON; what is wrong is said in one line for the model."""
    if not isinstance(given, dict) or given.get("kind") not in NATURAL_KINDS:
        kind = given.get("kind") if isinstance(given, dict) else given
        raise BadInput(f"claim of kind {kind!r:.40} does not exist; the kinds are {choices(sorted(NATURAL_KINDS))}")
    fields = {"component": str(component), **given}
    if not isinstance(fields["component"], str) or Component.parse(fields["component"]) != component:
        raise BadInput(f"claim is about {fields['component']!r:.40}; in this stage claims are about {component}")
    return claim_from(fields, NATURAL_KINDS)
