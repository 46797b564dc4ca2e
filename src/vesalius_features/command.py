"""`vesalius transcoders`."""

from vesalius import api
from vesalius.cli.console import output, resumable
from vesalius.cli.options import Planned, SpecimenArgument
from vesalius.options import Draw, Force, Load
from vesalius_features.options import MEASURED, TranscoderTraining


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
