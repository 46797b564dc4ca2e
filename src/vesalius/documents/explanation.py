"""What an explanation is: claims with evidence, per component and per circuit, as one JSON document.

What it is made of is in `claims`. An explanation says what was established and what was not: a component without a
program still has its claims, and what was tried and refuted is kept.
"""

from collections import Counter
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from vesalius.documents.base import Document
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


class Explanation(Viewable, Document):
    """A whole circuit explained. `program` is for reading, `executable` for running; `behaviour` is set for natural
    models.

    `request` is what was asked (None in files of schema 1, which did not say). `edges` are connections that the
    scientist measured: sender, receiver, strength; the ends of the circuit are `tokens` and `logits`. `compositions`
    say which components write the queries and keys of which heads; `circuit_edges` are those of the discovered circuit
    that was explained, by score.
    """

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
