"""`vesalius transcoders` and `vesalius latents`."""

from vesalius import api
from vesalius.cli.console import output, resumable
from vesalius.cli.options import Planned, Ranked, SpecimenArgument
from vesalius.options import Draw, Force, Load, Sparse
from vesalius_features.options import CHOSEN, MEASURED, LatentSearch, TranscoderTraining


def transcoders(
    specimen: SpecimenArgument,
    training: TranscoderTraining,
    load: Load,
    *,
    draw: Draw = MEASURED,
    force: Force,
    printed: Planned,
) -> None:
    """Train a sparse transcoder of each layer's MLP on your text, and say what the model keeps with them in its place.

    Writes a directory that --features takes, with transcoders.json and its page. Every third article of the text is
    held out and measured on: the variance explained, the loss, and with --behaviour the share that survives. An
    interrupted training continues when the same command is given again.

    Example: vesalius transcoders smollm2-135m --text factbook --layers 10-12 --latents 4096 -b ioi
    """
    if printed.plan:
        return output(api.train_transcoders_plan(specimen, training, load, draw, force), as_json=printed.json)
    with resumable():
        document = api.train_transcoders(specimen, training, load, draw, force, out=printed.out or True)
    return output(document, as_json=printed.json)


def latents(
    specimen: SpecimenArgument,
    load: Load,
    sparse: Sparse,
    searched: LatentSearch,
    draw: Draw = CHOSEN,
    *,
    force: Force,
    printed: Ranked,
) -> None:
    """Find the smallest set of latents, heads and error terms that keeps a share of a behaviour.

    Parts are ranked by attribution; all others take their values on the counterfactual prompt. The share is read on
    held-out prompts, beside as many random parts, and without the error terms. Writes latents.json and its page.

    Example: vesalius latents smollm2-135m -b induction --features transcoders/
    """
    if printed.plan:
        return output(api.latents_plan(specimen, load, sparse, searched, draw, force), as_json=printed.json)
    with resumable():
        circuit = api.latents(specimen, load, sparse, searched, draw, force, out=printed.out or True)
    return output(circuit, as_json=printed.json, top=printed.top)
