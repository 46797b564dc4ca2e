"""Results below one directory, and nothing else: paths that lead outside are refused."""

import os
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from vesalius import api
from vesalius.documents import Explanation, Scorecard
from vesalius.documents.base import Document
from vesalius.documents.kinds import stored_kinds
from vesalius.errors import BadInput
from vesalius.runs.listing import ResultIndex
from vesalius_workbench.reading import MOST_BYTES, Reader, claims_page, sent
from vesalius_workbench.showing import view_data

#: Explanations of a benchmark's run that are listed, and rows of each list of a comparison.
MOST_CASES, MOST_ROWS = 2_000, 500


def shown_files() -> dict[str, tuple[str, type[Document]]]:
    """Files that the page shows, with the kind that it knows them by: every kind of result, and scorecards."""
    kinds = {str(kind.FILE): (kind.kind_name(), kind) for kind in stored_kinds()}
    return {**kinds, str(Scorecard.FILE): ("benchmark", Scorecard)}


def located(directory: Path, name: str, what: str, started_in: Path | None = None) -> str:
    """What ships by its name, anything else by its place below the directory that is open, or below the one that the
    server was started in, where results have the files of their owner: as a name it would be looked for on a hub.
    """
    is_path = name.startswith("-") or any(mark in name for mark in "/\\.~")
    if is_path or ((os.path.exists(directory / name) or os.path.exists(name)) and name not in shipped()):
        return below(directory, name, what, started_in)
    return name


@cache
def shipped() -> frozenset[str]:
    """Names of specimens and behaviours that need no file of the user's."""
    specimens = (name for one in api.specimens() for name in (one.id, one.name))
    return frozenset([*specimens, *(one.name for one in api.behaviours())])


def below(directory: Path, name: str, what: str, started_in: Path | None = None) -> str:
    """The place of something below a directory, or else below another; `what` says in a refusal what was named."""
    for root in (directory, started_in):
        place = None if root is None or "\0" in name else (root / name).resolve()
        if root is not None and place is not None and place.is_relative_to(root) and os.path.exists(place):
            return str(place)
    raise BadInput(
        f"{what} {name!r:.80}: is not below the directory that is open; run `vesalius open DIR` on a directory "
        "that holds it and the results"
    )


class Store:
    """The directory that was opened."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.reader, self.index = Reader(), ResultIndex(self.directory)
        self._comparing = threading.Lock()

    def results(self) -> dict[str, Any]:
        """Every result, as `vesalius runs` lists them; only those that changed since the last look are read."""
        return self.index.look().as_data()

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
        place, kind, document = self.found(path)
        cases = [] if place.is_file() else self._cases(place)
        told: dict[str, Any] = {"kind": kind, "path": path, **sent(document)}
        return {**told, "cases": _linked(cases[:MOST_CASES], told["view"]["sections"], path)} if cases else told

    def _cases(self, run: Path) -> list[str]:
        """The explanations of a benchmark's run; a link that leads elsewhere has none."""
        place = (run / "explanations").resolve()
        return sorted(file.name for file in place.glob("*.json")) if place.is_relative_to(self.directory) else []

    def claims(self, path: str, **chosen: Any) -> dict[str, Any]:
        """A page of the claims of an explanation."""
        _, kind, document = self.found(path)
        if not isinstance(document, Explanation):
            raise BadInput(f"{path!r:.80}: is a {kind}, which makes no claims")
        return claims_page(document, **chosen)

    def found(self, path: str) -> tuple[Path, str, Document]:
        """The place of a result, its kind, and what it holds."""
        place = self.place(path)
        if place.is_file():
            named = (
                ("explanation", Explanation) if place.parent.name == "explanations" else shown_files().get(place.name)
            )
            if named is None:
                raise BadInput(f"{path!r:.80}: is not a result that the page shows")
            return place, named[0], self.reader.read(place, named[1])
        for name, (kind, document) in shown_files().items():
            if (place / name).is_file():
                return place, kind, self.reader.read(self.place(f"{path}/{name}"), document)
        raise BadInput(f"{path!r:.80}: holds no result that the page shows")

    def difference(self, a: str, b: str) -> dict[str, Any]:
        """What differs between two results: the first rows of every list, and how many there are."""
        places = [self.place(a), self.place(b)]
        for place in places:
            self._check_files(place)
        with self._comparing:
            found = api.diff(places[0], places[1])
        data = found.as_data()
        lists = {name: value for name, value in data.items() if isinstance(value, list)}
        cut = {name: value[:MOST_ROWS] for name, value in lists.items()}
        totals = {name: len(value) for name, value in lists.items()}
        return {**data, **cut, "totals": totals, "view": view_data(found.view())}

    def _check_files(self, place: Path) -> None:
        """Refuse a result with files that lie elsewhere, or that are too large to be compared here."""
        size = place.stat().st_size if place.is_file() else 0
        for inside, directories, files in os.walk(place, followlinks=False):
            for name in (*directories, *files):
                own = Path(inside, name)
                if own.is_symlink() and not own.resolve().is_relative_to(self.directory):
                    raise BadInput(f"{str(own.relative_to(self.directory))!r:.80}: is a link that leads elsewhere")
                size += own.lstat().st_size if name.endswith(".json") else 0
        if size > MOST_BYTES:
            raise BadInput(
                f"{place.name}: has {size / 2**20:,.0f} MB; the page compares results of {MOST_BYTES // 2**20} MB,"
                " `vesalius diff` larger ones"
            )


def _linked(cases: Sequence[str], sections: Sequence[dict[str, Any]], path: str) -> list[str]:
    """Let the row of a case lead to its explanation; returns the cases that no row names."""
    left = dict.fromkeys(cases)
    for one in sections:
        if one["kind"] != "sheet" or not one["columns"] or one["columns"][0][0] != "id":
            continue
        for row in one["rows"]:
            if (file := f"{row[0]['text']}.json") in left:
                del left[file]
                place = urlencode({"path": f"{path}/explanations/{file}"})
                for cell in row[:2]:
                    cell["address"] = f"/result?{place}"
    return list(left)
