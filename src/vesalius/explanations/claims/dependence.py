"""*Depends only on*, *independent of*, *combines*: which variables a component's activations encode.

The experiment swaps the component's activations between inputs, but only at chosen positions: where a variable has the
same value in both inputs, or where it differs. If the component depends on v alone, a swap at equal v changes no
output; if v matters, some swap at different v does. A shuffled control chooses positions by another pair's values.
A variable is one of a hypothesised program (including `tokens` and `indices`); nothing is assumed about the rest of it.

Activations are swapped at the same position. What depends on the position alone never differs there, so such claims
end *untested*: activations moved to another position would carry that position's code and say nothing about the
variable.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims.base import (
    Claim,
    CompiledProgram,
    Outcome,
    all_of,
    join_names,
    rounded,
    share_interval_at,
)
from vesalius.explanations.claims.laboratory import Lab
from vesalius.rasp import Program

#: Inputs that must stay the same when equal values are swapped.
MIN_UNCHANGED = 0.97
#: Inputs that must change when different values are swapped, for the variable to matter.
MIN_CHANGED = 0.05
MIN_INPUTS = 24
_EQUAL_NUMBERS = 0.005


class DependsOnlyOn(Claim, frozen=True):
    """Where these variables are equal, swapping the component's activations changes nothing; where they differ, it
    does.
    """

    kind: Literal["depends_only_on"] = "depends_only_on"
    program: CompiledProgram
    variables: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{self.component} depends only on {join_names(self.variables)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare swaps at equal values with swaps at different values."""
        lab.require_finite(self.kind)
        return examine_dependence(lab, self.part, equal_in(lab, self.program, self.variables), level=level)


class IndependentOf(Claim, frozen=True):
    """Swapping activations where `variable` differs, and the `given` variables do not, changes nothing."""

    kind: Literal["independent_of"] = "independent_of"
    program: CompiledProgram
    variable: str
    given: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        condition = f", once {join_names(self.given)} is given" if self.given else ""
        return f"{self.component} is independent of {self.variable}{condition}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare swaps where the variable alone differs with swaps anywhere."""
        lab.require_finite(self.kind)
        differs = ~equal_in(lab, self.program, (self.variable,))
        given_equal = equal_in(lab, self.program, self.given)
        where, rule = f"where {self.variable} differs", f">= {MIN_UNCHANGED}"
        at_difference = swap(lab, self.part, differs & given_equal, where, level=level, rule=rule)
        everywhere, rule = torch.ones_like(given_equal), f"<= {1 - MIN_CHANGED}"
        anywhere = swap(lab, self.part, everywhere, "everywhere", level=level, rule=rule)
        if not _enough(at_difference, anywhere) or _low(anywhere) > 1 - MIN_CHANGED:
            return "untested", (at_difference, anywhere)  # a component that never matters is independent of everything
        return _unchanged(at_difference), (at_difference, anywhere)


class Combines(Claim, frozen=True):
    """Both variables matter, each while the other is held, and nothing else does."""

    kind: Literal["combines"] = "combines"
    program: CompiledProgram
    variables: tuple[str, str]

    @property
    def text(self) -> str:
        return f"{self.component} combines {join_names(self.variables)}: each matters while the other stays."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Swaps where only one of the two differs must change outputs; swaps where neither does must not."""
        lab.require_finite(self.kind)
        first, second = (equal_in(lab, self.program, (name,)) for name in self.variables)
        unchanged_rule, changed_rule = f">= {MIN_UNCHANGED}", f"interval below {1 - MIN_CHANGED}"
        neither = swap(lab, self.part, first & second, "where both are equal", level=level, rule=unchanged_rule)
        single = [
            swap(lab, self.part, where, f"where only {name} differs", level=level, rule=changed_rule)
            for name, where in zip(self.variables, (~first & second, first & ~second), strict=True)
        ]
        if not _enough(neither, *single):
            return "untested", (neither, *single)
        verdict = all_of(_unchanged(neither), _changed(single[0]), _changed(single[1]))
        return verdict, (neither, *single)


def examine_dependence(
    lab: Lab,
    component: Component,
    equal: Bool[Tensor, "pair pos"],
    *,
    level: float,
) -> Outcome:
    """The rule of `depends_only_on`, given where the variables are equal in base and source."""
    shuffled = swap(lab, component, equal.roll(1, 0), "at another pair's equal positions", level=level, rule="")
    at_equal = swap(
        lab,
        component,
        equal,
        "where the variables are equal",
        level=level,
        rule=f">= {MIN_UNCHANGED} and above shuffled",
        controls={"shuffled": shuffled.value},
    )
    rule = f"interval below {1 - MIN_CHANGED}"
    at_difference = swap(lab, component, ~equal, "where they differ", level=level, rule=rule)
    if not _enough(at_equal, at_difference):
        return "untested", (at_equal, at_difference)
    verdict = all_of(_unchanged(at_equal), _changed(at_difference))
    if verdict == "supported" and shuffled.value is not None and _low(at_equal) <= shuffled.value:
        return "untested", (at_equal, at_difference)  # positions chosen without regard to the variables do as well
    return verdict, (at_equal, at_difference)


def equal_in(lab: Lab, program: Program, variables: Sequence[str]) -> Bool[Tensor, "pair pos"]:
    """Positions where base and source both have a token and equal values of all these variables."""
    base, source = lab.traces(program)
    equal = lab.real & lab.source_real
    for name in variables:
        if name not in base.values:
            raise BadInput(f"variable {name!r} is not in program {program.name!r}; it has {choices(base.values)}")
        ours, theirs = base.values[name], source.values[name]
        equal = equal & ((ours - theirs).abs() < _EQUAL_NUMBERS if ours.is_floating_point() else ours == theirs)
    return equal


def swap(
    lab: Lab,
    component: Component,
    where: Bool[Tensor, "pair pos"],
    description: str,
    *,
    level: float,
    rule: str,
    controls: dict[str, float | None] | None = None,
) -> Evidence:
    """Share of inputs whose outputs all stay when activations are swapped at the positions `where`."""
    where = where & lab.real & lab.source_real
    rows = where.any(1).nonzero()[:, 0]
    share = low = high = None
    if len(rows):
        answers = lab.interchange(component, torch.where(where, lab.same_place, -1)[rows], rows=rows)
        unchanged = (lab.same(answers, lab.clean[rows]) | ~lab.real[rows]).all(1)
        share = float(unchanged.float().mean())
        low, high = share_interval_at(float(unchanged.sum()), len(rows), level)
    return Evidence(
        experiment=f"swap of {component}'s activations {description}",
        measure="share of inputs whose outputs all stay",
        value=rounded(share),
        low=rounded(low),
        high=rounded(high),
        n=len(rows),
        controls=controls or {},
        rule=rule,
        seed=lab.seed,
    )


def _enough(*evidence: Evidence) -> bool:
    return all(one.n >= MIN_INPUTS for one in evidence)


def _low(evidence: Evidence) -> float:
    assert evidence.low is not None
    return evidence.low


def _unchanged(evidence: Evidence) -> Verdict:
    assert evidence.value is not None
    assert evidence.high is not None
    if evidence.value >= MIN_UNCHANGED:
        return "supported"
    return "refuted" if evidence.high < MIN_UNCHANGED else "untested"


def _changed(evidence: Evidence) -> Verdict:
    assert evidence.high is not None
    if evidence.high < 1 - MIN_CHANGED:
        return "supported"
    return "refuted" if _low(evidence) >= 1 - MIN_CHANGED else "untested"
