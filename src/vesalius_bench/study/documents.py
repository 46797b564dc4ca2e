"""A published study repeated on a model, as a file: `study.json`. The one study is `af1`, addition of three numbers.

Roles that explainers found stand beside reference roles, with the ratings of people or judges, and the published table
beside our own rows. What was not rated has no rating; it is counted as such and never as wrong.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, computed_field

from vesalius.documents.base import FrozenDict, FrozenMap, Line, Record, ResultDocument
from vesalius.documents.explanation import Verdict
from vesalius.documents.metric import Metric
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
    cut_text,
    duration,
    join_first,
    subject_of,
)
from vesalius_bench.study.evidence import (
    EVIDENCE_CAPTION,
    BackupGroup,
    CircuitEvidence,
    evidence_table,
    figure_rows,
    short_role,
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


class Localisation(Record):
    """Where the circuit comes from: `given` by the caller, `published` for a model of this shape, or `discovered` here;
    `how` says it in words. `groups` are its heads by the operand that they bring, `backup_groups` those of them whose
    heads were shown on held-out prompts to stand in for each other.
    """

    source: Literal["given", "published", "discovered"]
    how: str
    components: tuple[str, ...]
    backup_groups: tuple[tuple[str, ...], ...] = ()
    groups: tuple[BackupGroup, ...] = ()
    forwards: float = 0.0
    seconds: float = 0.0


class Interchange(Record):
    """What a component carries to the last token by interchange: of its outputs on sums with another operand, the share
    of answers that follow that operand, for the `operand` that they follow most (`accuracy`), and the largest share of
    the others.
    """

    operand: str
    accuracy: Metric
    others: float | None

    def text(self) -> str:
        """The figure in a few words."""
        beside = "" if self.others is None else f"; the others at most {self.others:.2f}"
        return f"{self.operand} {self.accuracy.text()}{beside}"


class StudiedRole(Record):
    """What an explainer says about one component: the name of its role, where it has one, and its note. `rating`
    compares that with the reference role; without one, `unrated` says why. `votes` are the scores behind it, from 0
    (wrong) to 2 (correct), by rater or judge. `interchange` is what the component carries by experiment, whatever is
    said of it; None where no operand could be exchanged.
    """

    ABSENT_IF_DEFAULT = ("interchange",)

    component: str
    role: str | None
    note: str
    verdict: Verdict
    rating: RoleRating | None = None
    unrated: str = ""
    votes: FrozenMap[str, int] = Field(default_factory=FrozenDict)
    interchange: Interchange | None = None


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
        columns, evidence = evidence_table(self.evidence)
        pruning = self._pruning()
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
                        *self._groups(),
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
                *([Text([pruning])] if pruning else []),
                *self._lens(),
                Sheet(
                    ("component", "figure", "value"),
                    figure_rows(self.evidence),
                    title="Every figure of Tables 13 and 14",
                    terminal=0,
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

    def _groups(self) -> list[Section]:
        """The heads that bring the same operand, and what was shown of them on held-out prompts."""
        if not self.localisation.groups:
            return [Text(["No two heads of the circuit bring the same operand to the last token."])]
        rows = [
            (short_role(group.operand), head, group.standing.get(head) or "nothing shown", group.joint)
            for group in self.localisation.groups
            for head in group.heads
        ]
        columns = ("brings", "head", "standing", "all cost more than their sum")
        return [Sheet(columns, rows, title="Heads that stand in for each other", terminal=100)]

    def _facts(self) -> list[tuple[str, str]]:
        performance = self.performance
        shape = [("model's shape", f"that of {self.recognised_as}")] if self.recognised_as else []
        return [
            ("sums", self.behaviour),
            ("adds", f"{performance.describe()}; exactly right {performance.top1:.2f} of {performance.n}"),
            *shape,
            ("prompts", self._prompts()),
            ("seed", str(self.request.seed)),
            ("reference roles", self.references_from or "none"),
            ("work", duration(self.seconds)),
        ]

    def _pruning(self) -> str:
        steps = ", ".join(f"{step.component} {step.accuracy:.2f}" for step in self.evidence.pruning)
        how = "Heads zeroed one after another, each time the one that costs least, with the accuracy that is left"
        return f"{how}: {steps}." if steps else ""

    def _lens(self) -> list[Section]:
        """What each component's output adds to the logits of the targets, and what others outside the circuit add."""
        evidence = self.evidence
        targets = list(dict.fromkeys(name for one in evidence.components for name in one.target_logits))
        if not targets:
            return []
        rows = [
            (
                one.component,
                *(f"{one.target_logits[name]:.1f}" if name in one.target_logits else "" for name in targets),
                *("" if rate is None else f"{rate:.2f}" for rate in (one.lens_top_1, one.lens_top_3, one.lens_top_5)),
                *("" if value is None else f"{value:.3f}" for value in (one.cosine_answer, one.cosine_residual)),
            )
            for one in evidence.components
        ]
        columns = ("component", *targets, "top 1", "top 3", "top 5", "cos answer", "cos residual")
        others = ", ".join(f"{name} {value:.1f}" for name, value in evidence.controls.items())
        said = [f"The answer's logit by components outside the circuit: {others or 'there are none'}."]
        said += [f"No operands and sums: {evidence.no_targets}."] if evidence.no_targets else []
        return [Sheet(columns, rows, title="Logits that each output adds, by target"), Text(said)]

    def _prompts(self) -> str:
        """How many prompts were used, of how many drawn, and where that is fewer than were asked for."""
        n, asked = self.evidence.n, self.request.options.get("n", "")
        drawn = "" if self.evidence.drawn is None else f" answered correctly, of {self.evidence.drawn} drawn"
        fewer = "" if asked in (n, "") else f" ({asked} were asked for; the model has no more)"
        return f"{n}{drawn}{fewer}"

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
                carried = None if role.interchange is None else role.interchange.text()
                mark = Mark(LOOKS.get(role.rating or "", "untested"), rating, votes)
                rows.append((one.name, said, mark, carried))
        sections.append(Sheet(("explainer", "what it says", "rating", "carries, by interchange"), rows))
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
    return cut_text(text.split(". ")[0].rstrip("."), LONGEST_ROLE)


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
