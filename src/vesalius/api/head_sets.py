"""Which heads matter together, and which back each other up."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue

from vesalius.api.catalogue import loaded
from vesalius.api.notes import note_unperformed
from vesalius.api.places import Out, directory_for, removed_if_empty, require_place, subject_options
from vesalius.behaviours.behaviour import label_of
from vesalius.behaviours.metrics import Metric
from vesalius.components import Component
from vesalius.discovery.methods import DEFAULT_PROMPTS
from vesalius.discovery.sets.discover import NAMES, SetDiscovery
from vesalius.discovery.sets.discover import discover_sets as searched
from vesalius.discovery.sets.queries import LEAST_SHARE
from vesalius.discovery.sets.synergy import synergy_matrix
from vesalius.documents.request import Request
from vesalius.documents.views import subject_of
from vesalius.errors import BadInput, choices
from vesalius.files import write_json
from vesalius.intervene import KINDS
from vesalius.model.devices import Devices
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress, shown
from vesalius.report.synergy import draw_synergy

SCHEMA, SETS_FILE = 1, "sets.json"


def discover_sets(
    specimen: Specimen | str | int | Path,
    search: str = "group",
    *,
    budget: int | None = None,
    pool: Iterable[str | Component] | None = None,
    kind: str = "mean",
    least: float = LEAST_SHARE,
    n: int = DEFAULT_PROMPTS,
    seed: int = 0,
    force: bool = False,
    behaviour: Any = None,
    metric: Metric | None = None,
    dtype: str | torch.dtype = "auto",
    device: Devices = "auto",
    out: Out = True,
    progress: Progress | bool | None = None,
) -> dict[str, Any]:
    """Search sets of heads that matter together and confirm them on held-out prompts; the document of `sets.json`.

    `search` is "group", "greedy", "beam", "prune", "rl" or "pairs"; `budget` the number of sets to measure; `pool` the
    heads to choose among; `least` the smallest synergy that counts, as a share of the clean score. Measured effects are
    kept in the directory, so that an interrupted search continues when the same call is made again.
    """
    if search not in NAMES:
        raise BadInput(f"search {search!r} does not exist; choose one of {choices(NAMES)}")
    if kind not in KINDS:
        raise BadInput(f"kind {kind!r} does not exist; choose one of {choices(KINDS)}")
    named = None if pool is None else list(map(str, pool))
    require_place(out)
    with shown(progress) as report:
        specimen = loaded(specimen, behaviour=behaviour, metric=metric, dtype=dtype, device=device, progress=report)
        options: dict[str, JsonValue] = {"search": search, "kind": kind, "least": least, "n": n}
        options |= {} if named is None else {"pool": list[JsonValue](named)}
        options |= {} if budget is None else {"budget": budget}
        options |= {"force": True} if force else {}
        options |= subject_options(specimen)
        request = Request(
            command="discover",
            specimen=specimen.source or specimen.id,
            behaviour=specimen.behaviour,
            method="sets",
            options=options,
            seed=seed,
        )
        directory = directory_for(out, *_words(specimen.name, request, named))
        with removed_if_empty(directory):
            result = searched(
                specimen,
                search,
                pool=named,
                budget=budget,
                kind=kind,
                least=least,
                n=n,
                seed=seed,
                directory=directory / "effects",
                force=force,
                progress=report,
            )
    note_unperformed(specimen.name, specimen.behaviour, result.performance, force=force)
    document = {
        **result.document(),
        "schema": SCHEMA,
        "request": request.model_dump(mode="json"),
        "specimen": request.specimen,
        "behaviour": request.behaviour,
        "method": request.method,
        "search": search,
        "kind": kind,
        "least": least,
        "n": n,
        "seed": seed,
        "pool": list(result.queries.source.heads),
        "budget": result.queries.budget,
        "directory": str(directory),
    }
    if result.synergies:
        document["picture"] = str(_draw(result, request, directory / "synergy.png"))
    write_json(directory / SETS_FILE, document)
    return document


def _words(name: str, request: Request, pool: list[str] | None) -> tuple[str | None, ...]:
    """The parts of the directory's name: whatever decides the result."""
    options = request.options
    digest = None if pool is None else hashlib.sha256(",".join(pool).encode()).hexdigest()[:8]
    return (
        "sets",
        name,
        request.behaviour and label_of(request.behaviour),
        str(options["metric"]) if "metric" in options else None,
        str(options["search"]),
        str(options["kind"]),
        None if digest is None else f"pool{digest}",
        f"budget{options['budget']}" if "budget" in options else None,
        None if options["least"] == LEAST_SHARE else f"least{options['least']:g}",
        f"n{options['n']}",
        f"seed{request.seed}",
    )


def _draw(result: SetDiscovery, request: Request, path: Path) -> Path:
    heads, marked = result.queries.source.heads, [s.heads for s in result.synergies if s.verdict != "none"]
    subject = subject_of(Path(str(request.specimen)).name, request.behaviour)
    return draw_synergy(
        synergy_matrix(heads, result.synergies),
        heads,
        path,
        title=f"{subject}: pairs, {request.options['kind']} ablation, {request.options['n']} prompts",
        unit=result.queries.source.unit,
        marked=marked,
    )
