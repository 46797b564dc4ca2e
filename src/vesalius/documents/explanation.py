"""What an explanation is: claims with evidence, per component and per circuit, as one JSON document.

What it is made of is in `claims`. An explanation says what was established and what was not: a component without a
program still has its claims, and what was tried and refuted is kept.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from vesalius.documents.base import Document, Line
from vesalius.documents.circuit import Score
from vesalius.documents.claims import (
    LOGITS,
    NO_TAG,
    SHOWN,
    TOKENS,
    ClaimRecord,
    ComponentExplanation,
    Composition,
    Evidence,
    Executable,
    NamedOperation,
    Tag,
    Verdict,
)
from vesalius.documents.difference import ClaimDifference, Compared, ComponentDifference, FigurePair, figure_pair
from vesalius.documents.frozen import FrozenList
from vesalius.documents.request import Request
from vesalius.documents.summary import Summary, summarise
from vesalius.documents.views import Row, Viewable, html_table, join_first, made, shortened, subject_of

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
Claims = dict[tuple[str, str, str], Verdict]


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

    def _summary(self) -> str:
        if self.behaviour is not None:
            return self._summary_in_short()
        verdicts = Counter(part.verdict for part in self.components)
        counts = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in get_args(Verdict) if verdicts[verdict])
        parts = [f"{part.id} {part.role or part.tag or NO_TAG} ({part.verdict})" for part in self.components]
        return (
            f"Explanation of {self._asked} by {self.scientist}: {len(self.components)} components"
            f"{f' ({counts})' if counts else ''}\n{join_first(parts, 4) or 'nothing was established'}\n"
            f"{shortened(self.task_description, 200)}"
        )

    def _summary_in_short(self) -> str:
        """The screen of a natural model, cut to a few lines: what carries the behaviour, the path, what is missing."""
        screen = self.in_short()
        return "\n".join(
            [
                screen.title,
                *screen.sentences[1:2],
                f"path: {screen.main_path or screen.broken_path or 'none from the tokens to the answer'}",
                f"claims: {screen.verdicts}",
                shortened(self.task_description, 160),
            ]
        )

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
        rows, total = self._shown_rows()
        return f'<div style="max-width:60em">{self.in_short().html()}{html_table(rows, total=total)}</div>'

    def _rows(self) -> list[Row]:
        return [
            {
                "component": part.id,
                "tag": part.tag,
                "verdict": part.verdict,
                **({} if part.role is None else {"role": part.role}),
                "program": part.program,
                "claims": len(part.claims),
                "supported": sum(claim.verdict == "supported" for claim in part.claims),
                "note": part.note,
            }
            for part in self.components
        ]


def compared_explanations(first: Mapping[str, Explanation], second: Mapping[str, Explanation]) -> Compared:
    """How explanations of the same cases differ; cases that one side lacks are left out. The one case of a single
    explanation has no name.
    """
    cases = [case for case in first if case in second]
    flipped, only, moved = [], [], []
    same = stayed = 0
    for case in cases:
        turned, alone, kept = _claims(_claims_of(first[case]), _claims_of(second[case]), case or None)
        parts, left = _parts(first[case], second[case], case or None)
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
        metrics=_figures([first[case] for case in cases], [second[case] for case in cases]),
        notes=(f"{left_out} cases are in one run alone; their claims are left out",) if left_out else (),
    )


def _claims_of(explanation: Explanation) -> Claims:
    return {
        (part.id, claim.kind, claim.text): claim.verdict for part in explanation.components for claim in part.claims
    }


def _claims(
    a: Claims, b: Claims, specimen: str | None = None
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


def _parts(a: Explanation, b: Explanation, specimen: str | None = None) -> tuple[list[ComponentDifference], int]:
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


def _figures(a: Sequence[Explanation], b: Sequence[Explanation]) -> dict[str, FigurePair]:
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
