"""The moved-output test: does the value that a component wrote travel to another position?

An exchange at the same position cannot tell a variable from the same variable combined with the position: the position
is equal on both sides. So the component's output at position j of the source is put at position i of the base, at one
position (`single`) or at all of them in random order (`all`), and the hypothesised program says what must follow if the
value travels. Its rivals say what follows otherwise:

    inside   the value has the position inside: own-position readers see the position it came from
    outside  (a table that is claimed to read the position) only its other arguments travel; the position is the new one

Both designs are needed: a pointer that must stay a permutation is visible in one of them only. There are four outcomes,
never two, because a reader may know the value only together with the code of its own position, and then a moved output
says nothing:

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
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import marked, rounded, share_interval_at
from vesalius.explanations.claims.laboratory import Lab
from vesalius.rasp import Program, Trace, Variable
from vesalius.rasp.document import from_document, to_data, to_document

MovedOutcome = Literal["free", "dependent", "fixed", "untested"]
Entry = dict[str, Any]

MIN_INPUTS = 24
MIN_TRAVELS = 0.90
MIN_RIVAL = 0.70
MIN_RIVAL_LEAD = 0.30
#: Share of inputs whose outputs all stay when an output moves between positions of equal variables.
MIN_UNCHANGED_MOVED = 0.97
MOVED = "accuracy on answers changed by a moved output, if the value travels"
MOVED_EQUAL = "share of inputs whose outputs all stay when the output moves between positions of equal variables"
MOVED_INPUT = "the same for an input that the table reads beside the position"
#: How the sentence of a claim begins that was tested place by place only.
FIXED = "At a fixed position, "
_OWN_POSITION = ("map", "sequence_map", "linear_sequence_map")
_INDICES = "indices"
_VERDICTS: dict[MovedOutcome, Verdict] = {
    "free": "supported",
    "dependent": "refuted",
    "fixed": "untested",
    "untested": "untested",
}
_OUTCOMES: tuple[MovedOutcome, ...] = ("free", "dependent", "fixed", "untested")


@dataclass(frozen=True)
class Contestant:
    """A program and the variables of it that a component's output is said to bring along."""

    label: str
    program: Program
    carried: tuple[str, ...]


@dataclass(frozen=True)
class _Design:
    """One way of moving: per row the pair it uses and the source position that each base position reads."""

    label: str
    rows: Int[Tensor, " row"]
    reads: Int[Tensor, "row pos"]
    observed: Tensor

    def predict(self, lab: Lab, contestant: Contestant) -> Tensor:
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
    """One design's result: accuracy on changed answers, and shares of answers on either side of each rival."""

    accuracy: float | None
    rows: int
    ours: float
    theirs: float
    telling: int

    @property
    def is_dependent(self) -> bool:
        """The closest rival predicts what the claim does not."""
        return self.telling >= MIN_INPUTS and self.theirs >= MIN_RIVAL and self.theirs - self.ours >= MIN_RIVAL_LEAD

    @property
    def is_free(self) -> bool:
        """The claim predicts the answers, and no rival does better where they differ."""
        enough = self.rows >= MIN_INPUTS and self.accuracy is not None
        return enough and (self.accuracy or 0.0) >= MIN_TRAVELS and self.ours >= self.theirs


def moved_output(
    lab: Lab, component: Component, program: Program, carried: tuple[str, ...], *, level: float
) -> Evidence:
    """The test for one component and the variables of a program it is said to carry; cached in the laboratory."""
    outcomes = lab.outcomes.setdefault(program, {})
    key = "moved", component, carried, level
    if key not in outcomes:
        outcomes[key] = _moved_output(lab, component, program, carried, level)
    return outcomes[key]


def outcome_of(evidence: Sequence[Evidence]) -> MovedOutcome | None:
    """The outcome of the moved-output test in a claim's evidence; None if it was not made."""
    for one in evidence:
        if one.measure in (MOVED, MOVED_EQUAL):
            return next(outcome for outcome in _OUTCOMES if outcome == one.outcome)
    return None


def scoped(text: str, evidence: Sequence[Evidence], *, verdict: Verdict) -> str:
    """The sentence of a claim, limited to a fixed position where no moved output speaks for more."""
    open_here = outcome_of(evidence) in ("fixed", "untested") and not _one_position(evidence)
    open_before = any(one.measure == MOVED_INPUT for one in evidence)
    return f"{FIXED}{text}" if verdict == "supported" and (open_here or open_before) else text


