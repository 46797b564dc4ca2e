"""*Depends only on*, *independent of*, *combines*: which variables a component's activations encode.

The experiment swaps the component's activations between inputs, but only at chosen positions: where a variable has the
same value in both inputs, or where it differs. If the component depends on v alone, a swap at equal v changes no
output; if v matters, some swap at different v does. A shuffled control chooses positions by another pair's values.
A variable is one of a hypothesised program (including `tokens` and `indices`); nothing is assumed about the rest of it.

Swaps at the same position cannot see the position, so outputs are also moved to other positions (`moved`): a component
that depends only on v keeps every output when it is moved between positions of equal v. Where it does not, the claim
holds at a fixed position only; where the claim names what the component carries in the program (`carried`) and the
program with the position inside predicts the moved outputs instead, it is refuted. A claim with `indices` among its
variables speaks of the position itself and is decided by the moved output alone.

Equal values in two inputs do not say where a component has the value from, if another component holds the same one. So
where the claim says who carries the variables (`carriers`), the component's inputs are exchanged as well: those that
hold the variables stay, all others are varied, one by one and together (`wiring`).

An experiment in which nothing can change has no power: it leaves a claim undecided and refutes nothing.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool
from pydantic import Field
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.documents.view import join_names
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims.base import (
    Claim,
    CompiledProgram,
    ComponentName,
    Outcome,
    all_of,
    level_for,
    marked,
    rounded,
    share_interval_at,
)
from vesalius.explanations.claims.moved import inputs_that_stay, moved_output, moved_where_equal
from vesalius.explanations.claims.wiring import read_alone
from vesalius.explanations.laboratory import CircuitLab, Lab
from vesalius.rasp import Program

#: Inputs that must stay the same when equal values are swapped.
MIN_UNCHANGED = 0.97
#: Inputs that must change when different values are swapped, for the variable to matter.
MIN_CHANGED = 0.05
MIN_INPUTS = 24
_EQUAL_NUMBERS = 0.005
_INDICES = "indices"


class DependsOnlyOn(Claim, frozen=True):
    """Swaps of its activations change nothing where these variables are equal; where they differ, they do."""

    tested_in: ClassVar[type[Lab]] = CircuitLab

    kind: Literal["depends_only_on"] = "depends_only_on"
    program: CompiledProgram
    variables: tuple[str, ...]
    carried: tuple[str, ...] = ()
    carriers: dict[ComponentName, tuple[str, ...]] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.component} depends only on {join_names(self.variables)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare swaps at equal values with swaps at different values, move the output, and exchange the inputs."""
        lab = CircuitLab.require(lab, self.kind)
        equal = equal_in(lab, self.program, self.variables)
        verdict, evidence = examine_dependence(lab, self.part, equal, level=level)
        if verdict == "supported" and _INDICES not in self.variables:
            across = equal_across(lab, self.program, self.variables)
            verdict, evidence = with_moved(lab, self.part, self.program, self.carried, across, evidence, level=level)
        if verdict != "supported" or not self.carriers:
            return verdict, evidence
        read, paths = read_alone(lab, self.part, self.program, self.carriers, self.variables, level=level)
        return all_of(verdict, read), (*evidence, *paths)


class IndependentOf(Claim, frozen=True):
    """Swapping activations where `variable` differs, and the `given` variables do not, changes nothing."""

    tested_in: ClassVar[type[Lab]] = CircuitLab
    functional: ClassVar[bool] = False

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
        lab = CircuitLab.require(lab, self.kind)
        differs = ~equal_in(lab, self.program, (self.variable,))
        given_equal = equal_in(lab, self.program, self.given)
        where, rule = f"where {self.variable} differs", f">= {MIN_UNCHANGED}"
        at_difference = swap(lab, self.part, differs & given_equal, where, level=level, rule=rule)
        everywhere, rule = torch.ones_like(given_equal), f"<= {1 - MIN_CHANGED}"
        anywhere = swap(lab, self.part, everywhere, "everywhere", level=level, rule=rule)
        if not _enough(at_difference, anywhere) or _low(anywhere) > 1 - MIN_CHANGED:
            return "undecided", (at_difference, anywhere)  # a component that never matters is independent of everything
        verdict = _unchanged(at_difference)
        return verdict, (marked(at_difference, verdict), marked(anywhere, "supported"))


