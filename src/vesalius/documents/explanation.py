"""What an explanation is: claims with evidence, per component and per circuit, as one JSON document, and its view.

What it is made of is in `claims`. An explanation says what was established and what was not: a component without a
program still has its claims, and what was tried and refuted is kept. In its view, under every sentence stands the
experiment that it rests on. Pictures of components at work need the model; a face that has it hands them in
(`pictures`), all others say that they are missing.
"""

import html
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self, get_args

from pydantic import Field, computed_field

from vesalius.components import Component
from vesalius.documents.account import Account, explained_answer
from vesalius.documents.answers import program_answer
from vesalius.documents.base import Answered, FrozenDict, FrozenList, FrozenMap, Ran, ShownDocument
from vesalius.documents.circuit import Score
from vesalius.documents.claims import (
    EFFECT_FIELDS,
    LOGITS,
    NO_TAG,
    SHOWN,
    TOKENS,
    ClaimRecord,
    Claims,
    ComponentExplanation,
    Composition,
    Evidence,
    Executable,
    NamedOperation,
    Tag,
    Verdict,
    claim_line,
    draw_profile,
    read_records,
    read_table,
    spell,
    why_it_attends,
)
from vesalius.documents.difference import Compared, compared_explanations
from vesalius.documents.performance import Performance
from vesalius.documents.proposal import RunProposal
from vesalius.documents.request import Request
from vesalius.documents.running import Running, with_words
from vesalius.documents.summary import GAPS_HEADING, PATHS_HEADING, Summary, summarise, verdict_counts
from vesalius.documents.view import (
    Answer,
    Code,
    Facts,
    Graph,
    Grid,
    Group,
    Node,
    Section,
    Several,
    Sheet,
    Text,
    View,
    cut_text,
    duration,
    figure,
    interval,
    join_first,
    subject_of,
)
from vesalius.errors import visible
from vesalius.files import mark_of
from vesalius.values import JsonObject

__all__ = [
    "EXPLANATION_FILE",
    "LOGITS",
    "NO_TAG",
    "SHOWN",
    "TOKENS",
    "ClaimRecord",
    "ComponentExplanation",
    "Composition",
    "Evidence",
    "Executable",
    "Explanation",
    "NamedOperation",
    "Tag",
    "Verdict",
]
EXPLANATION_FILE = "explanation.json"
#: Claims that say which variable of a prompt a component carries.
CARRYING = ("moves_role", "carries")
#: A component at work: the sentence above, and the drawings.
AtWork = tuple[str, Sequence[Grid]]
#: The sender of arrows from the position.
POSITION = "indices"
NO_SPECIMEN = "This page was made without the model at hand, so there is no picture of the component at work."
#: Characters of the answer and of what a component computes, components and lines of the program on one screen.
ANSWER, COMPUTES, ROLE, PATH, SCREEN, PROGRAM_LINES = 280, 60, 34, 200, 11, 5
#: Characters of a circuit's description before the figures of its answer.
BEFORE_FIGURES = 200
#: Lines about the flow and about what is not established on one screen.
FLOW_LINES, GAP_LINES = 7, 7


