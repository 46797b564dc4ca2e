"""What results say about one component: its claims, its note, its score and its edges."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import FastAPI, Query

from vesalius.documents import Discovery, Explanation
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
        if path:
            return {"component": component, "results": [_about(results.read(path), path, component)]}
        found = []
        for place, result in _on(store, results, specimen, behaviour or None):
            about = _about(result, place, component)
            if "note" in about or "score" in about:
                found.append(about)
        return {"component": component, "results": found}


def _on(
    store: Store, results: Results, specimen: str, behaviour: str | None
) -> Iterator[tuple[str, Discovery | Explanation]]:
    """Explanations and discoveries of the directory that are about this specimen, the latest first."""
    rows = [row for row in store.results()["results"] if row["kind"] in ("explanation", "discovery")]
    for row in [row for row in rows if row["state"] == "finished"][:MOST_READ]:
        try:
            result = results.read(row["path"])
        except (BadInput, Failed):  # changed or gone since it was listed
            continue
        names = {result.specimen, result.request.specimen if result.request else None}
        if specimen in names and result.behaviour == behaviour:
            yield row["path"], result


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
