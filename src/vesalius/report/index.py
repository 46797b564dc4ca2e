"""The index of a run: one line per specimen, sortable, each with a link to its evidence page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from vesalius.documents.explanation import Explanation
from vesalius.report.html import render, write


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

    @property
    def link(self) -> str | None:
        """The page's place as a relative address; quoting keeps a colon from naming a scheme."""
        return None if self.page is None else quote(self.page, safe="/")


def render_index(rows: Sequence[IndexRow], path: Path | str, *, title: str = "Explained circuits") -> Path:
    """Write the index page over many explanations as one self-contained HTML file and return its path."""
    graded = [row for row in rows if row.tags_right is not None]
    run = [row for row in rows if row.exact is not None]
    with_program = [row for row in rows if row.agreement is not None]
    html = render(
        "index.html",
        ["theme.js", "sort.js"],
        rows=rows,
        title=title,
        graded=bool(graded),
        programs_graded=bool(run),
        graded_exact=sum(bool(row.exact) for row in run),
        graded_total=len(run),
        tags_right=sum(row.tags_right or 0 for row in graded),
        tags_total=sum(row.components for row in graded),
        supported=sum(row.supported for row in rows),
        components=sum(row.components for row in rows),
        exact=sum((row.agreement or 0.0) >= 0.99 for row in with_program),
        seconds=sum(row.seconds for row in rows),
    )
    return write(Path(path), html)
