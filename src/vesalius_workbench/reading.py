"""Reading results for the page: one file at a time, not too large a one, and the last few are kept.

A run directory may come from anywhere. Reading takes memory several times the size of a file, so that many windows
asking for a large one must not read it many times at once; and of its claims a page at a time is sent.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from vesalius.api.explanations import why_not_again
from vesalius.documents import Discovery, Explanation
from vesalius.documents.base import Document
from vesalius.documents.claims import Claims
from vesalius.documents.experiments import WhatIf
from vesalius.documents.view import Answer, Group, Section, View, Viewable
from vesalius.errors import BadInput
from vesalius_workbench.showing import view_data

#: Bytes of a file that is read, and of all files whose documents are kept.
MOST_BYTES = 128 * 2**20
MOST_KEPT = 8
#: Claims of one page of them.
CLAIMS = 200
#: What stands where the static page has pictures, which need the model.
AT_WORK = "Its own page shows where it looks and what it writes, on prompts of your choice."
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
    """A document as it goes to the page: its view, and what the page can do with it beyond showing it.

    `subject` is the model and the behaviour that questions are asked about. The claims of an explanation are told page
    by page (`claims_page`), so that its view goes without them.
    """
    request = getattr(document, "request", None)
    specimen = (request and request.specimen) or getattr(document, "specimen", None)
    subject = {"specimen": specimen or "", "behaviour": getattr(document, "behaviour", None) or ""}
    if request is not None and not subject["behaviour"]:
        subject["behaviour"] = request.behaviour or ""
    told: dict[str, Any] = {"subject": subject, "circuit": isinstance(document, Discovery | Explanation)}
    if isinstance(document, WhatIf):
        told["asked"] = document.request.as_data()
    if isinstance(document, Explanation):
        about, view = _explained(document, specimen)
        return {**told, "claims": about, "view": view_data(view)}
    view = document.view() if isinstance(document, Viewable) else View(document.kind_name(), Answer(str(document)))
    return {**told, "view": view_data(view, ask={**subject, "kind": "resample"})}


def _explained(explanation: Explanation, name: str | None) -> tuple[dict[str, Any], View]:
    """What is known of the claims of an explanation, and its view without them."""
    parts = explanation.components
    view = explanation.view(name=name, pictures={part.id: (AT_WORK, ()) for part in parts})
    about = {
        "components": [part.id for part in parts],
        "counts": [len(part.claims) for part in parts],
        "kinds": sorted({claim.kind for part in parts for claim in part.claims}),
        "seed": explanation.seed,
    }
    return about, replace(view, sections=_without_claims(view.sections))


def _without_claims(sections: Sequence[Section]) -> list[Section]:
    return [
        replace(one, sections=_without_claims(one.sections)) if isinstance(one, Group) else one
        for one in sections
        if not isinstance(one, Claims)
    ]


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