class Explanation(Answered, ShownDocument, kind="explanation"):
    """A whole circuit explained. `formula` is the program with every variable substituted, `program` the same line by
    line, `executable` what is run; `behaviour` is set for natural models.

    `request` is what was asked (None if a scientist was called directly). `edges` are connections that the scientist
    measured: sender, receiver, strength; the ends of the circuit are `tokens` and `logits`, or `output`. Edges from the
    position (`indices`), and all edges of a circuit that has no `executable`, are what the built-in scientist's program
    reads: their number is the score of the search, no measurement. `compositions` say which components write the
    queries and keys of which heads; `circuit_edges` are those of the discovered circuit that was explained, by score.
    `performance` is how well a natural model does the behaviour, and whether its contrast can show anything; `account`
    is which share of it the named components carry and what is left out, from which `answer` follows. `running` is the
    explanation as a program in the model's place, and `ladder` what each of its steps keeps. `proposed` is what an
    agent gave as data, and what it is worth on prompts that it had not seen. `ran` says how the scientist ran, where it
    is a foreign program; `prompts` are the user's own prompts of a language model by file, with the SHA-256 of each.
    """

    ABSENT_IF_DEFAULT = (
        "performance",
        "account",
        "answer",
        "formula",
        "ran",
        "prompts",
        "running",
        "ladder",
        "proposed",
    )

    FILE = EXPLANATION_FILE
    RANK = 20
    COMMAND = VERB = "explain"
    RECOGNISED_BY = ("task_description",)
    SCHEMA = 2
    REMEDY = "run `vesalius explain` again"

    schema_version: Literal[2] = 2
    request: Request | None = None
    specimen: str
    behaviour: str | None = None
    scientist: str
    components: FrozenList[ComponentExplanation]
    information_flow: str
    edges: tuple[tuple[str, str, float], ...] = ()
    compositions: tuple[Composition, ...] = ()
    circuit_edges: tuple[Score, ...] = ()
    task_description: str
    program: str | None = None
    formula: str | None = None
    executable: Executable | None = None
    program_agreement: Evidence | None = None
    cost: float = 0.0
    seconds: float
    seed: int
    rows: int = 0
    performance: Performance | None = None
    account: Account | None = None
    running: Running | None = None
    proposed: RunProposal | None = None
    ran: Ran | None = None
    prompts: FrozenMap[str, str] = Field(default_factory=FrozenDict)
    directory: str | None = Field(default=None, exclude=True)

    def answered(self) -> Answer | None:
        """Whether the named components carry the behaviour of a natural model, or the program that of a circuit, and
        what to do next; None where no rule decides.
        """
        if self.behaviour is None:
            said = program_answer(
                cut_text(_in_brief(self.task_description), BEFORE_FIGURES),
                self.program_agreement,
                supported=sum(part.verdict == "supported" for part in self.components),
                components=len(self.components),
            )
        elif not self.components and self.account is None:
            said = Answer(_in_brief(self.task_description), "no")
        else:
            said = explained_answer(self.account, self.performance, self.behaviour)
            if said is not None and self.account is not None:
                whole = self.account.whole
                said = with_words(said, self.running, whole.keep, says=whole.says is not None)
        if said is None:
            return None
        if said.verdict == "no" and self.request is not None:
            natural = self.behaviour is not None and self.account is None
            return replace(said, then=self.request.followed_by("behaviours" if natural else "discover"))
        return replace(said, then=None if self.directory is None else f"vesalius open {shlex.quote(self.directory)}")

    @computed_field
    @property
    def ladder(self) -> list[JsonObject] | None:
        """What each step of the explanation that runs keeps; None where it does not run."""
        return None if self.running is None else self.running.steps()

    def with_account(self, account: Account | None) -> Self:
        """The explanation with an account, and with the effects of its components that were measured for it."""
        if account is None:
            return self
        effects = account.measured
        parts = [
            part.model_copy(update=effects[part.id].model_dump(include=set(EFFECT_FIELDS)))
            if part.id in effects
            else part
            for part in self.components
        ]
        return self.model_copy(update={"account": account, "components": Several(parts)})

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return self.title

    def compared(self, other: "Explanation") -> Compared:
        """How another explanation differs: verdicts of claims, what is said of components, and the figures of both."""
        return compared_explanations({"": self}, {"": other})

    def view(self, **shown: Any) -> View:
        """What was found, the circuit, and under every sentence the experiment that it rests on; `shown` are the
        pictures of components at work, which need the model (`explanation_view`).
        """
        return view_of(self, **shown)

    @property
    def _asked(self) -> str:
        """The model, as it was asked for where that is known."""
        return (self.request.specimen if self.request else None) or self.specimen

    @property
    def title(self) -> str:
        """What was explained, and by whom: the model as it was asked for, and the behaviour as people say it."""
        return f"{subject_of(self._asked, self.behaviour)}, explained by {self.scientist}"

    def in_short(self) -> Summary:
        """What was found, how information flows and what is not established, for one screen."""
        return summarise(
            self.components,
            edges=self.edges,
            compositions=self.compositions,
            title=self.title,
            description=self.task_description,
        )

    def _repr_html_(self) -> str:
        if self.behaviour is None:
            return super()._repr_html_()
        view = self.view()
        first = html.escape(visible(view.brief())).replace("\n", "<br>")
        summary = f"<p>{first}</p>{self.in_short().html()}"
        return f'<div style="max-width:60em">{summary}{view.sheet().html()}</div>'