class Combines(Claim, frozen=True):
    """Both variables matter, each while the other is held, and nothing else does. With `carried`, the variables of the
    program that the component carries, each must matter where the program says that it shows. With `carriers`, what
    every component carries, a component read beside the position must not hold the position itself.
    """

    tested_in: ClassVar[type[Lab]] = CircuitLab

    kind: Literal["combines"] = "combines"
    program: CompiledProgram
    variables: tuple[str, str]
    carried: tuple[str, ...] = ()
    carriers: dict[ComponentName, tuple[str, ...]] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.component} combines {join_names(self.variables)}: each matters while the other stays."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Swaps where only one of the two differs must change outputs; swaps where neither does must not."""
        lab = CircuitLab.require(lab, self.kind)
        both = lab.real & lab.source_real
        first, second = (equal_in(lab, self.program, (name,)) for name in self.variables)
        if bool(first[both].all()) or bool(second[both].all()):
            pair = self.variables if bool(second[both].all()) else _reversed(self.variables)
            return self._with_position(lab, pair, level)
        neither = self._neither(lab, first & second, level)
        single = [self._single(lab, pair, level) for pair in (self.variables, _reversed(self.variables))]
        evidence = (neither, *single)
        if not _enough(*evidence):
            return "undecided", evidence
        # Without a program that says where an argument shows, one that changes nothing may only have no case here.
        differs = _changed if self.carried else _with_power
        verdict = all_of(_unchanged(neither), differs(single[0]), differs(single[1]))
        if verdict != "supported":
            return verdict, evidence
        across = equal_across(lab, self.program, self.variables)
        return with_moved(lab, self.part, self.program, self.carried, across, evidence, level=level)

    def _with_position(self, lab: CircuitLab, pair: tuple[str, str], level: float) -> Outcome:
        """The position, and what depends on it alone, differ only where an output is moved: the program says what then
        follows if it is inside. The first of `pair` is the variable that does differ in place.
        """
        equal = equal_in(lab, self.program, pair[:1])
        neither, differs = self._neither(lab, equal, level), self._single(lab, pair, level)
        if not self.carried or not _enough(neither, differs):
            return "undecided", (neither, differs)
        moved = moved_output(lab, self.part, self.program, self.carried, level=level)
        verdicts: dict[str | None, Verdict] = {"free": "supported", "dependent": "refuted"}
        verdict = all_of(_unchanged(neither), _changed(differs), verdicts.get(moved[0].outcome, "undecided"))
        stay = inputs_that_stay(lab, self.part, self.program, self.carriers, level=level)
        return all_of(verdict, "undecided") if stay else verdict, (neither, differs, *moved, *stay)

    def _neither(self, lab: CircuitLab, where: Tensor, level: float) -> Evidence:
        evidence = swap(lab, self.part, where, "where both are equal", level=level, rule=f">= {MIN_UNCHANGED}")
        return marked(evidence, _unchanged(evidence) if _enough(evidence) else "undecided")

    def _single(self, lab: CircuitLab, pair: tuple[str, str], level: float) -> Evidence:
        return _only_first_differs(lab, self.part, self.program, self.carried, pair, level)


def arguments_matter(
    lab: CircuitLab, component: Component, program: Program, carried: tuple[str, ...], arguments: tuple[str, str]
) -> tuple[Evidence, ...]:
    """For both arguments of a table that a component is said to carry: swaps where one of them alone differs and the
    program says that it shows must change outputs. Where they do not, `combines` is refuted, and so is the table. The
    level is that of a single claim, so that the two agree however many claims were tried.
    """
    return tuple(
        _only_first_differs(lab, component, program, carried, pair, level_for(1))
        for pair in (arguments, _reversed(arguments))
    )


def _reversed(pair: tuple[str, str]) -> tuple[str, str]:
    return pair[1], pair[0]


def _only_first_differs(
    lab: CircuitLab,
    component: Component,
    program: Program,
    carried: tuple[str, ...],
    pair: tuple[str, str],
    level: float,
) -> Evidence:
    """Swaps where the first of two variables differs and the second does not; cached in the laboratory."""
    outcomes = lab.outcomes.setdefault(program, {})
    key = "one differs", component, carried, pair, level
    if key not in outcomes:
        first, second = (equal_in(lab, program, (name,)) for name in pair)
        where, description = ~first & second, f"where only {pair[0]} differs"
        if carried:
            # A variable that seldom shows is still an argument: only inputs count in which it should show.
            where = where & _shows(lab, program, carried, where)[:, None]
            description += " and the program says that it shows"
        evidence = swap(lab, component, where, description, level=level, rule=f"interval below {1 - MIN_CHANGED}")
        outcomes[key] = marked(evidence, _changed(evidence) if _enough(evidence) else "undecided")
    return outcomes[key]


