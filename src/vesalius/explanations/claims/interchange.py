"""*Computes*: a component carries certain variables of a hypothesised program.

The experiment is the interchange intervention. The component takes its values from another input; the hypothesised
program, with the carried variables taken from the same input, says what the model must then answer. Answers that
neither change nor should change prove nothing, so accuracy is counted where the program's answer or the model's does
change. A wrong table entry shows only where it is used, so accuracy is also counted argument by argument: the answers
that hang on one argument are those the program would give otherwise if the positions with that argument kept their own
value.

The rule: the program as a whole must agree with the model, the accuracy on changed answers must be high, no argument
value and no position with enough cases may be bad, a shuffled source must predict clearly worse, and each rival
program that predicts something else must lose where the two differ.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.explanations.claims.base import Claim, Hypothesis, Outcome, listed, rounded, share_within
from vesalius.explanations.claims.laboratory import Lab
from vesalius.explanations.claims.rivals import Rival, rivals
from vesalius.rasp import Aggregate, Program, SelectorWidth, Trace, Variable

# Set on planted claims about 22 generated tasks (seeds 101, 202, 303, 404, 505; depth 1 to 3; 54 components, trained on
# a CPU, three of the models falling short of the training gate) and frozen before the rule met near misses of the
# benchmark circuits. With an accuracy bar of 0.95, near misses that touch a few per cent of the inputs got through;
# 0.97 stopped them and cost no true claim. In the end 3 of 204 near misses were supported, each wrong about an argument
# that hardly occurs, and 44 of 54 true claims; the ten refuted ones sit in cells where the trained model itself fails.
MIN_AGREEMENT = 0.97
MIN_CHANGED_ACCURACY = 0.97
MIN_WORST_CELL = 0.8
CELL_CASES = 12
MIN_CHANGED_ROWS = 24
MIN_LEAD_OVER_SHUFFLED = 0.1
RIVALS = 8
#: What the figures of the evidence measure; whoever reads a record finds them by these names.
AGREEMENT = "agreement of the hypothesised program with the model"
ACCURACY = "interchange accuracy on changed answers"
WORST = "worst accuracy of any argument value or position"
CONTEST = "share of inputs that follow the claim, against the closest rival"
MAX_ARGUMENTS = 128  # combinations that are looked at one by one


class Computes(Claim, frozen=True):
    """The component carries the variables that the hypothesis assigns to it."""

    kind: Literal["computes"] = "computes"
    hypothesis: Hypothesis

    @property
    def text(self) -> str:
        carried = self.hypothesis.carried_by(self.component)
        return f"{self.component} computes {listed(carried)} of {self.hypothesis.program.name}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Interchange against the program's prediction; see the module."""
        lab.require_finite(self.kind)
        carried = self.hypothesis.carried_by(self.component)
        return examine_program(lab, self.part, self.hypothesis.program, carried, level=level)


def examine_program(
    lab: Lab, component: Component, program: Program, carried: tuple[str, ...], *, level: float
) -> Outcome:
    """The rule of `computes` for one component and the variables of a program it is said to carry."""
    known = lab.examined.setdefault(program, {})
    key = component, carried, level
    if key not in known:
        known[key] = _examine(lab, component, program, carried, level)
    return known[key]


def _examine(lab: Lab, component: Component, program: Program, carried: tuple[str, ...], level: float) -> Outcome:
    bench = Bench(lab, component, carried, program)
    found = bench.compare(program)
    agreement = _agreement(lab, program, level)
    accuracy = _accuracy(bench, program, found, level)
    if found.rows < MIN_CHANGED_ROWS:
        return "untested", (agreement, accuracy)
    if _fails(agreement, MIN_AGREEMENT) or _fails(accuracy, MIN_CHANGED_ACCURACY):
        return "refuted", (agreement, accuracy)
    worst = _worst(bench, program, found)
    verdict = _verdict(accuracy, worst)
    if verdict != "supported":
        return verdict, (agreement, accuracy, worst)
    verdict, contest = _contest(bench, program, found, level)
    return verdict, (agreement, accuracy, worst, contest)


def _fails(evidence: Evidence, bar: float) -> bool:
    return evidence.value is not None and evidence.value < bar


def _verdict(accuracy: Evidence, worst: Evidence) -> Verdict:
    assert accuracy.value is not None
    assert accuracy.low is not None
    if _fails(worst, MIN_WORST_CELL):
        return "refuted"
    shuffled = accuracy.controls.get("shuffled_source")
    if shuffled is not None and accuracy.value - shuffled < MIN_LEAD_OVER_SHUFFLED:
        return "untested"
    return "supported" if accuracy.low >= MIN_WORST_CELL else "untested"