def view_of(
    explanation: Explanation,
    *,
    pictures: Mapping[str, AtWork] | None = None,
    examples: Sequence[Mapping[str, object]] = (),
    name: str | None = None,
) -> View:
    """The view of an explanation. `name` is the specimen's own name."""
    natural, account = explanation.behaviour is not None, explanation.account
    description, said = explanation.task_description, explanation.answered()
    long = (natural and said is not None) or len(description) > ANSWER
    return View(
        subject_of(name or explanation.specimen, explanation.behaviour),
        said or Answer(_in_brief(description)),
        [
            *([] if explanation.running is None else explanation.running.sections(_carried(explanation))),
            *([] if explanation.proposed is None else explanation.proposed.sections()),
            *([] if account is None else account.sections()),
            *([Text([_in_brief(description)], terminal_only=True)] if natural and said is not None else []),
            Facts(_brief(explanation)),
            *([Text([explanation.ran.sentence])] if explanation.ran else []),
            *([Text([description], pages_only=True)] if long else []),
            *(_summary(explanation) if natural else ()),
            *_screen(explanation),
            *([] if natural or not explanation.program else [_short_program(explanation)]),
            Facts(_facts(explanation)),
            Group(_circuit(explanation), title="The circuit", pages_only=True),
            Group(_whole(explanation, examples), title="The behaviour" if natural else "The program", pages_only=True),
            Group(
                [_component(part, explanation, (pictures or {}).get(part.id)) for part in explanation.components],
                title="Components",
                caption="Beside each figure: its interval on a scale from 0 to 1, the measured value as a dot, each "
                "control as a dashed stroke.",
                pages_only=True,
            ),
        ],
        command="\n".join(commands(explanation)),
        place=None if explanation.directory is None else f"{explanation.directory}/report.html",
    )


def _carried(explanation: Explanation) -> dict[str, str]:
    """What components of a natural model were shown to carry, by the supported claims that say so."""
    return {
        part.id: " and ".join(claim.text.removeprefix(f"{part.id} ").removesuffix(".") for claim in shown)
        for part in explanation.components
        if (shown := [one for one in part.claims if one.kind in CARRYING and one.verdict == "supported"])
    }


def _brief(explanation: Explanation) -> list[tuple[str, str]]:
    """Who explained what, and what came out."""
    if explanation.behaviour is not None:
        screen = explanation.in_short()
        path = screen.main_path or screen.broken_path or "none from the tokens to the answer"
        return [("", cut_text(explanation.title, PATH)), ("path", cut_text(path, PATH)), ("claims", screen.verdicts)]
    counts = _tally(part.verdict for part in explanation.components)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    parts = [
        f"{part.id} {cut_text(part.role or part.tag or NO_TAG, ROLE)} ({part.verdict})"
        for part in explanation.components
    ]
    size = f"{len(parts)} components{f' ({said})' if said else ''}"
    return [("", f"{explanation.title}: {size}"), ("", join_first(parts, 4) or "nothing was established")]


def _summary(explanation: Explanation) -> list[Section]:
    """What carries the behaviour of a natural model, how it flows, and what is not established."""
    screen = explanation.in_short()
    return [
        *([Text(screen.sentences[1:])] if screen.sentences[1:] else []),
        *(
            [Text(screen.path_lines, bullets=True, title=PATHS_HEADING, terminal=FLOW_LINES)]
            if screen.path_lines
            else []
        ),
        *([Text(screen.gaps, bullets=True, title=GAPS_HEADING, terminal=GAP_LINES)] if screen.gaps else []),
    ]


def _screen(explanation: Explanation) -> list[Section]:
    """A line for each component; those supported come first where not all fit a screen."""
    parts = list(explanation.components)
    rows = [
        (
            part.id,
            part.tag,
            part.verdict,
            part.role,
            part.program,
            len(part.claims),
            sum(claim.verdict == "supported" for claim in part.claims),
            part.note,
        )
        for part in parts
    ]
    columns = ("component", "tag", "verdict", "role", "program", "claims", "supported", "note")
    roles = any(part.role is not None for part in parts)
    kept = [place for place, column in enumerate(columns) if roles or column != "role"]
    room = SCREEN if explanation.program is None else SCREEN - PROGRAM_LINES
    first = sorted(parts, key=lambda part: len(parts) > room and part.verdict != "supported")
    screen = [
        (part.id, cut_text(part.role or part.tag or NO_TAG, ROLE), part.verdict, cut_text(_computes(part), COMPUTES))
        for part in first
    ]
    whole = Sheet(
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        title="All components in one table",
        folded=True,
        terminal=0,
    )
    if explanation.behaviour is not None:
        return [whole]
    short = Sheet(
        ("component", "tag", "verdict", "computes"),
        screen,
        terminal=room,
        terminal_only=True,
        more="--claims prints them",
    )
    return [whole, short]


