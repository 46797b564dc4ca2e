"""What every head and MLP of a model is, once a model: measured, kept by the digest of the weights, and joined with the
part that each component has in the explanations that lie beside it.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from vesalius.api.door import RUNS, place_for, removed_if_empty, request_on, verb, with_page
from vesalius.documents.atlas import ATLAS_FILE, Atlas, Part
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.request import Request
from vesalius.documents.view import title_of
from vesalius.errors import BadInput
from vesalius.explanations.atlas import atlas_of
from vesalius.explanations.atlas.text import WORDS
from vesalius.explanations.running.fitting import attention_words
from vesalius.model.specimen import Specimen
from vesalius.model.states import fingerprint
from vesalius.options import Charted, Out
from vesalius.progress import Progress, silent


@verb
def atlas(specimen: Specimen, *, charted: Charted, out: Out = None, progress: Progress = silent) -> Atlas:
    """Say what every head and MLP of a model is: figures of standard tests beside their chance levels, and names by
    rule (`.heads`, `.head("L24H4")`, `.mlps`). Of a model that reads text or token ids each head also has a program of
    where it looks, or `position only`, or `depends on context` (`.head("L24H4").attention`, `.words`).

    With `out` (a directory, or True for one under `vesalius-runs`) `atlas.json` is written with its page `atlas.html`,
    and an atlas of the same weights that lies there is read instead of measured. Explanations of the same model under
    `vesalius-runs`, or beside `out`, give each component's part in behaviours.
    """
    specimen.require_patterns("atlas")
    request = request_on(specimen, "atlas", charted).model_copy(update={"behaviour": None})
    directory = place_for(out, specimen, request, charted)
    with removed_if_empty(directory):
        progress("comparing the weights", 0, 0)
        model = fingerprint(specimen.model)
        result = None if directory is None else _kept(directory / ATLAS_FILE, model, request)
        if result is None:
            words = tuple(charted.words) or WORDS
            result = atlas_of(specimen, request, model=model, seed=charted.seed, words=words, progress=progress)
            result = _with_attention(result, specimen, progress)
    return with_page(_with_parts(result, specimen, directory), directory)


def _kept(file: Path, model: str, request: Request) -> Atlas | None:
    """The atlas of the same weights that the same version of this program wrote there for the same request."""
    if not file.is_file():
        return None
    try:
        kept = Atlas.read(file)
    except BadInput:  # of another version, or damaged: it is made again
        return None
    same = ("options", "seed", "versions")
    alike = all(getattr(kept.request, name) == getattr(request, name) for name in same)
    return kept if kept.model == model and alike else None


def _with_attention(atlas: Atlas, specimen: Specimen, progress: Progress) -> Atlas:
    """The atlas with the program of every head, and what these cost."""
    started = time.monotonic()
    words, rows = attention_words(specimen, progress=progress)
    if not words:
        return atlas
    by_name = {str(head): program for head, program in words.items()}
    heads = tuple(head.model_copy(update={"attention": by_name[head.id]}) for head in atlas.heads)
    seconds = round(atlas.seconds + time.monotonic() - started, 2)
    return atlas.model_copy(update={"heads": heads, "forwards": atlas.forwards + rows, "seconds": seconds})


def _with_parts(atlas: Atlas, specimen: Specimen, directory: Path | None) -> Atlas:
    """The atlas with each component's part in the explanations at hand."""
    parts: dict[str, list[Part]] = defaultdict(list)
    for place, explanation in _explanations(specimen, directory):
        for one in explanation.components:
            parts[one.id].append(
                Part(
                    behaviour=title_of(explanation.behaviour or ""),
                    role=one.role or str(one.tag or ""),
                    verdict=one.verdict,
                    directory=str(place),
                )
            )
    heads, mlps = (
        tuple(one.model_copy(update={"parts": tuple(parts[one.id])}) for one in some)
        for some in (atlas.heads, atlas.mlps)
    )
    return atlas.model_copy(update={"heads": heads, "mlps": mlps})


def _explanations(specimen: Specimen, directory: Path | None) -> Iterator[tuple[Path, Explanation]]:
    """The explanations of this model's behaviours in the directories beside the atlas and under `vesalius-runs`."""
    roots = {place.resolve(): place for place in (Path(RUNS), directory.parent if directory else Path(RUNS))}
    for root in roots.values():
        for file in sorted(root.glob(f"*/{EXPLANATION_FILE}")):
            try:
                explanation = Explanation.read(file)
            except BadInput:  # of an earlier version
                continue
            if explanation.specimen == specimen.id and explanation.behaviour is not None:
                yield file.parent, explanation
