"""The smallest circuit of latents, heads and error terms of a behaviour: the verb `latents`."""

import time
from functools import partial
from pathlib import Path

from vesalius.api.door import place_for, removed_if_empty, request_on, verb
from vesalius.behaviours.natural import require_performance
from vesalius.behaviours.trial import note_limits, trial
from vesalius.discovery.attribution import smooth_readout
from vesalius.discovery.neurons import HELD_OUT_SEED, HELD_OUT_SPLIT
from vesalius.documents.circuit import Score
from vesalius.errors import BadInput, result_kept
from vesalius.files import no_directory
from vesalius.model.dictionaries import read_dictionaries
from vesalius.model.specimen import Specimen
from vesalius.options import Draw, Force, Out, Sparse
from vesalius.progress import Progress, silent
from vesalius.sites import Feature
from vesalius_features.circuits import Parts, require_of_mlps, smallest_set
from vesalius_features.contexts import details
from vesalius_features.documents import LATENTS_FILE, LatentCircuit
from vesalius_features.options import CHOSEN, LatentSearch

#: Latents that are described.
DESCRIBED = 24


def require_dictionaries(sparse: Sparse) -> None:
    """Refuse a search without a directory of dictionaries."""
    if sparse.features is None:
        raise BadInput("no dictionaries to search in; give their directory with `features`")
    place = Path(sparse.features).expanduser()
    if not place.is_dir():
        raise BadInput(f"features {sparse.features}: {no_directory(place)}")


@partial(verb, check=require_dictionaries)
def latents(
    specimen: Specimen,
    *,
    searched: LatentSearch,
    draw: Draw = CHOSEN,
    force: Force,
    sparse: Sparse,
    out: Out = None,
    progress: Progress = silent,
) -> LatentCircuit:
    """Find the smallest set of latents, heads and error terms that keeps a share of a behaviour, every other part as on
    the counterfactual prompt.

    `features` is a directory of transcoders, or of autoencoders of what MLPs write. Parts are ranked by attribution on
    `n` prompts and the share is read on others. What a dictionary misses is a part of its own, `L12.error`; the result
    says what is left without those of the set. With `out` (a directory, or True for one under `vesalius-runs`)
    `latents.json` is written with its page.
    """
    started = time.perf_counter()
    dictionaries = read_dictionaries(str(sparse.features), specimen.model.config)
    require_of_mlps(dictionaries)
    performance = (
        None if specimen.behaviour is None else require_performance(specimen, seed=draw.seed, force=force.force)
    )
    material = trial(specimen, draw.n, seed=draw.seed, split=draw.split)
    held_out = trial(specimen, draw.n, seed=HELD_OUT_SEED + draw.seed, split=HELD_OUT_SPLIT, apart_from=material)
    note_limits(specimen, material.prompts, resampled=True)
    parts = Parts(specimen.model, dictionaries)
    found = smallest_set(parts, material, held_out, keep=searched.keep, seed=draw.seed, progress=progress)
    request = request_on(specimen, "latents", searched, draw, force, sparse)
    shown = [part for part, _ in found.parts if isinstance(part, Feature) and part.index is not None][:DESCRIBED]
    document = LatentCircuit(
        request=request,
        components=tuple(Score(id=str(part), score=score) for part, score in found.parts),
        n=found.n,
        n_held_out=found.n_held_out,
        scored=found.scored,
        keep=searched.keep,
        share_chosen=found.share_chosen,
        share=found.share.metric().model_copy(update={"baseline": found.random.value}),
        without_errors=found.without_errors.metric(),
        details=details(specimen, Path(str(sparse.features)).expanduser(), shown),
        unit=smooth_readout(specimen.model, material)[0].unit,
        forwards=float(found.runs),
        seconds=round(time.perf_counter() - started, 2),
        performance=performance,
    )
    directory = place_for(out, specimen, request, searched, draw, force, sparse)
    if directory is None:
        return document
    with removed_if_empty(directory), result_kept(document):
        document = document.model_copy(update={"directory": str(directory)})
        document.write(directory / LATENTS_FILE)
        document.page(directory)
    return document
