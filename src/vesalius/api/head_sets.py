"""Which heads matter together, and which back each other up."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from vesalius.api.catalogue import loaded
from vesalius.api.notes import note_unperformed
from vesalius.api.places import Out, directory_for, removed_if_empty
from vesalius.components import Component
from vesalius.discovery.methods import DEFAULT_PROMPTS
from vesalius.discovery.sets.discover import NAMES, SetDiscovery
from vesalius.discovery.sets.discover import discover_sets as searched
from vesalius.discovery.sets.queries import LEAST_SHARE
from vesalius.discovery.sets.synergy import synergy_matrix
from vesalius.errors import BadInput, choices
from vesalius.files import write_json
from vesalius.intervene import KINDS
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
    behaviour: str | None = None,
    device: str | torch.device = "cpu",
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
    with shown(progress) as report:
        specimen = loaded(specimen, behaviour=behaviour, device=device, progress=report)
        asked = {
            "specimen": specimen.source or specimen.id,
            "behaviour": specimen.behaviour,
            "method": "sets",
            "search": search,
            "kind": kind,
            "least": least,
            "n": n,
            "seed": seed,
        }
        directory = directory_for(out, *_words(specimen.name, asked, named, budget))
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
    note_unperformed(specimen.name, specimen.behaviour, result.performance)
    document = {**result.document(), "schema": SCHEMA, **asked, "directory": str(directory)}
    document |= {"pool": list(result.queries.source.heads), "budget": result.queries.budget}
    if result.synergies:
        document["picture"] = str(_draw(result, asked, directory / "synergy.png"))
    write_json(directory / SETS_FILE, document)
    return document


def _words(name: str, asked: dict[str, Any], pool: list[str] | None, budget: int | None) -> tuple[str | None, ...]:
    """The parts of the directory's name: whatever decides what is found."""
    digest = None if pool is None else hashlib.sha256(",".join(pool).encode()).hexdigest()[:8]
    return (
        "sets",
        name,
        asked["behaviour"],
        asked["search"],
        asked["kind"],
        None if digest is None else f"pool{digest}",
        None if budget is None else f"budget{budget}",
        None if asked["least"] == LEAST_SHARE else f"least{asked['least']:g}",
        f"n{asked['n']}",
        f"seed{asked['seed']}",
    )


def _draw(result: SetDiscovery, asked: dict[str, Any], path: Path) -> Path:
    heads, marked = result.queries.source.heads, [s.heads for s in result.synergies if s.verdict != "none"]
    subject = ", ".join(filter(None, (Path(asked["specimen"]).name, asked["behaviour"])))
    return draw_synergy(
        synergy_matrix(heads, result.synergies),
        heads,
        path,
        title=f"{subject}: pairs, {asked['kind']} ablation, {asked['n']} prompts",
        unit=result.queries.source.unit,
        marked=marked,
    )