def _short_program(explanation: Explanation) -> Code:
    """The program as a formula where there is one, else its lines that compute something: those before the first blank
    line say what the program is for.
    """
    program = explanation.program or ""
    _, _, body = program.strip().partition("\n\n")
    return Code(explanation.formula or (body or program).strip(), terminal=PROGRAM_LINES, terminal_only=True)


def _computes(part: ComponentExplanation) -> str:
    """The variable a component computes, or the first sentence about it."""
    text = " ".join((part.program or part.note).split()).removeprefix(f"{part.id} = ")
    return text if part.program else text.split(". ")[0]


def _facts(explanation: Explanation) -> list[tuple[str, str]]:
    natural, parts = explanation.behaviour is not None, explanation.components
    fixed = sum(map(_at_fixed_position, parts))
    counts = verdict_counts(part.verdict for part in parts)
    words = counts.replace(" supported", f" of {len(parts)} supported", 1)
    facts = [
        ("components" if natural else "what components compute", words),
        *([("at a fixed position only", f"{fixed} of {len(parts)}")] if fixed else []),
        *([] if natural else [("all claims", verdict_counts(sum((part.decided for part in parts), Counter())))]),
    ]
    rows = f", {explanation.rows:,} model rows" if explanation.rows else ""
    cost = f"${explanation.cost:.2f}" if explanation.cost else "no cost"
    return [
        *facts,
        ("scientist", f"{explanation.scientist}, seed {explanation.seed}"),
        *([("prompts", f"your own, {mark_of(explanation.prompts)}")] if explanation.prompts else []),
        ("effort", f"{duration(explanation.seconds)}{rows}, {cost}"),
    ]


def graph_of(explanation: Explanation) -> Graph:
    """The circuit of an explanation; that of a natural model with compositions, and with its gaps as open ends."""
    ports: dict[tuple[str, str], str] = {}
    for link in explanation.compositions:
        pair = link.sender, link.receiver
        ports[pair] = f"{ports[pair]}, {link.port}" if pair in ports else link.port
    nodes = [
        Node(part.id, part.role or part.tag or NO_TAG, part.tag, part.verdict, f"#{part.id}")
        for part in explanation.components
    ]
    caption = "" if nodes else "No component was established, so there is no circuit to draw."
    return Graph(nodes, explanation.edges, ports=ports, gaps=explanation.behaviour is not None, caption=caption)


def _in_brief(description: str) -> str:
    """A long description as an answer: its first sentence."""
    first = description if len(description) <= ANSWER else re.split(r"(?<=[^.][.!?])\s", description, maxsplit=1)[0]
    return cut_text(first, ANSWER)


def _circuit(explanation: Explanation) -> list[Section]:
    # The score of the search is no measurement; it says how well the receiver's hypothesis predicts.
    ran = explanation.behaviour is not None or explanation.executable is not None or explanation.scientist != "builtin"
    edges = sorted(
        (edge for edge in explanation.edges if not ran or edge[0] != POSITION),
        key=lambda edge: -abs(edge[2]) if math.isfinite(edge[2]) else 0.0,
    )
    said = "measured edges" if ran else "edges of the search, none of them measured"
    columns = ("from", "to", "strength" if ran else "score")
    return [
        graph_of(explanation),
        Text([explanation.information_flow], title="Information flow"),
        *([] if explanation.account is None else explanation.account.sheets()),
        Sheet(columns, edges, title=f"All {len(edges)} {said}", folded=True)
        if edges
        else Text(["No edge was measured."], quiet=True),
    ]


def _whole(explanation: Explanation, examples: Sequence[Mapping[str, object]]) -> list[Section]:
    """How the behaviour was measured, or the program of the whole circuit and how far it agrees with the model."""
    sections: list[Section] = []
    if explanation.behaviour is not None:
        sections.append(
            Text(
                [
                    "A component is replaced by the value it has on a counterfactual prompt, position by position; its "
                    "effect is the part of the clean logit difference that is then lost. What to look at and what to "
                    "suspect was decided on other prompts than those the evidence comes from."
                ]
            )
        )
    elif explanation.program:
        if explanation.formula:
            sections.append(Code(explanation.formula, title="The whole circuit as a formula"))
        sections.append(Code(explanation.program, title="Program of the whole circuit"))
        if explanation.executable:
            held = "the field executable of explanation.json holds it as data."
            sections.append(Text([f"This is the program that is run and graded; {held}"], quiet=True))
    else:
        none = "No program was found for the whole circuit. What was established stands with its components."
        sections.append(Text([none]))
    if (agreement := explanation.program_agreement) is not None:
        sections.append(Facts(_evidence(agreement)))
    if examples:
        rows = [(spell(example.get("input")), spell(example.get("output"))) for example in examples]
        sections.append(Sheet(("input", "output"), rows, title="Examples of the task", folded=True))
    return sections