def inputs_that_stay(
    lab: Lab, component: Component, program: Program, carriers: Mapping[str, tuple[str, ...]], *, level: float
) -> tuple[Evidence, ...]:
    """Inputs that a component's tables read beside the position and whose own outputs do not travel: one piece of
    evidence for each. The position may then be inside the input already, and no moved output of the component itself
    can tell, so a claim that it is the component which reads the position holds at a fixed position only.
    """
    owners = {variable: name for name, carried in carriers.items() for variable in carried}
    entries = {entry["name"]: entry for entry in to_document(program)["variables"]}
    found: dict[str, Evidence] = {}
    for table in carriers.get(str(component), ()):
        arguments = entries[table]["of"] if entries.get(table, {}).get("op") in _OWN_POSITION else []
        if not any(_is_of_position(name, entries) for name in arguments):
            continue
        for name in arguments:
            owner = owners.get(name) or owners.get(f"{name}_head")
            if owner is None or owner in found or owner == str(component) or _is_of_position(name, entries):
                continue
            moved = moved_output(lab, Component.parse(owner), program, carriers[owner], level=level)
            if moved.outcome != "free":
                found[owner] = moved.model_copy(update={"measure": MOVED_INPUT, "passed": None})
    return tuple(found.values())


def _is_of_position(name: str, entries: Mapping[str, Entry]) -> bool:
    """Whether a variable is a function of the position alone."""
    if name == _INDICES:
        return True
    entry = entries.get(name)
    return (
        entry is not None and entry["op"] in _OWN_POSITION and all(_is_of_position(of, entries) for of in entry["of"])
    )


def moved_where_equal(
    lab: Lab, component: Component, equal: Bool[Tensor, "row pos pos"], *, level: float, rival: Evidence | None = None
) -> Evidence:
    """The form without a program: an output moved from a source position to a base position where the variables are
    equal (`equal[row, base, source]`) must change nothing. A failure alone does not refute, because readers may know
    the value only with their own position's code; together with `rival`, the test with a program, it does.
    """
    rows, reads = _moves_where(equal, lab)
    share = low = high = None
    if len(rows):
        answers = lab.interchange(component, reads, rows=rows)
        unchanged = (lab.same(answers, lab.clean[rows]) | ~lab.real[rows]).all(1)
        share = float(unchanged.float().mean())
        low, high = share_interval_at(float(unchanged.sum()), len(rows), level)
    outcome: MovedOutcome = "untested"
    if rival is not None and rival.outcome == "dependent":
        outcome = "dependent"
    elif share is not None and len(rows) >= MIN_INPUTS:
        # Readers that understand the carried value everywhere, and still answer otherwise, hear something else in it.
        changed = "dependent" if rival is not None and rival.outcome == "free" and _surely_changes(high) else "fixed"
        outcome = "free" if share >= MIN_UNCHANGED_MOVED else changed
    evidence = Evidence(
        experiment=f"output of {component} moved to another position{_why_not(lab, len(rows))}",
        measure=MOVED_EQUAL,
        value=rounded(share),
        low=rounded(low),
        high=rounded(high),
        n=len(rows),
        controls={} if rival is None else rival.controls,
        rule=f"free at >= {MIN_UNCHANGED_MOVED} of >= {MIN_INPUTS} inputs; dependent if a rival with the position "
        f"inside predicts moved outputs better, or the carried value travels and the interval is below {MIN_RIVAL}; "
        "else fixed",
        seed=lab.seed,
        outcome=outcome,
    )
    return marked(evidence, _VERDICTS[outcome])


def _surely_changes(high: float | None) -> bool:
    return high is not None and high < MIN_RIVAL