@dataclass(frozen=True)
class Comparison:
    """Predicted and observed answers of one experiment, pair by pair."""

    predicted: Tensor
    right: Bool[Tensor, "pair pos"]
    changed: Bool[Tensor, "pair pos"]

    @property
    def rows(self) -> int:
        """Pairs in which something changed."""
        return int(self.changed.any(1).sum())

    @property
    def accuracy(self) -> float | None:
        """Share of changed answers predicted right."""
        n = int(self.changed.sum())
        return float((self.right & self.changed).sum() / n) if n else None


class Bench:
    """One component, the interchange that shows what it carries, and the model's answers to it.

    Positions are exchanged place by place; where that never changes the program's answer, source positions are read in
    random order, which shows variables that depend on the position alone. `crossed` decides between the two instead.
    """

    def __init__(
        self, lab: Lab, component: Component, carried: tuple[str, ...], program: Program, *, crossed: bool | None = None
    ) -> None:
        self.lab, self.component, self.carried = lab, component, carried
        self.crossed = self._shows_only_crossed(program) if crossed is None else crossed
        self.reads = lab.other_place if self.crossed else lab.same_place
        self.observed = lab.crossed_interchange(component) if self.crossed else lab.whole_interchange(component)

    def predict(self, program: Program, *, reads: Tensor | None = None, shuffled: bool = False) -> Tensor:
        """What the program says the model must answer; `shuffled` gives each row another row's source values."""
        base, source = self.lab.traces(program)
        if shuffled:
            source = take(source, torch.arange(self.lab.n).roll(1))
        output = program.interchange(
            base,
            source,
            torch.ones(self.lab.n, 1, dtype=torch.bool),
            positions=self.reads if reads is None else reads,
            carriers=[self.carried],
        )
        return self.lab.answers(program, output)

    def compare(self, program: Program) -> Comparison:
        """The program's predictions held against the model's answers."""
        lab = self.lab
        predicted = self.predict(program)
        before = lab.answers(program, lab.traces(program)[0].output)
        changed = ~lab.same(predicted, before) | ~lab.same(self.observed, lab.clean)
        return Comparison(predicted, lab.same(predicted, self.observed), changed & lab.real)

    def right_if_shuffled(self, program: Program) -> Bool[Tensor, "pair pos"]:
        """Where the program is right with another row's source values: a control."""
        return self.lab.same(self.predict(program, shuffled=True), self.observed)

    def right_if_ignored(self, program: Program) -> Bool[Tensor, "pair pos"]:
        """Where the program is right as if nothing had been exchanged: a control."""
        return self.lab.same(self.lab.answers(program, self.lab.traces(program)[0].output), self.observed)

    def arguments(self, program: Program) -> list[Bool[Tensor, "pair pos"]]:
        """For each combination of argument values of a carried variable, the positions whose source value has it."""
        _, source = self.lab.traces(program)
        given = self.reads >= 0
        read = self.reads.clamp(min=0)
        masks = []
        for name in self.carried:
            columns = [source.values[argument].gather(1, read) for argument in _arguments_of(program, name)]
            whole = [(10 * c).round().long() if c.is_floating_point() else c for c in columns]
            _, label = torch.unique(torch.stack(whole, -1)[given], dim=0, return_inverse=True)
            labels = torch.full_like(self.reads, -1)
            labels[given] = label
            frequent = label.bincount().argsort(descending=True)[:MAX_ARGUMENTS]
            masks += [labels == value for value in frequent.tolist()]
        return masks

    def _shows_only_crossed(self, program: Program) -> bool:
        return not self._changes(program, self.lab.same_place) and self._changes(program, self.lab.other_place)

    def _changes(self, program: Program, reads: Tensor) -> bool:
        before = self.lab.answers(program, self.lab.traces(program)[0].output)
        changed = ~self.lab.same(self.predict(program, reads=reads), before) & self.lab.real
        return int(changed.any(1).sum()) >= MIN_CHANGED_ROWS


def take(trace: Trace, rows: Int[Tensor, " row"]) -> Trace:
    """Some rows of a trace."""
    values = {name: value[rows] for name, value in trace.values.items()}
    return Trace(trace.tokens[rows], trace.lengths[rows], values, trace.output[rows])


def expression_of(program: Program, name: str) -> Variable:
    """The expression of a variable, the head of a count included."""
    by_name = {program.name_of(node): node for node in program.expressions if isinstance(node, Variable)}
    return by_name[name] if name in by_name else by_name[name.removesuffix("_head")]


def _arguments_of(program: Program, name: str) -> tuple[str, ...]:
    """The variables a table is looked up by; a head has no table, so its own value stands for them."""
    node = expression_of(program, name)
    if isinstance(node, Aggregate | SelectorWidth):
        return (name,)
    return tuple(program.name_of(operand) for operand in node.inputs)  # type: ignore[arg-type]


