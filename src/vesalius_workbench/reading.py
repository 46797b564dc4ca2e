"""Reading results for the page: one file at a time, not too large a one, and the last few are kept.

A run directory may come from anywhere. Reading takes memory several times the size of a file, so that many windows
asking for a large one must not read it many times at once; and of its claims a page at a time is sent.
"""

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, TypeVar

from vesalius.api.retesting import why_not_again
from vesalius.documents import Explanation
from vesalius.documents.base import Document
from vesalius.documents.view import Facts, Group, Section, Sheet, Text, View, Viewable, subject_of
from vesalius.errors import BadInput

#: Bytes of a file that is read, and of all files whose documents are kept.
MOST_BYTES = 128 * 2**20
MOST_KEPT = 8
#: Claims of one page of them; an explanation with no more than a few pages is sent whole.
CLAIMS, MOST_WHOLE = 200, 600
#: Rows of a table.
MOST_ROWS = 200
Kind = TypeVar("Kind", bound=Document)


class Reader:
    """Documents by file and by when it was written."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], tuple[int, Document]] = OrderedDict()
        self._turn = threading.Lock()

    def read(self, place: Path, kind: type[Kind]) -> Kind:
        """The document of a file, as it is now."""
        files = [place, *(place.with_name(name) for name in kind.BESIDE if place.with_name(name).is_file())]
        stats = [_stat(file) for file in files]
        size = sum(stat.st_size for stat in stats)
        if size > MOST_BYTES:
            raise BadInput(
                f"{place.name}: has {size / 2**20:,.0f} MB; the page reads results of {MOST_BYTES // 2**20} MB"
            )
        key = (place, kind, *((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats))
        with self._turn:
            if key not in self._kept:
                self._kept[key] = size, kind.read(place)
                while len(self._kept) > MOST_KEPT or sum(size for size, _ in self._kept.values()) > MOST_BYTES:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            document = self._kept[key][1]
        assert isinstance(document, kind)
        return document


def _stat(file: Path) -> os.stat_result:
    """A file's size and when it was written; what is read beside a result must not be a link that leads elsewhere."""
    if file.is_symlink():
        raise BadInput(f"{file.name}: is a link; the page reads plain files")
    try:
        return file.stat()
    except OSError as error:
        raise BadInput(f"{file.name}: cannot be read ({error.strerror})") from None


def sent(document: Document) -> dict[str, Any]:
    """A document as it goes to the page, with its title and with what the evidence page says in words and tables; an
    explanation with very many claims goes without them (`claims_page`).
    """
    request = getattr(document, "request", None)
    named = request or document
    about: dict[str, Any] = {"subject": subject_of(getattr(named, "specimen", None), getattr(named, "behaviour", None))}
    about["command"] = request.command_line() if request else ""
    if not isinstance(document, Explanation):
        shown = said(document.view()) if isinstance(document, Viewable) else {}
        return {"document": document.as_data(), **shown, **about}
    if document.behaviour is not None:
        summary = document.in_short()
        about["summary"] = {"sentences": summary.sentences[1:], "path": summary.main_path, "gaps": summary.gaps}
    counts = [len(part.claims) for part in document.components]
    kinds = sorted({claim.kind for part in document.components for claim in part.claims})
    if sum(counts) > MOST_WHOLE:
        bare = tuple(part.model_copy(update={"claims": ()}) for part in document.components)
        document = document.model_copy(update={"components": bare})
    return {"document": document.as_data(), "claims": {"counts": counts, "kinds": kinds}, **about}


def said(view: View) -> dict[str, Any]:
    """What the static page says in words and tables: the answer, the facts, and a section for each title."""
    facts = [
        row for one in view.sections if isinstance(one, Facts) and not one.terminal_only for row in one.rows if row[0]
    ]
    return {
        "answer": str(view.answer),
        "facts": facts,
        "sections": [_section(one) for one in view.sections if one.title and not one.terminal_only],
    }


def _section(section: Section) -> dict[str, Any]:
    """One section: its texts, then its tables."""
    parts = [section, *(section.sections if isinstance(section, Group) else ())]
    words = [text for one in parts if isinstance(one, Text) for text in one.words]
    sheets = [one.printed(MOST_ROWS) for one in parts if isinstance(one, Sheet)]
    tables = [{"columns": columns, "rows": rows} for columns, rows in sheets]
    return {"title": section.title, "words": words, "sheets": tables}


def claims_page(
    explanation: Explanation, *, verdict: str | None, kind: str | None, component: str | None, start: int
) -> dict[str, Any]:
    """The claims that match, `CLAIMS` of them from `start` on, and how many there are. `number` counts from 1 among
    those about a component; `refusal` says why a claim cannot be tested again, where it cannot.
    """
    every = [
        (part.id, number, claim)
        for part in explanation.components
        if component in (None, part.id)
        for number, claim in enumerate(part.claims, 1)
        if verdict in (None, claim.verdict) and kind in (None, claim.kind)
    ]
    page = every[start : start + CLAIMS]
    return {
        "total": sum(len(part.claims) for part in explanation.components),
        "matching": len(every),
        "claims": [
            {"component": name, "number": number, "refusal": why_not_again(explanation, name, claim), **claim.as_data()}
            for name, number, claim in page
        ],
    }
