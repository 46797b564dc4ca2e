"""The index of a run: one line per specimen, sortable, each with a link to its evidence page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.documents.explanation import Explanation
from vesalius.documents.view import Answer, Facts, Link, Ratio, Sheet, View, duration, figure
from vesalius.report.layout import write_view


@dataclass(frozen=True)
class IndexRow:
    """One specimen of a run. `page` is its page's place relative to the index. What grading says is None if ungraded:
    tags right, mean interchange accuracy (None also where nothing shows), and whether the program is exact.
    """

    id: str
    name: str
    components: int
    supported: int
    seconds: float
    page: str | None = None
    tags_right: int | None = None
    agreement: float | None = None
    iia: float | None = None
    iia_changed: float | None = None
    exact: bool | None = None

    @classmethod
    def of(
        cls,
        explanation: Explanation,
        *,
        id: str | None = None,
        name: str | None = None,
        page: str | None = None,
        tags_right: int | None = None,
    ) -> "IndexRow":
        """The row of an explanation; `tags_right` comes from grading, where there was any."""
        agreement = explanation.program_agreement
        return cls(
            id=explanation.specimen if id is None else id,
            name=explanation.specimen if name is None else name,
            components=len(explanation.components),
            supported=sum(part.verdict == "supported" for part in explanation.components),
            seconds=explanation.seconds,
            page=page,
            tags_right=tags_right,
            agreement=None if agreement is None else agreement.value,
        )


def index_view(rows: Sequence[IndexRow], *, title: str = "Explained circuits") -> View:
    """The index over many explanations: what was right, and a row for each with a link to its page."""
    graded = [row for row in rows if row.tags_right is not None]
    run = [row for row in rows if row.exact is not None]
    supported, components = sum(row.supported for row in rows), sum(row.components for row in rows)
    right, total = sum(row.tags_right or 0 for row in graded), sum(row.components for row in graded)
    agree = sum((row.agreement or 0.0) >= 0.99 for row in rows)
    facts = [("specimens", str(len(rows)))]
    if graded:
        facts.append(("tags right", f"{right} of {total}" + (f" {figure(right / total)}" if total else "")))
    facts.append(("programs that agree on at least 99 %", f"{agree} of {len(rows)}"))
    if run:
        facts.append(("programs exact when graded", f"{sum(bool(row.exact) for row in run)} of {len(run)}"))
    facts.append(("time", duration(sum(row.seconds for row in rows))))
    columns: dict[str, list[Any]] = {
        "Specimen": [Link(row.name, row.page) if row.page is not None else row.name for row in rows],
        "Id": [int(row.id) if row.id.isdecimal() else row.id for row in rows],
        "Components": [row.components for row in rows],
        **({"Tags right": [_ratio(row.tags_right, row.components) for row in rows]} if graded else {}),
        "Supported": [_ratio(row.supported, row.components) for row in rows],
        "Program agrees": [row.agreement for row in rows],
        **(
            {
                "IIA": [row.iia for row in rows],
                "IIA, changed outputs": [row.iia_changed for row in rows],
                "Exact": [row.exact for row in rows],
            }
            if run
            else {}
        ),
        "Seconds": [row.seconds for row in rows],
    }
    sheet = Sheet(list(columns), list(zip(*columns.values(), strict=True)), sorted_by="Id", title="Circuits")
    return View(title, Answer(f"{supported} of {components} components supported."), [Facts(facts), sheet])


def _ratio(part: int | None, whole: int) -> Ratio | None:
    return None if part is None else Ratio(part, whole)


def render_index(rows: Sequence[IndexRow], path: Path | str, *, title: str = "Explained circuits") -> Path:
    """Write the index page over many explanations as one self-contained HTML file and return its path."""
    return write_view(index_view(rows, title=title), Path(path))
