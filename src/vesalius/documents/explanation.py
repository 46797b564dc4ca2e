"""What an explanation is: claims with evidence, per component and per circuit, as one JSON document, and its view.

What it is made of is in `claims`. An explanation says what was established and what was not: a component without a
program still has its claims, and what was tried and refuted is kept. In its view, under every sentence stands the
experiment that it rests on. Pictures of components at work need the model; a face that has it hands them in
(`pictures`), all others say that they are missing.
"""

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from vesalius.components import Component
from vesalius.documents.base import Document, Line
from vesalius.documents.circuit import Score
from vesalius.documents.claims import (
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
)
from vesalius.documents.difference import ClaimDifference, Compared, ComponentDifference, FigurePair, figure_pair
from vesalius.documents.free_records import read_records, read_table, spell
from vesalius.documents.frozen import FrozenList
from vesalius.documents.request import Request
from vesalius.documents.summary import GAPS_HEADING, PATHS_HEADING, Summary, summarise, verdict_counts
from vesalius.documents.view import (
    Answer,
    Bars,
    Code,
    Facts,
    Graph,
    Grid,
    Group,
    Node,
    Section,
    Sheet,
    Text,
    View,
    Viewable,
    duration,
    figure,
    interval,
    join_first,
    made,
    shortened,
    subject_of,
)

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
#: A component at work: the sentence above, and the drawings.
AtWork = tuple[str, Sequence[Grid]]
NO_SPECIMEN = "This page was made without the model at hand, so there is no picture of the component at work."
#: Characters of the answer and of what a component computes, components and lines of the program on one screen.
ANSWER, COMPUTES, ROLE, PATH, SCREEN, PROGRAM_LINES = 280, 60, 34, 200, 11, 5
#: Lines about the flow and about what is not established on one screen.
FLOW_LINES, GAP_LINES = 7, 7
#: The measure whose figure stands beside a claim, where it was measured.
INTERCHANGE = "interchange accuracy"
FREE_CODE = "free_code"
EFFECTS = {
    "solo": "replaced alone",
    "at_answer": "only at the answer position",
    "direct": "only on its path to the logits",
    "lens": "logit lens: what it writes by itself",
    "restored": "what it alone restores",
    "joint": "replaced with its group",
    "joint_without": "its group without it",
    "gain": "its cost once the group is out, beyond alone",
}
PLACES = {"answer": "From the answer position", "everywhere": "From every position that has such a key"}
VerdictByClaim = dict[tuple[str, str, str], Verdict]


class Explanation(Viewable, Document, kind="explanation"):
    """A whole circuit explained. `program` is for reading, `executable` for running; `behaviour` is set for natural
    models.

    `request` is what was asked (None in files of schema 1, which did not say). `edges` are connections that the
    scientist measured: sender, receiver, strength; the ends of the circuit are `tokens` and `logits`. `compositions`
    say which components write the queries and keys of which heads; `circuit_edges` are those of the discovered circuit
    that was explained, by score.
    """

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
    executable: Executable | None = None
    program_agreement: Evidence | None = None
    cost: float = 0.0
    seconds: float
    seed: int
    rows: int = 0
    directory: str | None = Field(default=None, exclude=True)

    def save(self, directory: Path | str) -> Path:
        """Write `explanation.json` into a directory and return its path."""
        path = made(directory) / EXPLANATION_FILE
        self.write(path)
        return path

    def listed(self) -> Line:
        """What a list of results says of it: how many claims have which verdict."""
        verdicts = Counter(claim.verdict for part in self.components for claim in part.claims)
        claims = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
        figures = f"{len(self.components)} components{f', claims: {claims}' if claims else ''}"
        return Line(self.title, figures, self.cost, self.seconds)

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
        return (self.request and self.request.specimen) or self.specimen

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
        sheet = self.view().sheet()
        return f'<div style="max-width:60em">{self.in_short().html()}{sheet.html()}</div>'


