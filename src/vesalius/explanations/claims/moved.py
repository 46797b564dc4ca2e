"""The moved-output test: does the value that a component wrote travel to another position?

An exchange at the same position cannot tell a variable from the same variable combined with the position: the position
is equal on both sides. So the component's output at position j of the source is put at position i of the base, at one
position (`single`) or at all of them in random order (`all`), and the hypothesised program says what must follow if the
value travels. Its rivals (`position_rivals`) say what follows otherwise: the position is inside the value, or outside.

A claim is free of the position if it holds in both designs, as far as enough answers change in them, and at every
position: the moves to and from each position are read by themselves (`cells`). There are four outcomes, never two,
because a reader may know the value only together with the code of its own position, and then a moved output says
nothing:

    free       the program predicts the answers to moved outputs: the value travels
    dependent  a rival does, and the program does not: the claim is wrong about the position
    fixed      neither: the claim was tested place by place only, and its text must say so
    untested   too few answers change, or the inputs have one position

A table that reads another component beside the position is a case of its own: whether the position comes in here or has
come into that component already, no move of the table's own output can tell. If the other component's output does not
travel either, the claim holds at a fixed position (`inputs_that_stay`).

The bars were chosen on the 84 benchmark circuits and 25 others and then frozen: 112 of 113 true claims whose value
travels reach an accuracy of 0.95, and the rival's share is at least 0.74 or at most 0.53.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.explanations.claims.base import (
    MIN_WORST_CELL,
    Cell,
    cells_by,
    marked,
    rounded,
    share_interval_at,
    worst_cell,
    worst_evidence,
)
from vesalius.explanations.claims.rivals import OWN_POSITION, Contestant, is_of_position, rival_contestants
from vesalius.explanations.laboratory import CircuitLab
from vesalius.rasp import Program, ProgramTrace
from vesalius.rasp.document import to_document

MovedOutcome = Literal["free", "dependent", "fixed", "untested"]

MIN_INPUTS = 24
MIN_TRAVELS = 0.90
MIN_RIVAL = 0.70
MIN_RIVAL_LEAD = 0.30
#: Share of inputs whose outputs all stay when an output moves between positions of equal variables.
MIN_UNCHANGED_MOVED = 0.97
MOVED = "accuracy on answers changed by a moved output, if the value travels"
MOVED_EQUAL = "share of inputs whose outputs all stay when the output moves between positions of equal variables"
MOVED_WORST = "worst accuracy of any position that an output is moved to or from"
MOVED_INPUT = "the same for an input that the table reads beside the position"
#: How the sentence of a claim begins that was tested place by place only.
FIXED = "At a fixed position, "
_VERDICTS: dict[MovedOutcome, Verdict] = {
    "free": "supported",
    "dependent": "refuted",
    "fixed": "undecided",
    "untested": "undecided",
}
_OUTCOMES: tuple[MovedOutcome, ...] = ("free", "dependent", "fixed", "untested")


@dataclass(frozen=True)
class _Design:
    """One way of moving: per row the pair it uses and the source position that each base position reads."""

    label: str
    rows: Int[Tensor, " row"]
    reads: Int[Tensor, "row pos"]
    observed: Tensor

    def predict(self, lab: CircuitLab, contestant: Contestant) -> Tensor:
        """The answers if the contestant is right."""
        program = contestant.program
        base, source = (_rows_of(trace, self.rows) for trace in lab.traces(program))
        output = program.interchange(
            base,
            source,
            torch.ones(len(self.rows), 1, dtype=torch.bool),
            positions=self.reads,
            carriers=[contestant.carried],
        )
        return lab.answers(program, output)


@dataclass(frozen=True)
class _Figures:
    """One design's result: accuracy on changed answers, shares of answers on either side of the closest rival, and the
    share of right answers and the number of inputs by position.
    """

    accuracy: float | None
    rows: int
    ours: float
    theirs: float
    telling: int
    cells: dict[str, tuple[float, int]]
    silent: int

    @property
    def is_dependent(self) -> bool:
        """The closest rival predicts what the claim does not."""
        return self.telling >= MIN_INPUTS and self.theirs >= MIN_RIVAL and self.theirs - self.ours >= MIN_RIVAL_LEAD

    @property
    def is_tested(self) -> bool:
        """Enough answers change."""
        return self.rows >= MIN_INPUTS and self.accuracy is not None

    @property
    def is_free(self) -> bool:
        """The claim predicts the answers, and no rival does better where they differ."""
        return self.is_tested and (self.accuracy or 0.0) >= MIN_TRAVELS and self.ours >= self.theirs


def moved_output(
    lab: CircuitLab, component: Component, program: Program, carried: tuple[str, ...], *, level: float
) -> tuple[Evidence, ...]:
    """The test for one component and the variables of a program it is said to carry: first the outcome, then the worst
    position where one has enough cases; cached in the laboratory.
    """
    outcomes = lab.outcomes.setdefault(program, {})
    key = "moved", component, carried
    if key not in outcomes:
        claim, rivals = Contestant("the claim", program, carried), rival_contestants(program, carried)
        outcomes[key] = {design.label: _compare(lab, design, claim, rivals) for design in designs(lab, component)}
    return _moved_output(lab, component, outcomes[key], level)


def outcome_of(evidence: Sequence[Evidence]) -> MovedOutcome | None:
    """The outcome of the moved-output test in a claim's evidence; None if it was not made."""
    for one in evidence:
        if one.measure in (MOVED, MOVED_EQUAL):
            return next(outcome for outcome in _OUTCOMES if outcome == one.outcome)
    return None