def _agreement(lab: Lab, program: Program, level: float) -> Evidence:
    base, _ = lab.traces(program)
    same = lab.same(lab.answers(program, base.output), lab.clean)
    share = float(same[lab.real].float().mean())
    low, high = share_within(share * lab.n, lab.n, level)
    return Evidence(
        experiment="nothing replaced",
        measure=AGREEMENT,
        value=rounded(share),
        low=rounded(low),
        high=rounded(high),
        n=lab.n,
        rule=f">= {MIN_AGREEMENT}",
        seed=lab.seed,
    )


def _accuracy(bench: Bench, program: Program, found: Comparison, level: float) -> Evidence:
    lab, rows, accuracy = bench.lab, found.rows, found.accuracy
    # Answers of one input hang together, so the interval counts inputs, not answers.
    low, high = share_within((accuracy or 0.0) * rows, rows, level)
    controls = {"all_answers": rounded(found.right[lab.real].float().mean())}
    if accuracy is not None:
        controls["shuffled_source"] = rounded(bench.right_if_shuffled(program)[found.changed].float().mean())
        for other in lab.matched(bench.component, k=1):
            right = lab.same(found.predicted, lab.whole_interchange(other))
            controls[f"other_component {other}"] = rounded(right[found.changed].float().mean())
    return Evidence(
        experiment=f"interchange of {bench.component}" + (", read at other positions" if bench.crossed else ""),
        measure=ACCURACY,
        value=rounded(accuracy),
        low=rounded(low) if rows else None,
        high=rounded(high) if rows else None,
        n=rows,
        controls=controls,
        rule=f">= {MIN_CHANGED_ACCURACY}, low end >= {MIN_WORST_CELL}, {MIN_LEAD_OVER_SHUFFLED} above shuffled_source, "
        f"n >= {MIN_CHANGED_ROWS}",
        seed=lab.seed,
    )


def _worst(bench: Bench, program: Program, found: Comparison) -> Evidence:
    """The lowest accuracy over argument values and over answered positions, where there are enough cases."""
    cases = [found.changed[:, place] for place in range(found.changed.shape[1])]
    shares = [_share(found.right[:, place], case) for place, case in enumerate(cases)]
    for mask in bench.arguments(program):
        without = bench.predict(program, reads=torch.where(mask, -1, bench.reads))
        hanging = ~bench.lab.same(without, found.predicted) & bench.lab.real
        shares.append(_share(found.right, hanging))
    counted = [share for share in shares if share is not None]
    return Evidence(
        experiment=f"interchange of {bench.component}, argument by argument and position by position",
        measure=WORST,
        value=rounded(min(counted, default=None)),
        low=None,
        high=None,
        n=len(counted),
        controls={"with_too_few_cases": float(len(shares) - len(counted))},
        rule=f">= {MIN_WORST_CELL} for each with >= {CELL_CASES} cases",
        seed=bench.lab.seed,
    )


def _share(right: Tensor, case: Tensor) -> float | None:
    n = int(case.sum())
    return float((right & case).sum() / n) if n >= CELL_CASES else None


def _contest(bench: Bench, program: Program, found: Comparison, level: float) -> tuple[Verdict, Evidence]:
    """The claim against each rival where the two predict different answers."""
    rivalry = rivals(program, bench.carried, seed=bench.lab.seed, limit=RIVALS)
    level = 1 - (1 - level) / max(1, len(rivalry))
    shares: dict[str, float] = {}
    lost = undecided = alike = 0
    for rival in rivalry:
        ours, theirs = _wins(bench, rival, found)
        if ours + theirs < CELL_CASES:
            alike += 1
            continue
        shares[rival.label] = ours / (ours + theirs)
        low, high = share_within(ours, ours + theirs, level)
        lost += high < 0.5
        # All inputs on our side, though too few for so strict a level, leave nothing to decide.
        undecided += theirs > 0 and low <= 0.5 <= high
    verdict: Verdict = "refuted" if lost else "untested" if undecided or (alike and not shares) else "supported"
    return verdict, Evidence(
        experiment="nearest rival programs, where they predict another answer",
        measure=CONTEST,
        value=rounded(min(shares.values(), default=None)),
        low=None,
        high=None,
        n=len(rivalry),
        controls={"rivals_alike": float(alike), **{label: rounded(share) for label, share in shares.items()}},
        rule="every interval above 0.5 or no input on the rival's side, and not every rival alike",
        seed=bench.lab.seed,
    )


def _wins(bench: Bench, rival: Rival, found: Comparison) -> tuple[int, int]:
    """Inputs on which the model follows the claim, and on which it follows the rival, where the two differ."""
    other = bench.predict(rival.program)
    apart = ~bench.lab.same(other, found.predicted) & bench.lab.real
    follows_rival = apart & bench.lab.same(other, bench.observed)
    return int((apart & found.right).any(1).sum()), int(follows_rival.any(1).sum())
