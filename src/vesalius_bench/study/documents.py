"""A published study repeated on a model, as a file: `study.json`. The one study is `af1`, addition of three numbers.

Roles that explainers found stand beside reference roles, with the ratings of people or judges, and the published table
beside our own rows. What was not rated has no rating; it is counted as such and never as wrong.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, computed_field

from vesalius.documents.base import FrozenDict, FrozenMap, Line, Record, ResultDocument
from vesalius.documents.explanation import Verdict
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius.documents.view import (
    Answer,
    Facts,
    Group,
    Link,
    Mark,
    Section,
    Sheet,
    Text,
    View,
    duration,
    join_first,
    shortened,
    subject_of,
)
from vesalius_bench.survey.documents import short_name

STUDY_FILE = "study.json"
RoleRating = Literal["correct", "partial", "wrong"]
#: The ratings by their score, worst first.
RATINGS: tuple[RoleRating, ...] = ("wrong", "partial", "correct")
COLUMNS: tuple[RoleRating, ...] = ("correct", "partial", "wrong")
#: How a rating looks.
LOOKS = {"correct": "supported", "partial": "undecided", "wrong": "refuted"}
#: Characters of a role on a terminal.
LONGEST_ROLE = 60
EVIDENCE_CAPTION = (
    "Zeroed: accuracy with the component's output zeroed. Attends to: where most of its attention from the last token "
    "is, and how much. Cut: accuracy without the edge to the operand that costs most. Moved: how far the component's "
    "output from a run with another operand moves the answer, as a share of what the whole run moves. Lens: how often "
    "its output alone has the answer among its five likeliest tokens. Backups gone: accuracy with the other heads of "
    "its group zeroed, then with it as well. No explainer sees these figures."
)


class Localisation(Record):
    """Where the circuit comes from: `given` by the caller, `published` for a model of this shape, or `discovered` here;
    `how` says it in words. `backup_groups` are heads that back each other up, shown on held-out prompts.
    """

    source: Literal["given", "published", "discovered"]
    how: str
    components: tuple[str, ...]
    backup_groups: tuple[tuple[str, ...], ...] = ()
    forwards: float = 0.0
    seconds: float = 0.0


class ComponentEvidence(Record):
    """What interventions at the last token say about one component.

    Accuracies are shares of right answers: `zeroed` with its output zeroed; `cut`, of a head, with its attention to
    one operand removed; `once_others_zeroed` with the other heads of its backup group zeroed, and with it as well.
    `attention` is a head's mean attention from the last token. `moved` is how far its output from a run with another
    operand moves the answer to that run's, as a share of what the whole run moves; `switched` how often the answer
    becomes that one. `lens_top_5` is how often its output alone has the answer among its five likeliest tokens.
    """

    component: str
    zeroed: float
    attention: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    cut: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    moved: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    switched: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    lens_answer: float
    lens_top_5: float
    others: tuple[str, ...] = ()
    once_others_zeroed: tuple[float, float] | None = None


class PruningStep(Record):
    """One head zeroed in addition to those before it, the one that costs least, and the accuracy that is left."""

    component: str
    accuracy: float


class CircuitEvidence(Record):
    """Interventions on a circuit at the last token, on `n` prompts that the model answers correctly. `pruning` zeroes
    all heads of the circuit one after another.
    """

    n: int
    components: tuple[ComponentEvidence, ...]
    pruning: tuple[PruningStep, ...] = ()


def evidence_table(evidence: CircuitEvidence) -> tuple[list[str], list[list[str]]]:
    """The evidence as columns and rows of short texts: accuracy when zeroed, the role that gets most attention, the
    edge to an operand that costs most, how far each operand is moved, the lens, and the accuracy without the backups,
    then without the head as well.
    """
    operands = list(dict.fromkeys(role for one in evidence.components for role in one.moved))
    moved = [f"moved {_short(role)}" for role in operands]
    columns = ["component", "zeroed", "attends to", "cut", *moved, "lens", "backups gone"]
    return columns, [_evidence_row(one, operands) for one in evidence.components]


def _evidence_row(one: ComponentEvidence, operands: Iterable[str]) -> list[str]:
    attended = max(one.attention.items(), key=lambda item: item[1], default=None)
    costliest = min(one.cut.items(), key=lambda item: item[1], default=None)
    rest = one.once_others_zeroed
    return [
        one.component,
        _figure(one.zeroed),
        "" if attended is None else f"{_short(attended[0])} {_figure(attended[1])}",
        "" if costliest is None else f"{_short(costliest[0])} {_figure(costliest[1])}",
        *(_figure(one.moved[role]) if role in one.moved else "" for role in operands),
        _figure(one.lens_top_5),
        "" if rest is None else f"{_figure(rest[0])} to {_figure(rest[1])}",
    ]


def _short(role: str) -> str:
    return role.removeprefix("operand ")


def _figure(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # + 0.0: no minus before zero


class StudiedRole(Record):
    """What an explainer says about one component: the name of its role, where it has one, and its note. `rating`
    compares that with the reference role; without one, `unrated` says why. `votes` are the scores behind it, from 0
    (wrong) to 2 (correct), by rater or judge.
    """

    component: str
    role: str | None
    note: str
    verdict: Verdict
    rating: RoleRating | None = None
    unrated: str = ""
    votes: FrozenMap[str, int] = Field(default_factory=FrozenDict)


class StudiedExplainer(Record):
    """One explainer, with what it says about each component of the circuit. `directory` holds its own files."""

    name: str
    scientist: str
    backbone: str | None
    protocol: str | None
    roles: tuple[StudiedRole, ...]
    cost: float | None
    seconds: float
    directory: str

    def count(self, rating: RoleRating | None) -> int:
        """How many roles have this rating (None: no rating)."""
        return sum(role.rating == rating for role in self.roles)


class StudyRow(Record):
    """A row of the table: how many role descriptions were rated how. A row in which nothing was rated has no counts."""

    agent: str
    source: Literal["published", "measured"]
    model: str
    n: int
    correct: int | None
    partial: int | None
    wrong: int | None
    not_rated: int


class RaterAgreement(Record):
    """How far two raters agree over the roles that both rated: Cohen's kappa, weighted, with its 95 % interval, and the
    plain share of equal scores.
    """

    raters: tuple[str, str]
    kappa: float | None
    low: float | None
    high: float | None
    agreement: float | None
    n: int


class Study(ResultDocument, kind="study"):
    """A study of one model.

    `recognised_as` is the published model that this one has the shape of. `references` are the reference roles by
    component, `references_from` where they come from, `not_localised` the components that have one and are not in the
    circuit. `rated_by` says who rated and by which rule. `published` are the rows of the published table.
    """

    FILE = STUDY_FILE
    RANK = 0
    OWNS_DIRECTORY = True
    REMEDY = "run `vesalius study` again"

    request: Request
    study: Literal["af1"] = "af1"
    model: str
    recognised_as: str | None = None
    behaviour: str
    performance: Performance
    localisation: Localisation
    evidence: CircuitEvidence
    references: FrozenMap[str, str] = Field(default_factory=FrozenDict)
    references_from: str | None = None
    not_localised: tuple[str, ...] = ()
    rated_by: str | None = None
    explainers: tuple[StudiedExplainer, ...]
    agreement: tuple[RaterAgreement, ...] = ()
    published: tuple[StudyRow, ...]
    published_in: str
    directory: str | None = None

    @computed_field
    @property
    def table_4(self) -> tuple[StudyRow, ...]:
        """The published rows, then our own."""
        return (*self.published, *map(self._measured, self.explainers))

    @computed_field
    @property
    def seconds(self) -> float:
        """Seconds of work, over the circuit and all explainers."""
        return self.localisation.seconds + sum(one.seconds for one in self.explainers)

    def _measured(self, explainer: StudiedExplainer) -> StudyRow:
        unrated = explainer.count(None)
        nothing = unrated == len(explainer.roles)
        return StudyRow(
            agent=explainer.name,
            source="measured",
            model=self.model,
            n=len(explainer.roles),
            **{name: None if nothing else explainer.count(name) for name in COLUMNS},
            not_rated=unrated,
        )

    def remarks(self) -> list[str]:
        """What a reader of the table has to know."""
        ours = self.recognised_as or self.model
        published = {row.model for row in self.published}
        lines = [] if ours in published else [f"Our rows are about another model ({self.model}) and circuit."]
        if self.references_from is None:
            lines.append("Not rated: there are no reference roles for this model; give them with `roles`.")
        elif self.rated_by is None:
            lines.append("Not rated: give the scores of three raters with `ratings`, or name judges with `judge`.")
        else:
            lines.append(f"Rated by {self.rated_by}, against {self.references_from}.")
        if self.not_localised:
            lines.append(f"With a reference role, but not in the circuit: {', '.join(self.not_localised)}.")
        return lines

    def listed(self) -> Line:
        """What a list of results says of it: how much was found, and by how many it was explained."""
        figures = f"{len(self.localisation.components)} components, {len(self.explainers)} explainers"
        return Line(f"{self.study}, {self.model}", figures, seconds=self.seconds)

    def view(self) -> View:
        """The published table with our rows, the circuit, what interventions say, and every role."""
        rows = [f"{row.agent} {counts_of(row)}" for row in self.table_4 if row.source == "measured"]
        found = self.localisation
        groups = "; ".join("+".join(group) for group in found.backup_groups)
        columns, evidence = evidence_table(self.evidence)
        pruning = ", ".join(f"{step.component} {step.accuracy:.2f}" for step in self.evidence.pruning)
        links = [(one.name, Link("its page", f"{one.directory}/report.html")) for one in self.explainers]
        return View(
            f"AF1 study: {short_name(self.model)}",
            Answer(
                f"AF1 study of {subject_of(self.model, self.behaviour)}: {len(found.components)} components "
                f"({found.source}): {join_first(found.components, 6)}"
            ),
            [
                Facts([("", "; ".join(rows))]),
                Facts(self._facts()),
                Sheet.of([row.model_dump() for row in self.table_4], title="Table 4: role descriptions, rated"),
                Text([*self.remarks(), f"Published rows: {self.published_in}. A dash: nothing was rated."]),
                Group(
                    [
                        Text([f"{found.how[:1].upper()}{found.how[1:]}.", ", ".join(found.components)]),
                        *([Text([f"Heads that back each other up, on held-out prompts: {groups}."])] if groups else []),
                        Sheet(("explainer", "every claim with its evidence"), links, terminal=0),
                    ],
                    title="The circuit",
                ),
                Sheet(
                    columns,
                    evidence,
                    title=f"Interventions at the last token, {self.evidence.n} prompts that it gets right",
                    caption=EVIDENCE_CAPTION,
                ),
                *(
                    [
                        Text(
                            [
                                "Heads zeroed one after another, each time the one that costs least, with the accuracy "
                                f"that is left: {pruning}."
                            ]
                        )
                    ]
                    if pruning
                    else []
                ),
                self._short_roles(),
                Group(
                    [self._said(*row) for row in roles_by_component(self)],
                    title="The roles",
                    pages_only=True,
                ),
                *([self._agreement()] if self.agreement else []),
            ],
            command=self.request.command_line(),
            place=self.directory and f"{self.directory}/report.html",
        )

    def _facts(self) -> list[tuple[str, str]]:
        performance, options = self.performance, self.request.options
        shape = [("model's shape", f"that of {self.recognised_as}")] if self.recognised_as else []
        return [
            ("sums", self.behaviour),
            ("adds", f"{performance.describe()}; exactly right {performance.top1:.2f} of {performance.n}"),
            *shape,
            ("prompts", str(options.get("n", ""))),
            ("seed", str(self.request.seed)),
            ("reference roles", self.references_from or "none"),
            ("work", duration(self.seconds)),
        ]

    def _short_roles(self) -> Sheet:
        """What every explainer says about each component, in a few words."""
        rows = [
            (component, *map(_in_short, roles), _first_sentence(reference or "none"))
            for component, reference, roles in roles_by_component(self)
        ]
        columns = ("component", *(one.name for one in self.explainers), "reference role")
        return Sheet(columns, rows, title="Roles", terminal=100, terminal_only=True)

    def _said(self, component: str, reference: str | None, roles: list[StudiedRole | None]) -> Group:
        """A component: its reference role, what the explainers say, and how that was rated."""
        sections: list[Section] = [Text([f"Reference: {reference or 'none'}"])]
        rows = []
        for one, role in zip(self.explainers, roles, strict=True):
            if role is not None:
                votes = ", ".join(f"{name} {score}" for name, score in role.votes.items())
                rating = role.rating or f"not rated: {role.unrated}"
                said = f"{role.role}: {role.note}" if role.role else role.note
                rows.append((one.name, said, Mark(LOOKS.get(role.rating or "", "untested"), rating, votes)))
        sections.append(Sheet(("explainer", "what it says", "rating"), rows))
        return Group(sections, title=component, name=component)

    def _agreement(self) -> Sheet:
        rows = [
            (" and ".join(one.raters), one.n, one.agreement, one.kappa, one.low, one.high) for one in self.agreement
        ]
        columns = ("raters", "roles", "equal scores", "weighted kappa", "low", "high")
        return Sheet(columns, rows, title="How far the raters agree")


def _in_short(role: StudiedRole | None) -> str:
    if role is None:
        return ""
    words = role.role or _first_sentence(role.note)
    return words if role.rating is None else f"{words} ({role.rating})"


def _first_sentence(text: str) -> str:
    return shortened(text.split(". ")[0].rstrip("."), LONGEST_ROLE)


def counts_of(row: StudyRow) -> str:
    """The ratings of a row in words."""
    if row.correct is None:
        return f"not rated ({row.n} components)"
    counts = f"{row.correct} correct, {row.partial} partial, {row.wrong} wrong of {row.n}"
    return f"{counts}, {row.not_rated} not rated" if row.not_rated else counts


def roles_by_component(study: Study) -> Iterable[tuple[str, str | None, list[StudiedRole | None]]]:
    """Each component of the circuit with its reference role and what every explainer says about it."""
    said = [{role.component: role for role in one.roles} for one in study.explainers]
    for component in study.localisation.components:
        yield component, study.references.get(component), [roles.get(component) for roles in said]