def _moved_output(lab: Lab, component: Component, program: Program, carried: tuple[str, ...], level: float) -> Evidence:
    claim = Contestant("the claim", program, carried)
    contestants = rival_contestants(program, carried)
    figures = {design.label: _compare(lab, design, claim, contestants) for design in designs(lab, component)}
    outcome = _decide(list(figures.values()))
    best = max(figures.values(), key=lambda each: (each.rows >= MIN_INPUTS, each.accuracy or 0.0), default=None)
    rows = 0 if best is None else best.rows
    accuracy = None if best is None else best.accuracy
    low, high = share_interval_at((accuracy or 0.0) * rows, rows, level)
    controls: dict[str, float | None] = {}
    for label, each in figures.items():
        controls[f"{label}: accuracy"] = rounded(each.accuracy)
        if each.telling:
            controls |= {
                f"{label}: follow the claim where the rival differs": rounded(each.ours),
                f"{label}: follow the rival": rounded(each.theirs),
                f"{label}: telling inputs": float(each.telling),
            }
    evidence = Evidence(
        experiment=f"output of {component} moved to another position{_why_not(lab, rows)}",
        measure=MOVED,
        value=rounded(accuracy),
        low=rounded(low) if rows else None,
        high=rounded(high) if rows else None,
        n=rows,
        controls=controls,
        rule=f"free at >= {MIN_TRAVELS} and no rival ahead; dependent if a rival has >= {MIN_RIVAL} of >= {MIN_INPUTS} "
        f"telling inputs and {MIN_RIVAL_LEAD} more than the claim; else fixed; untested below {MIN_INPUTS} inputs",
        seed=lab.seed,
        outcome=outcome,
    )
    return marked(evidence, _VERDICTS[outcome])


def _decide(figures: list[_Figures]) -> MovedOutcome:
    if all(each.rows < MIN_INPUTS for each in figures):
        return "untested"
    if any(each.is_dependent for each in figures):
        return "dependent"
    return "free" if any(each.is_free for each in figures) else "fixed"


def designs(lab: Lab, component: Component) -> list[_Design]:
    """Both ways of moving, with the model's answers; none where inputs have one position only."""
    if lab.real.shape[1] < 2:
        return []
    rows, reads = lab.single_moves
    every = torch.arange(lab.n)
    return [
        _Design("single", rows, reads, lab.moved_once(component)),
        _Design("all", every, lab.other_place, lab.crossed_interchange(component)),
    ]


def _compare(lab: Lab, design: _Design, claim: Contestant, rivals: Sequence[Contestant]) -> _Figures:
    """The claim on changed answers, and against the rival that follows the model best."""
    real = lab.real[design.rows]
    predicted = design.predict(lab, claim)
    right = lab.same(predicted, design.observed)
    before = lab.answers(claim.program, lab.traces(claim.program)[0].output)[design.rows]
    changed = (~lab.same(predicted, before) | ~lab.same(design.observed, lab.clean[design.rows])) & real
    n = int(changed.sum())
    accuracy = float((right & changed).sum() / n) if n else None
    ours = theirs = 0.0
    inputs = 0
    for rival in rivals:
        other = design.predict(lab, rival)
        differs = ~lab.same(other, predicted) & real
        telling = int(differs.any(1).sum())
        if not telling:
            continue
        follow = lab.same(other, design.observed)
        first, second = (float((side & differs).sum() / differs.sum()) for side in (right, follow))
        if telling >= MIN_INPUTS and (not inputs or second - first > theirs - ours):
            ours, theirs, inputs = first, second, telling
    return _Figures(accuracy, int(changed.any(1).sum()), ours, theirs, inputs)


def rival_contestants(program: Program, carried: tuple[str, ...]) -> list[Contestant]:
    """The rivals of a claim about the position; none where the position plays no part beside the carried variables."""
    document = to_document(program)
    editor = _Editor(program, document["variables"], carried)
    found = []
    for label, edited in (("position inside", editor.inside()), ("position outside", editor.outside())):
        if edited is None:
            continue
        variables, names = edited
        try:
            found.append(Contestant(label, from_document({**document, "variables": variables}), names))
        except BadInput:  # the edited program has more values than a program may have
            continue
    return found


