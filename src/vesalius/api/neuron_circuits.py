"""Which single neurons carry a behaviour."""

from typing import cast

from vesalius.api.door import place_for, request_on, verb
from vesalius.api.notes import note_unperformed
from vesalius.api.places import removed_if_empty
from vesalius.discovery.neurons import NeuronSet, keep_neurons
from vesalius.documents.circuit import CIRCUIT_FILE, Circuit, Score
from vesalius.documents.metric import Metric
from vesalius.documents.neurons import NeuronCircuit
from vesalius.documents.request import Request
from vesalius.intervene.attribution import Rule
from vesalius.model.specimen import Specimen
from vesalius.options import NEURONS, Draw, Force, Out, Scoring
from vesalius.progress import Progress, silent


@verb
def neurons(
    specimen: Specimen,
    *,
    scoring: Scoring,
    draw: Draw = NEURONS,
    force: Force,
    out: Out = None,
    progress: Progress = silent,
) -> NeuronCircuit:
    """Find the smallest set of neurons that keeps the share `keep` of a behaviour, all other neurons replaced by their
    values on the counterfactual prompt.

    `method` is how neurons are scored: "relp", "relp-qk" or "gradient". With `out` (a directory, or True for one under
    `vesalius-runs`) `neurons.json` is written with its page `neurons.html`, and `circuit.json` with the neurons as
    nodes.
    """
    asked = (scoring, draw, force)
    request = request_on(specimen, "neurons", *asked)
    directory = place_for(out, specimen, request, *asked)
    with removed_if_empty(directory):
        result = keep_neurons(
            specimen,
            rule=cast(Rule, scoring.method),  # `Scoring` refuses other names
            keep=scoring.keep,
            n=draw.n,
            seed=draw.seed,
            split=draw.split,
            force=force.force,
            progress=progress,
        )
    note_unperformed(specimen.name, specimen.behaviour, result.performance, force=force.force)
    document = _document(result, request, scoring.keep)
    if directory is None:
        return document
    config = specimen.model.config
    Circuit.scored(config, config.d_model, dict(result.neurons), {}).write(directory / CIRCUIT_FILE)
    document = document.model_copy(update={"directory": str(directory)})
    document.save(directory)
    document.page(directory)
    return document


def _document(result: NeuronSet, request: Request, keep: float) -> NeuronCircuit:
    size = len(result.neurons)
    point = next(point for point in result.curve if point.size == size)
    share = Metric(value=point.share, low=point.low, high=point.high, n=result.n_held_out, baseline=point.random)
    return NeuronCircuit(
        request=request,
        components=tuple(Score(id=str(part), score=score) for part, score in result.neurons),
        n=result.n,
        size=size,
        n_neurons=result.n_neurons,
        keep=keep,
        share_chosen=result.share_chosen,
        share=share,
        curve=result.curve,
        details=result.details,
        unit=result.unit,
        forwards=result.forwards,
        seconds=result.seconds,
        performance=result.performance,
    )
