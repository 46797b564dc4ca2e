"""Which single neurons carry a behaviour."""

from pathlib import Path
from typing import Any

import torch

from vesalius.api.notes import note_unperformed
from vesalius.api.places import Out, directory_for, removed_if_empty, require_place
from vesalius.api.subjects import Subject, request_on
from vesalius.behaviours.behaviour import label_of
from vesalius.behaviours.metrics import BehaviourMetric
from vesalius.discovery.neurons import KEEP, PROMPTS, NeuronSet, keep_neurons
from vesalius.documents.circuit import CIRCUIT_FILE, Circuit, Score
from vesalius.documents.metric import Metric
from vesalius.documents.neurons import NeuronCircuit
from vesalius.documents.request import Request
from vesalius.model.devices import Devices
from vesalius.model.specimen import Specimen
from vesalius.options import require_drawable
from vesalius.progress import Progress, shown


def neurons(
    specimen: Specimen | str | int | Path,
    *,
    method: Any = "relp-qk",
    keep: float = KEEP,
    n: int = PROMPTS,
    seed: int = 0,
    force: bool = False,
    behaviour: Any = None,
    metric: BehaviourMetric | None = None,
    tokenizer: Any = None,
    revision: str | None = None,
    dtype: str | torch.dtype = "auto",
    device: Devices = "auto",
    out: Out = None,
    progress: Progress | bool | None = None,
) -> NeuronCircuit:
    """Find the smallest set of neurons that keeps the share `keep` of a behaviour, all other neurons replaced by their
    values on the counterfactual prompt.

    `method` is how neurons are scored: "relp", "relp-qk" or "gradient". With `out` (a directory, or True for one under
    `vesalius-runs`) `neurons.json` is written with its page `neurons.html`, and `circuit.json` with the neurons as
    nodes.
    """
    require_drawable(n, seed)
    require_place(out)
    subject = Subject(behaviour, metric, tokenizer, revision, dtype, device)
    with shown(progress) as report:
        specimen = subject.load(specimen, report)
        options: dict[str, Any] = {"keep": keep, "n": n} | ({"force": True} if force else {})
        request = request_on(specimen, "neurons", method=method, options=options, seed=seed)
        words = (request.behaviour and label_of(request.behaviour), method, f"keep{keep:g}", f"n{n}", f"seed{seed}")
        directory = directory_for(out, "neurons", specimen.name, *words) if out else None
        with removed_if_empty(directory):
            result = keep_neurons(specimen, rule=method, keep=keep, n=n, seed=seed, force=force, progress=report)
    note_unperformed(specimen.name, specimen.behaviour, result.performance, force=force)
    document = _document(result, request, keep)
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