def scoped(text: str, evidence: Sequence[Evidence], *, verdict: Verdict) -> str:
    """The sentence of a claim, limited to a fixed position where no moved output speaks for more."""
    one_position = any(_ONE_POSITION in one.experiment for one in evidence)
    open_here = outcome_of(evidence) in ("fixed", "untested") and not one_position
    open_before = any(one.measure == MOVED_INPUT for one in evidence)
    return f"{FIXED}{text}" if verdict == "supported" and (open_here or open_before) else text


def inputs_that_stay(
    lab: CircuitLab, component: Component, program: Program, carriers: Mapping[str, tuple[str, ...]], *, level: float
) -> tuple[Evidence, ...]:
    """Inputs that a component's tables read beside the position and whose own outputs do not travel: one piece of
    evidence for each. The position may then be inside the input already, and no moved output of the component itself
    can tell, so a claim that it is the component which reads the position holds at a fixed position only.
    """
    owners = {variable: name for name, carried in carriers.items() for variable in carried}
    entries = {entry["name"]: entry for entry in to_document(program)["variables"]}
    fixed_inputs: dict[str, Evidence] = {}
    for table in carriers.get(str(component), ()):
        arguments = entries[table]["of"] if entries.get(table, {}).get("op") in OWN_POSITION else []
        if not any(is_of_position(name, entries) for name in arguments):
            continue
        for name in arguments:
            owner = owners.get(name) or owners.get(f"{name}_head")
            if owner is None or owner in fixed_inputs or owner == str(component) or is_of_position(name, entries):
                continue
            moved = moved_output(lab, Component.parse(owner), program, carriers[owner], level=level)[0]
            if moved.outcome != "free":
                fixed_inputs[owner] = moved.model_copy(update={"measure": MOVED_INPUT, "passed": None})
    return tuple(fixed_inputs.values())


def moved_where_equal(
    lab: CircuitLab,
    component: Component,
    equal: Bool[Tensor, "row pos pos"],
    *,
    level: float,
    rival: Evidence | None = None,
) -> tuple[Evidence, ...]:
    """The form without a program: an output moved from a source position to a base position where the variables are
    equal (`equal[row, base, source]`) must change nothing, on the whole and at no position. A failure alone does not
    refute, because readers may know the value only with their own position's code; together with `rival`, the test with
    a program, it does.
    """
    rows, reads = _moves_where(equal, lab)
    share = low = high = worst = None
    counted: dict[str, float | None] = {}
    if len(rows):
        answers = lab.interchange(component, reads, rows=rows)
        unchanged = (lab.same(answers, lab.clean[rows]) | ~lab.real[rows]).all(1, keepdim=True)
        share = float(unchanged.float().mean())
        low, high = share_interval_at(float(unchanged.sum()), len(rows), level)
        worst, counted = worst_cell(_cells_of_moves(reads, unchanged, torch.ones_like(unchanged)))
    outcome: MovedOutcome = "untested"
    if rival is not None and rival.outcome == "dependent":
        outcome = "dependent"
    elif share is not None and len(rows) >= MIN_INPUTS:
        # Readers that understand the carried value everywhere, and still answer otherwise, hear something else in it.
        changed = "dependent" if rival is not None and rival.outcome == "free" and _surely_changes(high) else "fixed"
        outcome = "free" if share >= MIN_UNCHANGED_MOVED and _everywhere(worst) else changed
    experiment = f"output of {component} moved to another position"
    evidence = Evidence(
        experiment=f"{experiment}{_why_not(lab, len(rows))}",
        measure=MOVED_EQUAL,
        value=rounded(share),
        low=rounded(low),
        high=rounded(high),
        n=len(rows),
        controls={} if rival is None else rival.controls,
        rule=f"free at >= {MIN_UNCHANGED_MOVED} of >= {MIN_INPUTS} inputs, and no position below {MIN_WORST_CELL} for "
        "certain; dependent if a rival with the position inside predicts moved outputs better, or the carried value "
        f"travels and the interval is below {MIN_RIVAL}; else fixed",
        seed=lab.seed,
        outcome=outcome,
    )
    return marked(evidence, _VERDICTS[outcome]), *_worst_position(lab, experiment, worst, counted)


