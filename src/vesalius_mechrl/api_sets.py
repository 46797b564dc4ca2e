"""Which heads matter together, and which back each other up."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pydantic import JsonValue

from vesalius.api.door import verb
from vesalius.api.notes import note_unperformed
from vesalius.api.places import directory_for, removed_if_empty, subject_options
from vesalius.behaviours.behaviour import label_of
from vesalius.components import Component, split_names
from vesalius.discovery.discover import DEFAULT_PROMPTS
from vesalius.documents.request import Request
from vesalius.documents.view import subject_of
from vesalius.errors import BadInput, choices, require_whole
from vesalius.intervene import ablation_named
from vesalius.intervene.ablations import Ablation
from vesalius.model.specimen import Specimen
from vesalius.options import Out, require_drawable
from vesalius.progress import Progress, silent
from vesalius_mechrl.documents import SETS_FILE, HeadSets
from vesalius_mechrl.pictures import draw_synergy
from vesalius_mechrl.sets.discover import DEFAULT_SEARCH, NAMES, SetDiscovery
from vesalius_mechrl.sets.discover import discover_sets as searched
from vesalius_mechrl.sets.sources import LEAST_SHARE
from vesalius_mechrl.sets.synergy import synergy_matrix

DEFAULT_KIND = "mean"


@verb
def discover_sets(
    specimen: Specimen,
    search: str = DEFAULT_SEARCH,
    *,
    budget: int | None = None,
    pool: Iterable[str | Component] | str | None = None,
    kind: Ablation | str = DEFAULT_KIND,
    least: float = LEAST_SHARE,
    n: int = DEFAULT_PROMPTS,
    seed: int = 0,
    force: bool = False,
    out: Out = None,
    progress: Progress = silent,
) -> HeadSets:
    """Search sets of heads that matter together and confirm them on held-out prompts.

    `search` is "group", "greedy", "beam", "prune", "rl" or "pairs"; `budget` the number of sets to measure; `pool` the
    heads to choose among; `least` the smallest synergy that counts, as a share of the clean score. With `out` (a
    directory, or True for one under `vesalius-runs`) `sets.json` is written, with a picture where all pairs were
    measured; their effects are kept there, so that an interrupted search of them continues when the same call is made
    again.
    """
    if search not in NAMES:
        raise BadInput(f"search {search!r} does not exist; choose one of {choices(NAMES)}")
    kind = ablation_named(kind).name
    require_drawable(n, seed)
    require_whole(budget=0 if budget is None else budget)
    named = None if pool is None else list(map(str, split_names(pool)))
    options: dict[str, JsonValue] = {"search": search, "kind": kind, "least": least, "n": n}
    options |= {} if named is None else {"pool": list[JsonValue](named)}
    options |= {} if budget is None else {"budget": budget}
    options |= {"force": True} if force else {}
    request = Request(
        command="sets",
        specimen=specimen.source or specimen.id,
        behaviour=specimen.behaviour,
        options={**options, **subject_options(specimen)},
        seed=seed,
    )
    directory = directory_for(out, *_words(specimen.name, request, named)) if out else None
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
            directory=directory and directory / "effects",
            force=force,
            progress=progress,
        )
    note_unperformed(specimen.name, specimen.behaviour, result.performance, force=force)
    queries = result.queries
    head_sets = HeadSets(**result.document(), request=request, pool=queries.source.heads, budget=queries.budget)
    return head_sets if directory is None else _write_files(head_sets, result, directory)


def _write_files(head_sets: HeadSets, result: SetDiscovery, directory: Path) -> HeadSets:
    """The sets with their file and, where all pairs were measured, their picture in a directory."""
    picture = str(_draw(result, head_sets.request, directory / "synergy.png")) if result.synergies else None
    head_sets = head_sets.model_copy(update={"directory": str(directory), "picture": picture})
    head_sets.write(directory / SETS_FILE)
    return head_sets


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
