"""*Aggregates*: a head aggregates one variable over the positions that a selector picks.

It must carry the aggregated value: the verdict is that of `computes` for the same program, whose rivals move and
replace the selector. Whether the value is all it carries is another question (the rule of `depends_only_on`): where
swaps at equal values do change outputs, the text says that the head carries something beside.
"""

from typing import Literal

from jaxtyping import Bool
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import Claim, Hypothesis, Outcome
from vesalius.explanations.claims.dependence import equal_in, examine_dependence
from vesalius.explanations.claims.interchange import examine_program, expression_of
from vesalius.explanations.claims.laboratory import Lab
from vesalius.rasp import Aggregate, Comparison, Program, Select, SelectorWidth, indices

#: The outcome of the swaps where a head carries more than the aggregated value.
BESIDE = "something beside"

_RELATIONS = {
    Comparison.EQ: "equals",
    Comparison.NEQ: "differs from",
    Comparison.LT: "is less than",
    Comparison.LEQ: "is at most",
    Comparison.GT: "is more than",
    Comparison.GEQ: "is at least",
    Comparison.FALSE: "never goes with",
}


class Aggregates(Claim, frozen=True):
    """The head carries an Aggregate or a count (SelectorWidth) of the hypothesised program."""

    kind: Literal["aggregates"] = "aggregates"
    hypothesis: Hypothesis

    @property
    def text(self) -> str:
        program, name = self.hypothesis.program, self._variable()
        node = expression_of(program, name)
        operand = f"the values of {program.name_of(node.values)}" if isinstance(node, Aggregate) else "the number"
        assert isinstance(node, Aggregate | SelectorWidth)
        return f"{self.component} aggregates {operand} over positions {_selection(program, node.selector)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Apply the rule of `computes`, and show by that of `depends_only_on` whether the value is all there is."""
        lab.require_finite(self.kind)
        program, name = self.hypothesis.program, self._variable()
        return examine_aggregate(lab, self.part, program, name, equal=equal_in(lab, program, (name,)), level=level)

    def _variable(self) -> str:
        carried = self.hypothesis.carried_by(self.component)
        node = expression_of(self.hypothesis.program, carried[0])
        if len(carried) != 1 or not isinstance(node, Aggregate | SelectorWidth):
            raise BadInput(f"aggregates {self.component}: it must carry one Aggregate or SelectorWidth, not {carried}")
        return carried[0]


def examine_aggregate(
    lab: Lab, head: Component, program: Program, name: str, *, equal: Bool[Tensor, "pair pos"], level: float
) -> Outcome:
    """The rule for a head that carries an aggregated or copied value; `equal` says where this is the same."""
    verdict, evidence = examine_program(lab, head, program, (name,), level=level)
    if verdict != "supported":
        return verdict, evidence
    alone, dependence = examine_dependence(lab, head, equal, level=level)
    outcome = {"supported": "nothing beside", "refuted": BESIDE, "untested": "not decided"}[alone]
    return verdict, (*evidence, *(one.model_copy(update={"outcome": outcome}) for one in dependence))


def _selection(program: Program, selector: Select) -> str:
    keys, queries = program.name_of(selector.keys), program.name_of(selector.queries)
    if selector.predicate is Comparison.TRUE:
        return "everywhere"
    if keys == queries == indices.kind and selector.predicate is Comparison.LEQ:
        return "up to its own"
    relation = _RELATIONS[selector.predicate] if isinstance(selector.predicate, Comparison) else "goes with"
    return f"whose {keys} {relation} {queries} here"