def _evidence(one: Evidence) -> list[tuple[str, str]]:
    return [
        (one.measure, f"{figure(one.value)} {interval(one.low, one.high)}".strip()),
        ("experiment", f"{one.experiment}, n = {one.n}"),
        ("rule", one.rule),
        *((f"control: {control}", figure(value)) for control, value in one.controls.items()),
    ]


def _component(part: ComponentExplanation, explanation: Explanation, picture: AtWork | None) -> Group:
    """One component: what it computes, how it was seen at work, its claims, and what was refuted on the way."""
    caption, grids = picture or (NO_SPECIMEN, ())
    sections: list[Section] = []
    if part.role:
        sections.append(Text([part.role]))
    if part.tag_by_model:
        none = "" if part.tag_by_experiment else " No experiment settled a tag."
        sections.append(Text([f"By the language model: {part.tag_by_model}.{none}"], quiet=True))
    elif part.tag != part.tag_by_experiment:
        words = "The tag above follows the convention of the benchmark family."
        sections.append(Text([f"By experiment alone: {part.tag_by_experiment or NO_TAG}. {words}"], quiet=True))
    if _at_fixed_position(part):
        sections.append(Text(["Established at a fixed position."], quiet=True))
    sections.append(Text([part.note]))
    if part.reads:
        sections.append(Text([f"Reads {', '.join(part.reads)}"], quiet=True))
    if part.program:
        sections.append(Code(part.program, title=f"Program of {part.id}"))
    elif not part.profile:
        sections.append(Text(["No program was found for this component."], quiet=True))
    if part.profile and (bars := draw_profile(part.profile)):
        sections.append(Group(bars, side_by_side=True))
        if chosen := part.profile.get("chosen_by"):
            sections.append(Text([f"Chosen by: {chosen}."], quiet=True))
    if part.profile and (why := why_it_attends(part.profile)) is not None:
        sections.append(why)
    sections.append(Text([caption], title="At work", quiet=True))
    if grids:
        sections.append(Group(grids, side_by_side=True))
    if part.table is not None:
        reading = read_table(part.table)
        sections.append(Facts(reading.facts, title="Table read off the model"))
        sections += reading.sheets
    if part.claims:
        sections.append(Claims(part.id, part.claims, title="Claims"))
    else:
        sections.append(Text(["No claim was made."], title="Claims", quiet=True))
    if part.refuted:
        title = f"Hypotheses tried and refuted ({len(part.refuted)})"
        sections.append(Group([read_records(part.refuted)], title=title, folded=True))
    elif not part.profile:
        sections.append(Text(["No hypothesis was refuted on the way."], quiet=True))
    return Group(
        sections,
        title=part.id,
        caption="attention head" if Component.parse(part.id).is_head else "MLP",
        name=part.id,
        tag=part.tag or "",
        verdict=part.verdict,
    )


def _at_fixed_position(part: ComponentExplanation) -> bool:
    """Whether what a component computes was established place by place only."""
    return part.verdict == "supported" and any(
        claim.kind == "computes" and evidence.outcome in ("fixed", "untested")
        for claim in part.claims
        for evidence in claim.evidence
    )


def _tally(verdicts: Iterable[Verdict]) -> dict[str, int]:
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in get_args(Verdict)}


def claims_of(explanation: Explanation) -> list[Section]:
    """Every claim with its figure, for a terminal."""
    sections: list[Section] = [Text([explanation.task_description])]
    for part in explanation.components:
        words = [part.note, *map(claim_line, part.claims)]
        title = f"{part.id}  {part.role or part.tag or NO_TAG}  ({part.verdict})"
        sections.append(Text(words, title=title, bullets=True))
    sections.append(Text([explanation.information_flow], title="Information flow"))
    return [*sections, *([Code(explanation.program, title="Program")] if explanation.program else [])]


def commands(explanation: Explanation) -> list[str]:
    """Quote for a shell the commands that make this explanation again, as far as it says what was asked."""
    request = explanation.request
    asked = explanation if request is None else request
    behaviour = "" if asked.behaviour is None else f" --behaviour {shlex.quote(asked.behaviour)}"
    show = f"vesalius show {shlex.quote(asked.specimen or explanation.specimen)}{behaviour}"
    if request is None:
        return [show]
    explain = request.command_line()
    return [explain, f"{explain} --json", show]