class _Editor:
    """Edits of a program's document that change where the position comes from."""

    def __init__(self, program: Program, entries: list[Entry], carried: tuple[str, ...]) -> None:
        self.program, self.entries = program, entries
        # The head of a count carries the count.
        self.carried = carried
        self.origins = {name.removesuffix("_head") if name.endswith("_head") else name for name in carried} | {*carried}
        self.by_name = {entry["name"]: entry for entry in entries}
        self.values = {program.name_of(node): node for node in program.expressions if isinstance(node, Variable)}

    def inside(self) -> tuple[list[Entry], tuple[str, ...]] | None:
        """Readers at the own position see the position that the value came from."""
        moved = _fresh("moved_position", self.by_name)
        copies: dict[str, Entry] = {}
        below = set(self.origins)
        variables, found = [], False
        for entry in self.entries:
            if entry["op"] in _OWN_POSITION and below & {*entry["of"]}:
                below.add(entry["name"])
                of = [self._from(moved, name, copies, below) for name in entry["of"]]
                found |= of != entry["of"]
                entry = {**entry, "of": of}
                variables += [copies.pop(name) for name in list(copies)]
            variables.append(entry)
        if not found:
            return None
        return [self._identity(_INDICES, moved), *variables], (*self.carried, moved)

    def _from(self, moved: str, name: str, copies: dict[str, Entry], below: set[str]) -> str:
        """The name to read instead of `name` when the position is another one."""
        if name == _INDICES:
            return moved
        if name in below or not self._is_of_position(name):
            return name
        copy = _fresh(f"{name} there", {**self.by_name, **copies})
        of = [self._from(moved, operand, copies, below) for operand in self.by_name[name]["of"]]
        copies[copy] = {**self.by_name[name], "name": copy, "of": of}
        return copy

    def _is_of_position(self, name: str) -> bool:
        return _is_of_position(name, self.by_name)

    def outside(self) -> tuple[list[Entry], tuple[str, ...]] | None:
        """The other arguments of the carried table travel; the position is that of the place."""
        variables: list[Entry] = []
        names: list[str] = []
        stays: list[str] = []
        for entry in self.entries:
            if entry["name"] in self.carried and self._reads_position(entry["name"], entry["name"]):
                stays.append(entry["name"])
                of = [self._argument(name, entry["name"], variables, names) for name in entry["of"]]
                entry = {**entry, "of": of}
            variables.append(entry)
        if not stays or not names:
            return None
        return variables, (*names, *(name for name in self.carried if name not in stays))

    def _reads_position(self, name: str, table: str) -> bool:
        """Whether a table, or a step towards it (its name begins with the table's), reads the position."""
        entry = self.by_name.get(name)
        if entry is None or entry["op"] not in _OWN_POSITION or self._is_of_position(name):
            return False
        return any(
            self._is_of_position(operand) or (operand.startswith(f"{table}_") and self._reads_position(operand, table))
            for operand in entry["of"]
        )

    def _argument(self, name: str, table: str, variables: list[Entry], names: list[str]) -> str:
        """What the table reads instead of `name`: the position of the place, or an argument that travels."""
        if self._is_of_position(name):
            return name
        taken = {**self.by_name, **{entry["name"]: entry for entry in variables}}
        if name.startswith(f"{table}_") and self._reads_position(name, table):
            copy = _fresh(f"{name} here", taken)
            of = [self._argument(operand, table, variables, names) for operand in self.by_name[name]["of"]]
            variables.append({**self.by_name[name], "name": copy, "of": of})
            return copy
        copy = _fresh(f"moved {name}", taken)
        variables.append(self._identity(name, copy))
        names.append(copy)
        return copy

    def _identity(self, name: str, copy: str) -> Entry:
        """A copy of a variable that can be exchanged by itself."""
        node = self.values[name]
        if node.numerical:
            return {"name": copy, "op": "linear_sequence_map", "of": [name, name], "factors": [1.0, 0.0]}
        values = [to_data(value) for value in self.program.value_list(node) if value is not None]
        return {"name": copy, "op": "sequence_map", "of": [name, name], "table": [[v, v, v] for v in values]}


def _fresh(name: str, taken: dict[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name


def _moves_where(equal: Bool[Tensor, "row pos pos"], lab: Lab) -> tuple[Int[Tensor, " row"], Int[Tensor, "row pos"]]:
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


def _rows_of(trace: Trace, rows: Int[Tensor, " row"]) -> Trace:
    values = {name: value[rows] for name, value in trace.values.items()}
    return Trace(trace.tokens[rows], trace.lengths[rows], values, trace.output[rows])


def _why_not(lab: Lab, rows: int) -> str:
    """Why the test says nothing, for the evidence."""
    if lab.real.shape[1] < 2:
        return f" ({_ONE_POSITION})"
    return "" if rows >= MIN_INPUTS else f" (only {rows} inputs tell)"


_ONE_POSITION = "inputs have one position only"


def _one_position(evidence: Sequence[Evidence]) -> bool:
    return any(_ONE_POSITION in one.experiment for one in evidence)