def _shows(lab: CircuitLab, program: Program, carried: tuple[str, ...], where: Bool[Tensor, "pair pos"]) -> Tensor:
    """Pairs in which the program's answers change when the carried variables are swapped at these positions."""
    base, source = lab.traces(program)
    reads = torch.where(where & lab.real & lab.source_real, lab.same_place, -1)
    marked_rows = torch.ones(lab.n, 1, dtype=torch.bool)
    swapped = program.interchange(base, source, marked_rows, positions=reads, carriers=[carried])
    before, after = (lab.answers(program, output) for output in (base.output, swapped))
    return (~lab.same(before, after) & lab.real).any(1)


def with_moved(
    lab: CircuitLab,
    component: Component,
    program: Program,
    carried: tuple[str, ...],
    across: Bool[Tensor, "pair pos pos"],
    evidence: tuple[Evidence, ...],
    *,
    level: float,
) -> Outcome:
    """A claim that swaps at the same position support, after outputs were moved between positions of equal values."""
    rival = moved_output(lab, component, program, carried, level=level)[0] if carried else None
    moved = moved_where_equal(lab, component, across, level=level, rival=rival)
    return "refuted" if moved[0].outcome == "dependent" else "supported", (*evidence, *moved)


def examine_dependence(
    lab: CircuitLab,
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
        return "undecided", (at_equal, at_difference)
    at_equal = marked(at_equal, _unchanged(at_equal))
    verdict = all_of(_unchanged(at_equal), _with_power(at_difference))
    at_difference = marked(at_difference, _with_power(at_difference))
    if verdict == "supported" and shuffled.value is not None and _low(at_equal) <= shuffled.value:
        # Positions chosen without regard to the variables do as well.
        return "undecided", (marked(at_equal, "undecided"), at_difference)
    return verdict, (at_equal, at_difference)


def equal_in(lab: CircuitLab, program: Program, variables: Sequence[str]) -> Bool[Tensor, "pair pos"]:
    """Positions where base and source both have a token and equal values of all these variables."""
    equal = lab.real & lab.source_real
    for ours, theirs in _values(lab, program, variables):
        equal = equal & _same_value(ours, theirs)
    return equal


def equal_across(lab: CircuitLab, program: Program, variables: Sequence[str]) -> Bool[Tensor, "pair pos pos"]:
    """Where the base at one position and the source at another both have a token and equal values."""
    equal = lab.real[:, :, None] & lab.source_real[:, None, :]
    for ours, theirs in _values(lab, program, variables):
        equal = equal & _same_value(ours[:, :, None], theirs[:, None, :])
    return equal


def _values(lab: CircuitLab, program: Program, variables: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
    base, source = lab.traces(program)
    for name in variables:
        if name not in base.values:
            raise BadInput(f"variable {name!r} is not in program {program.name!r}; it has {choices(base.values)}")
    return [(base.values[name], source.values[name]) for name in variables]


def _same_value(ours: Tensor, theirs: Tensor) -> Tensor:
    return (ours - theirs).abs() < _EQUAL_NUMBERS if ours.is_floating_point() else ours == theirs


def swap(
    lab: CircuitLab,
    component: Component,
    where: Bool[Tensor, "pair pos"],
    description: str,
    *,
    level: float,
    rule: str,
    controls: dict[str, float | None] | None = None,
) -> Evidence:
    """Share of inputs whose outputs all stay when activations are swapped at the positions `where`."""
    unchanged = lab.stay_when_swapped(component, where)
    share = low = high = None
    if len(unchanged):
        share = float(unchanged.float().mean())
        low, high = share_interval_at(float(unchanged.sum()), len(unchanged), level)
    return Evidence(
        experiment=f"swap of {component}'s activations {description}",
        measure="share of inputs whose outputs all stay",
        value=rounded(share),
        low=rounded(low),
        high=rounded(high),
        n=len(unchanged),
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
    return "refuted" if evidence.high < MIN_UNCHANGED else "undecided"


def _changed(evidence: Evidence) -> Verdict:
    assert evidence.high is not None
    if evidence.high < 1 - MIN_CHANGED:
        return "supported"
    return "refuted" if _low(evidence) >= 1 - MIN_CHANGED else "undecided"


def _with_power(evidence: Evidence) -> Verdict:
    """Whether enough inputs change for the rest of the test to say anything; where they do not, nothing is refuted."""
    return "supported" if _changed(evidence) == "supported" else "undecided"
