"""What results say about one component: its claims, its note, its score and its edges, and what it is in the atlas of
the model, with its part in every behaviour that the directory has an explanation of.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import FastAPI, Query

from vesalius.documents import Discovery, Explanation
from vesalius.documents.atlas import ATLAS_FILE, Atlas
from vesalius.documents.view import title_of
from vesalius.errors import BadInput, Failed
from vesalius_workbench.circuits import Results
from vesalius_workbench.store import Store

NAME = re.compile(r"L\d{1,4}(?:H\d{1,4}|_MLP)")
#: Results that are read for one answer, and edges and claims that each may give.
MOST_READ, MOST_EDGES, MOST_CLAIMS = 20, 20, 200
Word = Annotated[str, Query(max_length=2_000)]


def routes(app: FastAPI, store: Store, results: Results) -> None:
    """The questions about one component."""

    @app.get("/api/component")
    def component(specimen: Word, component: Word, behaviour: Word = "", path: Word = "") -> dict[str, Any]:
        if not NAME.fullmatch(component):
            raise BadInput(
                f"component {component!r:.80} is not a name; expected a head such as L1H2 or an MLP such as L0_MLP"
            )
        atlas = _atlas(store, specimen, path)
        told = {
            "component": component,
            "atlas": atlas and _in_atlas(*atlas, component, _parts(store, results, atlas[1])),
        }
        if path and not _has_atlas(store, path):
            return {**told, "results": [_about(results.read(path), path, component)]}
        found = []
        for place, result in _on(store, results, specimen, behaviour or None):
            about = _about(result, place, component)
            if "note" in about or "score" in about:
                found.append(about)
        return {**told, "results": found}


def _finished(store: Store, *kinds: str) -> list[str]:
    """The paths of finished results of some kinds, the latest first, as many as are read for one answer."""
    rows = [row for row in store.results()["results"] if row["kind"] in kinds and row["state"] == "finished"]
    return [row["path"] for row in rows[:MOST_READ]]


def _on(
    store: Store, results: Results, specimen: str, behaviour: str | None
) -> Iterator[tuple[str, Discovery | Explanation]]:
    """Explanations and discoveries of the directory that are about this specimen, the latest first."""
    for path in _finished(store, "explanation", "discovery"):
        try:
            result = results.read(path)
        except (BadInput, Failed):  # changed or gone since it was listed
            continue
        names = {result.specimen, result.request.specimen if result.request else None}
        if specimen in names and result.behaviour == behaviour:
            yield path, result


def _has_atlas(store: Store, path: str) -> bool:
    return (store.place(path) / ATLAS_FILE).is_file()


def _atlas(store: Store, specimen: str, path: str) -> tuple[str, Atlas] | None:
    """The atlas of a directory, or the latest one of this specimen."""
    for place in [path] if path and _has_atlas(store, path) else _finished(store, Atlas.kind_name()):
        try:
            found = store.reader.read(store.place(f"{place}/{ATLAS_FILE}"), Atlas)
        except (BadInput, Failed):  # changed or gone since it was listed
            continue
        if place == path or found.request.specimen == specimen:
            return place, found
    return None


def _parts(store: Store, results: Results, atlas: Atlas) -> list[tuple[str, Explanation]]:
    """The explanations of the directory that are about the model of an atlas, for whichever behaviour."""
    found = []
    for path in _finished(store, "explanation"):
        try:
            result = results.read(path)
        except (BadInput, Failed):
            continue
        named = result.request.specimen if result.request else result.specimen
        if isinstance(result, Explanation) and result.behaviour is not None and named == atlas.request.specimen:
            found.append((path, result))
    return found


def _in_atlas(path: str, atlas: Atlas, name: str, explanations: list[tuple[str, Explanation]]) -> dict[str, Any]:
    """What a component is by standard tests (None of an MLP), and what each explanation says of it."""
    said = next((head.said() for head in atlas.heads if head.id == name), None)
    parts = [
        {
            "path": place,
            "behaviour": title_of(explanation.behaviour or ""),
            "role": one.role or str(one.tag or "no role established"),
            "verdict": one.verdict,
        }
        for place, explanation in explanations
        for one in explanation.components
        if one.id == name
    ]
    return {"path": path, "said": said, "parts": parts, "explanations": len(explanations)}


def _about(result: Discovery | Explanation, path: str, name: str) -> dict[str, Any]:
    if isinstance(result, Explanation):
        about: dict[str, Any] = {"path": path, "kind": "explanation", "scientist": result.scientist}
        edges = [edge for edge in result.edges if name in edge[:2]]
        for one in result.components:
            if one.id == name:
                claims = [claim.as_data() for claim in one.claims[:MOST_CLAIMS]]
                about |= {"tag": one.role or one.tag or "no tag", "note": one.note, "verdict": one.verdict}
                about |= {"claims": claims, "n_claims": len(one.claims)}
    else:
        about = {"path": path, "kind": "discovery", "method": result.method, "unit": result.unit}
        ranked = [(str(part), score) for part, score in result.circuit.ranked()]
        for place, (part, score) in enumerate(ranked, 1):
            if part == name:
                about |= {"score": score, "rank": place, "of": len(ranked)}
        edges = [
            (str(edge.sender or "tokens"), f"{edge.receiver or 'logits'}{_port(edge.port)}", score)
            for edge, score in result.circuit.ranked_edges()
            if score and name in (str(edge.sender), str(edge.receiver))
        ]
    return {**about, "edges": [list(edge) for edge in edges[:MOST_EDGES]], "n_edges": len(edges)}


def _port(port: str) -> str:
    return f" ({port})" if port in ("q", "k", "v") else ""