def _surely_changes(high: float | None) -> bool:
    return high is not None and high < MIN_RIVAL


def _moved_output(
    lab: CircuitLab, component: Component, figures: dict[str, _Figures], level: float
) -> tuple[Evidence, ...]:
    cells = {label: cell for each in figures.values() if each.is_tested for label, cell in each.cells.items()}
    worst, counted = worst_cell(cells)
    outcome = _decide(list(figures.values()), worst)
    least = min(figures.values(), key=lambda each: (not each.is_tested, each.accuracy or 0.0), default=None)
    rows = 0 if least is None else least.rows
    accuracy = None if least is None else least.accuracy
    low, high = share_interval_at((accuracy or 0.0) * rows, rows, level)
    controls: dict[str, float | None] = {}
    for label, each in figures.items():
        controls[f"{label}: accuracy"] = rounded(each.accuracy)
        if each.silent:
            controls[f"{label}: inputs with answers left open"] = float(each.silent)
        if each.telling:
            controls |= {
                f"{label}: follow the claim where the rival differs": rounded(each.ours),
                f"{label}: follow the rival": rounded(each.theirs),
                f"{label}: telling inputs": float(each.telling),
            }
    experiment = f"output of {component} moved to another position"
    evidence = Evidence(
        experiment=f"{experiment}{_why_not(lab, rows)}",
        measure=MOVED,
        value=rounded(accuracy),
        low=rounded(low) if rows else None,
        high=rounded(high) if rows else None,
        n=rows,
        controls=controls,
        rule=f"free at >= {MIN_TRAVELS} and no rival ahead in each design with >= {MIN_INPUTS} inputs, and no position "
        f"below {MIN_WORST_CELL} for certain; dependent if a rival has >= {MIN_RIVAL} of >= {MIN_INPUTS} telling "
        f"inputs and {MIN_RIVAL_LEAD} more than the claim; else fixed; untested below {MIN_INPUTS} inputs",
        seed=lab.seed,
        outcome=outcome,
    )
    return marked(evidence, _VERDICTS[outcome]), *_worst_position(lab, experiment, worst, counted)


def _worst_position(
    lab: CircuitLab, experiment: str, worst: Cell | None, counted: dict[str, float | None]
) -> tuple[Evidence, ...]:
    """The worst position as evidence: it passes, or leaves the claim at a fixed position, which refutes nothing."""
    if worst is None:
        return ()
    evidence = worst_evidence(
        f"{experiment}, position by position", measure=MOVED_WORST, cell=worst, controls=counted, seed=lab.seed
    )
    return (evidence if evidence.passed else marked(evidence, "undecided"),)


def _decide(figures: list[_Figures], worst: Cell | None) -> MovedOutcome:
    tested = [each for each in figures if each.is_tested]
    if not tested:
        return "untested"
    if any(each.is_dependent for each in figures):
        return "dependent"
    return "free" if all(each.is_free for each in tested) and _everywhere(worst) else "fixed"


def _everywhere(worst: Cell | None) -> bool:
    """No position is bad for certain."""
    return worst is None or worst.high >= MIN_WORST_CELL


def designs(lab: CircuitLab, component: Component) -> list[_Design]:
    """Both ways of moving, with the model's answers; none where inputs have one position only."""
    if lab.real.shape[1] < 2:
        return []
    rows, reads = lab.single_moves
    every = torch.arange(lab.n)
    return [
        _Design("single", rows, reads, lab.moved_once(component)),
        _Design("all", every, lab.other_place, lab.crossed_interchange(component)),
    ]


