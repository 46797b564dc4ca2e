"""The static page of a result, beside the live one: the file that was written with it, or its view laid out now.

A file of a directory may come from anywhere. It is served with a policy that names our own scripts by their hash and
lets nothing else run, load or be sent, so that a page can show what it likes and do nothing.
"""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response

from vesalius.documents.base import Document
from vesalius.documents.view import Viewable
from vesalius.errors import BadInput
from vesalius.report.html import package_text, script_hash
from vesalius.report.layout import page_of
from vesalius.runs.directory import PAGES
from vesalius_workbench.guard import PAGES_AT, page_policy
from vesalius_workbench.reading import MOST_BYTES
from vesalius_workbench.store import Store

#: Scripts that pages carry: those of a view, and of the page of a functions run.
SCRIPTS = (("theme.js", "sort.js"), ("theme.js",))


def routes(app: FastAPI, store: Store) -> None:
    """The address of every static page: that of its file, or of its result."""
    hashes = [script_hash("".join(map(package_text, names))) for names in SCRIPTS]

    @app.get(f"{PAGES_AT}/{{path:path}}")
    def page(path: str) -> Response:
        place = store.place(path)
        if place.suffix == ".html" and place.is_file():
            if place.stat().st_size > MOST_BYTES:
                raise BadInput(f"{place.name}: is larger than {MOST_BYTES // 2**20} MB; open the file itself")
            text = place.read_text(encoding="utf-8", errors="replace")
        else:
            document = store.found(path)[2]
            if not isinstance(document, Viewable):
                raise BadInput(f"{path!r:.80}: has no page")
            text = page_of(document.view())
        return HTMLResponse(text, headers={"content-security-policy": page_policy(hashes)})


def page_address(store: Store, place: Path, document: Document) -> str:
    """Where the static page of a result is."""
    case = place.parent.parent / PAGES / f"{place.stem}.html"
    file = place / str(getattr(document, "PAGE", "report.html"))
    written = case if place.parent.name == "explanations" else file
    shown = written if written.is_file() else place
    return f"{PAGES_AT}/{shown.relative_to(store.directory).as_posix()}"