def view_of(
    explanation: Explanation,
    *,
    pictures: Mapping[str, AtWork] | None = None,
    examples: Sequence[Mapping[str, Any]] = (),
    name: str | None = None,
    circuit: Sequence[str] | None = None,
) -> View:
    """The view of an explanation. `name` is the specimen's own name, `circuit` its own components where it is known."""
    natural = explanation.behaviour is not None
    description = explanation.task_description
    return View(
        subject_of(name or explanation.specimen, explanation.behaviour),
        Answer(_in_brief(description)),
        [
            Facts(_brief(explanation)),
            *([Text([description], pages_only=True)] if len(description) > ANSWER else []),
            *(_summary(explanation) if natural else ()),
            *_screen(explanation),
            *([] if natural or not explanation.program else [_short_program(explanation.program)]),
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
        command="\n".join(commands(explanation, name=name, circuit=circuit)),
        place=None if explanation.directory is None else f"{explanation.directory}/report.html",
    )


def _brief(explanation: Explanation) -> list[tuple[str, str]]:
    """Who explained what, and what came out."""
    if explanation.behaviour is not None:
        screen = explanation.in_short()
        path = screen.main_path or screen.broken_path or "none from the tokens to the answer"
        return [("", shortened(explanation.title, PATH)), ("path", shortened(path, PATH)), ("claims", screen.verdicts)]
    counts = _tally(part.verdict for part in explanation.components)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    parts = [
        f"{part.id} {shortened(part.role or part.tag or NO_TAG, ROLE)} ({part.verdict})"
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
        (part.id, shortened(part.role or part.tag or NO_TAG, ROLE), part.verdict, shortened(_computes(part), COMPUTES))
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


def _short_program(program: str) -> Code:
    """The lines that compute something; those before the first blank line say what the program is for."""
    _, _, body = program.strip().partition("\n\n")
    return Code((body or program).strip(), terminal=PROGRAM_LINES, terminal_only=True)


def _computes(part: ComponentExplanation) -> str:
    """The variable a component computes, or the first sentence about it."""
    text = " ".join((part.program or part.note).split()).removeprefix(f"{part.id} = ")
    return text if part.program else text.split(". ")[0]


def _facts(explanation: Explanation) -> list[tuple[str, str]]:
    natural, parts = explanation.behaviour is not None, explanation.components
    fixed = sum(map(_at_fixed_position, parts))
    counts = _tally(part.verdict for part in parts)
    words = (
        f"{counts['supported']} of {len(parts)} supported, {counts['refuted']} refuted, {counts['untested']} untested"
    )
    facts = [
        ("components" if natural else "what components compute", words),
        *([("at a fixed position only", f"{fixed} of {len(parts)}")] if fixed else []),
        ("all claims", verdict_counts(sum((part.decided for part in parts), Counter()))),
    ]
    agreement = explanation.program_agreement
    if not natural:
        measured = agreement is not None and agreement.value is not None
        facts.append(
            (
                "program agrees with the model",
                f"{figure(agreement.value)} {interval(agreement.low, agreement.high)} of {agreement.n} fresh inputs"
                if agreement is not None and measured
                else "not measured",
            )
        )
    rows = f", {explanation.rows:,} model rows" if explanation.rows else ""
    cost = f"${explanation.cost:.2f}" if explanation.cost else "no cost"
    return [
        *facts,
        ("scientist", f"{explanation.scientist}, seed {explanation.seed}"),
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
    return shortened(first, ANSWER)


def _circuit(explanation: Explanation) -> list[Section]:
    edges = sorted(explanation.edges, key=lambda edge: -abs(edge[2]) if math.isfinite(edge[2]) else 0.0)
    return [
        graph_of(explanation),
        Text([explanation.information_flow], title="Information flow"),
        Sheet(("from", "to", "strength"), edges, title=f"All {len(edges)} measured edges", folded=True)
        if edges
        else Text(["No edge was measured."], quiet=True),
    ]


def _whole(explanation: Explanation, examples: Sequence[Mapping[str, Any]]) -> list[Section]:
    """How the behaviour was measured, or the program of the whole circuit and how far it agrees with the model."""
    sections: list[Section] = []
    if explanation.behaviour is not None:
        sections.append(
            Text(
                [
                    "A component is replaced by the value it has on a counterfactual prompt, position by position; its "
                    "effect is the part of the clean logit difference that is then lost. What to look at and what to "
                    "suspect was decided on other prompts than those the evidence comes from, made of other names, "
                    "templates and tokens."
                ]
            )
        )
    elif explanation.program:
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
            sections.append(Text([f"Chosen by {chosen}."], quiet=True))
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


def draw_profile(profile: Mapping[str, Any]) -> tuple[Bars, ...]:
    """The bars of a natural component's profile: where a head looks, and what replacing it costs."""
    attention = profile.get("attention") or {}
    tables = [
        Bars(
            [(name, *ends) for name, ends in attention[where].items()],
            title=f"{title}, attention on",
            caption="Share of attention with its 95 % interval over prompts.",
        )
        for where, title in PLACES.items()
        if attention.get(where)
    ]
    effects, counts = profile.get("effects") or {}, profile.get("n") or {}
    named = {words + _fewer(name, counts): effects[name] for name, words in EFFECTS.items() if name in effects}
    group, clean = profile.get("group") or {}, profile.get("clean")
    caption = "" if clean is None else f"Shares of the clean logit difference, {clean:.2f} logits. "
    if len(group.get("members", ())) > 1:
        caption += f"Group: {group['name']} ({', '.join(group['members'])}). "
    caption += "Replaced by its value on the counterfactual prompt."
    tables.append(Bars([(name, *ends) for name, ends in named.items()], title="What it is worth", caption=caption))
    return tuple(table for table in tables if any(None not in row for row in table.rows))


def _fewer(name: str, counts: Mapping[str, int]) -> str:
    """After a figure's words: how many prompts it rests on, where others rest on more."""
    n, most = counts.get(name, 0), max(counts.values(), default=0)
    return f", on {n} of {most} prompts" if 0 < n < most else ""


def _tally(verdicts: Iterable[Verdict]) -> dict[str, int]:
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in get_args(Verdict)}


def claims_of(explanation: Explanation) -> list[Section]:
    """Every claim with its figure, for a terminal."""
    sections: list[Section] = [Text([explanation.task_description])]
    for part in explanation.components:
        words = [part.note, *(f"{claim.verdict}{_by(claim)}: {claim.text}{_figure(claim)}" for claim in part.claims)]
        title = f"{part.id}  {part.role or part.tag or NO_TAG}  ({part.verdict})"
        sections.append(Text(words, title=title, bullets=True))
    sections.append(Text([explanation.information_flow], title="Information flow"))
    return [*sections, *([Code(explanation.program, title="Program")] if explanation.program else [])]


def _by(claim: ClaimRecord) -> str:
    return " (by the language model)" if claim.kind == FREE_CODE else ""


def _figure(claim: ClaimRecord) -> str:
    """The figure beside a claim: interchange accuracy where it was measured, else the first."""
    accuracy = (evidence for evidence in claim.evidence if evidence.measure.startswith(INTERCHANGE))
    evidence = next(accuracy, claim.evidence[0] if claim.evidence else None)
    if evidence is None or evidence.value is None or evidence.low is None or evidence.high is None:
        return ""
    return f" {evidence.value:.3f} [{evidence.low:.3f}, {evidence.high:.3f}], n = {evidence.n}"


def commands(explanation: Explanation, *, name: str | None = None, circuit: Sequence[str] | None = None) -> list[str]:
    """The command lines that make this explanation again, quoted for a shell."""
    request = explanation.request or _request(explanation, circuit)
    behaviour = "" if request.behaviour is None else f" --behaviour {shlex.quote(request.behaviour)}"
    explain, specimen = request.command_line(), shlex.quote(request.specimen or explanation.specimen)
    show = f"vesalius show {specimen}{behaviour}"
    if request.method == "hyve" and request.backbone is None:
        # The file does not say which language model it was; a command without one would only be refused.
        return [show]
    return [explain, f"{explain} --json", show]


def _request(explanation: Explanation, circuit: Sequence[str] | None) -> Request:
    """What was asked, for explanations of schema 1, as far as they say: natural ones keep options in a profile."""
    kept = next((part.profile.get("request") for part in explanation.components if part.profile), None) or {}
    named = tuple(part.id for part in explanation.components)
    chosen = kept.get("top") is None if kept else circuit is not None and set(named) != set(circuit)
    return Request(
        command="explain",
        specimen=explanation.specimen,
        behaviour=explanation.behaviour,
        components=named if chosen else None,
        method=None if explanation.scientist == "builtin" else explanation.scientist,
        options={name: kept.get(name) for name in ("n", "top", "force")},
        seed=explanation.seed,
    )


def compared_explanations(first: Mapping[str, Explanation], second: Mapping[str, Explanation]) -> Compared:
    """How explanations of the same cases differ; cases that one side lacks are left out. The one case of a single
    explanation has no name.
    """
    cases = [case for case in first if case in second]
    flipped, only, moved = [], [], []
    same = stayed = 0
    for case in cases:
        turned, alone, kept = _compared_claims(_claims_of(first[case]), _claims_of(second[case]), case or None)
        parts, left = _compared_parts(first[case], second[case], case or None)
        flipped, only, moved = [*flipped, *turned], [*only, *alone], [*moved, *parts]
        same, stayed = same + kept, stayed + left
    left_out = len(first) + len(second) - 2 * len(cases)
    return Compared(
        claims_flipped=flipped,
        claims_only=only,
        claims_same=same,
        components_moved=moved,
        components_same=stayed,
        rule="explained by one alone, or with another tag, role or verdict",
        metrics=_compared_figures([first[case] for case in cases], [second[case] for case in cases]),
        notes=(f"{left_out} cases are in one run alone; their claims are left out",) if left_out else (),
    )


def _claims_of(explanation: Explanation) -> VerdictByClaim:
    return {
        (part.id, claim.kind, claim.text): claim.verdict for part in explanation.components for claim in part.claims
    }


def _compared_claims(
    a: VerdictByClaim, b: VerdictByClaim, specimen: str | None = None
) -> tuple[list[ClaimDifference], list[ClaimDifference], int]:
    """Claims with two verdicts, claims of one alone, and how many are the same."""
    flipped, only = [], []
    for key in dict.fromkeys([*a, *b]):
        first, second = a.get(key), b.get(key)
        if first == second:
            continue
        component, kind, text = key
        entry = ClaimDifference(specimen=specimen, component=component, kind=kind, text=text, a=first, b=second)
        (only if first is None or second is None else flipped).append(entry)
    return flipped, only, sum(a.get(key) == verdict for key, verdict in b.items())


def _compared_parts(
    a: Explanation, b: Explanation, specimen: str | None = None
) -> tuple[list[ComponentDifference], int]:
    """Components that differ in what is said of them, and how many do not."""
    parts = [{part.id: part for part in one.components} for one in (a, b)]
    moved: list[ComponentDifference] = []
    names = dict.fromkeys(chain(*parts))
    for name in names:
        first, second = parts[0].get(name), parts[1].get(name)
        if first is None or second is None:
            there = [None if one is None else one.role or one.tag or one.verdict for one in (first, second)]
            moved.append(
                ComponentDifference(specimen=specimen, component=name, what="explained", a=there[0], b=there[1])
            )
            continue
        for what in ("tag", "role", "verdict"):
            one, other = getattr(first, what), getattr(second, what)
            if one != other:
                moved.append(ComponentDifference(specimen=specimen, component=name, what=what, a=one, b=other))
    return moved, len(names) - len({one.component for one in moved})


def _compared_figures(a: Sequence[Explanation], b: Sequence[Explanation]) -> dict[str, FigurePair]:
    """Verdicts of claims, roles of natural models, and how far the program agrees with the model."""
    if not a or not b:
        return {}
    verdicts = [
        Counter(claim.verdict for one in side for part in one.components for claim in part.claims) for side in (a, b)
    ]
    roles = [Counter(part.role for one in side for part in one.components if part.role) for side in (a, b)]
    figures = {
        f"claims {name}": figure_pair(verdicts[0][name], verdicts[1][name]) for name in dict.fromkeys(chain(*verdicts))
    }
    figures |= {
        f"components: {name}": figure_pair(roles[0][name], roles[1][name]) for name in dict.fromkeys(chain(*roles))
    }
    if len(a) == len(b) == 1:
        first, second = a[0].program_agreement, b[0].program_agreement
        if first is not None and second is not None:
            ends = ((one.low, one.high) for one in (first, second))
            figures["program_agreement"] = figure_pair(first.value, second.value, *ends)
        figures["cost"] = figure_pair(a[0].cost, b[0].cost)
    return figures