def _compare(lab: CircuitLab, design: _Design, claim: Contestant, rivals: Sequence[Contestant]) -> _Figures:
    """The claim on changed answers, and against the rival that follows the model best. A program that has no entry for
    a value at its new position says nothing there: such answers are left out, but a rival may be right about them.
    """
    real = lab.real[design.rows]
    predicted = design.predict(lab, claim)
    right = lab.same(predicted, design.observed)
    before = lab.answers(claim.program, lab.traces(claim.program)[0].output)[design.rows]
    changed = (~lab.same(predicted, before) | ~lab.same(design.observed, lab.clean[design.rows])) & real
    silent = changed & ~lab.has_value(predicted)
    changed &= ~silent
    n = int(changed.sum())
    accuracy = float((right & changed).sum() / n) if n else None
    ours = theirs = 0.0
    inputs = 0
    for rival in rivals:
        other = design.predict(lab, rival)
        differs = ~lab.same(other, predicted) & lab.has_value(other) & real
        telling = int(differs.any(1).sum())
        if not telling:
            continue
        follow = lab.same(other, design.observed)
        first, second = (float((side & differs).sum() / differs.sum()) for side in (right, follow))
        if telling >= MIN_INPUTS and (not inputs or second - first > theirs - ours):
            ours, theirs, inputs = first, second, telling
    cells = _cells(design, right, changed)
    return _Figures(accuracy, int(changed.any(1).sum()), ours, theirs, inputs, cells, int(silent.any(1).sum()))


def _cells(
    design: _Design, right: Bool[Tensor, "row pos"], cases: Bool[Tensor, "row pos"]
) -> dict[str, tuple[float, int]]:
    """Right answers by the position they are given at, where all outputs move; where one does, by the positions it
    moves to and from.
    """
    if design.label == "single":
        return _cells_of_moves(design.reads, right, cases)
    every = torch.zeros(len(cases), dtype=torch.long)
    columns = ((place, slice(place, place + 1)) for place in range(cases.shape[1]))
    cells = {place: cells_by(every, right[:, column], cases[:, column]) for place, column in columns}
    return {f"answers at position {place}, all outputs moved": cell[0] for place, cell in cells.items() if cell}


def _cells_of_moves(
    reads: Int[Tensor, "row pos"], right: Bool[Tensor, "row pos"], cases: Bool[Tensor, "row pos"]
) -> dict[str, tuple[float, int]]:
    """Cells of moves of one output; rows without one are left out."""
    moved = (reads >= 0).any(1)
    places = {"to": (reads >= 0).int().argmax(1), "from": reads.max(1).values}
    return {
        f"moved {way} position {place}": cell
        for way, label in places.items()
        for place, cell in cells_by(torch.where(moved, label, -1), right, cases).items()
    }


def _moves_where(
    equal: Bool[Tensor, "row pos pos"], lab: CircuitLab
) -> tuple[Int[Tensor, " row"], Int[Tensor, "row pos"]]:
    """For each pair one random move between different positions of equal variables; pairs without one are left out."""
    n = equal.shape[1]
    allowed = equal & lab.real[:, :, None] & lab.source_real[:, None, :] & ~torch.eye(n, dtype=torch.bool)
    order = torch.rand(allowed.shape, generator=torch.Generator().manual_seed(lab.seed + 5))
    chosen = order.masked_fill(~allowed, -1.0).flatten(1).argmax(1)
    rows = allowed.flatten(1).any(1).nonzero()[:, 0]
    base, source = chosen[rows] // n, chosen[rows] % n
    reads = torch.full((len(rows), n), -1)
    reads[torch.arange(len(rows)), base] = source
    return rows, reads


def _rows_of(trace: ProgramTrace, rows: Int[Tensor, " row"]) -> ProgramTrace:
    values = {name: value[rows] for name, value in trace.values.items()}
    return ProgramTrace(trace.tokens[rows], trace.lengths[rows], values, trace.output[rows])


def _why_not(lab: CircuitLab, rows: int) -> str:
    """Why the test says nothing, for the evidence."""
    if lab.real.shape[1] < 2:
        return f" ({_ONE_POSITION})"
    return "" if rows >= MIN_INPUTS else f" (only {rows} inputs tell)"


_ONE_POSITION = "inputs have one position only"
