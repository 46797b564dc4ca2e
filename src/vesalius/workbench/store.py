"""Results below one directory, and nothing else: paths that lead outside are refused."""

from pathlib import Path
from typing import Any

from vesalius import api
from vesalius.documents import Discovery, Explanation, Scorecard, Sweep
from vesalius.documents.base import Document
from vesalius.documents.what_if import WhatIf
from vesalius.errors import BadInput

#: Files that the page shows, with the kind that it knows them by.
SHOWN: dict[str, tuple[str, type[Document]]] = {
    "explanation.json": ("explanation", Explanation),
    "discovery.json": ("discovery", Discovery),
    "sweep.json": ("sweep", Sweep),
    "what_if.json": ("what-if", WhatIf),
    "scorecard.json": ("benchmark", Scorecard),
}


class Store:
    """The directory that was opened."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()

    def results(self) -> dict[str, Any]:
        """Every result, as `vesalius runs` lists them."""
        return api.results(self.directory).as_data()

    def place(self, path: str) -> Path:
        """A path below the directory; links that lead out of it are refused like any other way out."""
        if "\0" in path:
            raise BadInput("path: has a null character; give a path of the list")
        place = (self.directory / path).resolve()
        if not place.is_relative_to(self.directory):
            raise BadInput(f"{path!r:.80}: is not below the directory that is open")
        return place

    def document(self, path: str) -> dict[str, Any]:
        """One result with what kind it is. `path` is its directory, or a file below a benchmark's run."""
        place = self.place(path)
        if place.is_file():
            kind = Explanation if place.parent.name == "explanations" else None
            named = ("explanation", kind) if kind else SHOWN.get(place.name)
            if named is None:
                raise BadInput(f"{path!r:.80}: is not a result that the page shows")
            return {"kind": named[0], "path": path, "document": named[1].read(place).as_data()}
        for name, (kind, document) in SHOWN.items():
            if (place / name).is_file():
                data = document.read(self.place(f"{path}/{name}")).as_data()
                cases = sorted(file.name for file in (place / "explanations").glob("*.json"))
                return {"kind": kind, "path": path, "document": data, **({"cases": cases} if cases else {})}
        raise BadInput(f"{path!r:.80}: holds no result that the page shows")

    def difference(self, a: str, b: str) -> dict[str, Any]:
        """What differs between two results."""
        return api.diff(self.place(a), self.place(b)).as_data()
