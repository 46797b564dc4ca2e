"""The smallest circuit of latents, heads and error terms of a behaviour: the verb `latents`."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vesalius.api.dictionaries import other_model, require_fitting
from vesalius.api.door import place_for, removed_if_empty, request_on, verb
from vesalius.api.workloads import Case, loaded_case, memory_of
from vesalius.behaviours.contrast import MOST_PROMPTS, contrast_passes
from vesalius.behaviours.natural import require_performance
from vesalius.behaviours.trial import note_limits, trial
from vesalius.discovery.attribution import smooth_readout
from vesalius.discovery.neurons import HELD_OUT_SEED, HELD_OUT_SPLIT
from vesalius.documents.circuit import Score
from vesalius.documents.printed import Plan
from vesalius.errors import BadInput, result_kept
from vesalius.intervene.estimate import unit_attribution_peak
from vesalius.model.dictionaries import Dictionaries, read_dictionaries
from vesalius.model.specimen import Specimen
from vesalius.options import Draw, Force, Out, Sparse
from vesalius.progress import Progress, silent
from vesalius.sites import Feature
from vesalius_features.circuits import AT_ONCE, ENDS, Keeping, Parts, most_passes, require_of_mlps, smallest_set
from vesalius_features.contexts import details, read_contexts
from vesalius_features.documents import LATENTS_FILE, LatentCircuit
from vesalius_features.options import CHOSEN, LatentSearch

#: Latents that are described.
DESCRIBED = 24


def require_dictionaries(specimen: Any, sparse: Sparse) -> None:
    """Refuse a search without dictionaries, and those that do not go with the model or the passages beside them, before
    its weights are read.
    """
    if sparse.features is None:
        raise BadInput("no dictionaries to search in; give their directory with `features`")
    if (dictionaries := require_fitting(specimen, sparse)) is not None:
        require_of_mlps(dictionaries)
        read_contexts(_directory(sparse), dictionaries)


def _directory(sparse: Sparse) -> Path:
    return Path(str(sparse.features)).expanduser()


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
    contexts = read_contexts(_directory(sparse), dictionaries)
    performance = (
        None if specimen.behaviour is None else require_performance(specimen, seed=draw.seed, force=force.force)
    )
    material = trial(specimen, draw.n, seed=draw.seed, split=draw.split)
    held_out = trial(specimen, draw.n, seed=HELD_OUT_SEED + draw.seed, split=HELD_OUT_SPLIT, apart_from=material)
    note_limits(specimen, material.prompts, resampled=True)
    parts = Parts(specimen.model, dictionaries)
    found = smallest_set(parts, material, held_out, keep=searched.keep, seed=draw.seed, progress=progress)
    made_for = other_model(specimen, dictionaries)
    request = request_on(specimen, "latents", searched, draw, force, sparse, made_for=made_for)
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
        details=details(specimen, contexts, shown),
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


@partial(verb, check=require_dictionaries)
def latents_plan(
    specimen: Specimen,
    *,
    searched: LatentSearch,
    draw: Draw = CHOSEN,
    force: Force,
    sparse: Sparse,
    progress: Progress = silent,
) -> Plan:
    """The passes that `latents` takes at most, its memory and its time, from a few prompts that are run with all parts
    and with none. What it would refuse of the behaviour is not asked.
    """
    model = specimen.model
    dictionaries = read_dictionaries(str(sparse.features), model.config)
    require_of_mlps(dictionaries)
    case = loaded_case(specimen, draw.n, draw.seed)
    sizes, parts = case.sizes, Parts(model, dictionaries)
    activations = dictionaries.bytes() + peak_bytes(case, dictionaries)
    few = trial(specimen, min(draw.n, AT_ONCE), seed=draw.seed, split=draw.split)
    for layer in dictionaries.layers:
        dictionaries.at(layer)  # read before the clock starts
    progress("timing one chunk", 0, 0)
    started = time.perf_counter()
    Keeping(parts, few)
    seconds = (time.perf_counter() - started) / (ENDS * len(few.batch))
    forwards = most_passes(len(parts))
    first = (case.gate + min(case.gate, MOST_PROMPTS) * contrast_passes(model)) / sizes.n
    return Plan(
        command="latents",
        forwards=forwards,
        contrast_forwards=first,
        checks_forwards=0.0,
        seconds=round((forwards + first) * sizes.n * seconds, 2),
        timed="one chunk",
        n=sizes.n,
        tokens=sizes.width,
        device=",".join(map(str, case.devices)),
        **memory_of(case, activations, loaded=True),
    )


def peak_bytes(case: Case, dictionaries: Dictionaries) -> int:
    """Bytes of activations at the peak, about: those of a gradient run of the neurons, and the latents of one layer on
    the prompts, on their counterfactuals and two of their changes.
    """
    few = replace(case.sizes, n=min(case.sizes.n, AT_ONCE))
    widest = max(dictionaries.latents.values())
    return unit_attribution_peak(case.model.config, case.dtype, few) + 4 * 4 * few.n * few.width * widest
