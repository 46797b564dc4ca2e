"""What single neurons and experts do: how sure their scores are, which tokens they write, and where they fire."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.documents.neurons import NeuronDetail
from vesalius.intervene.effects import number
from vesalius.intervene.logit_lens import neuron_logits
from vesalius.intervene.tokens import real_tokens
from vesalius.intervene.values import activations
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.statistics import means_interval

#: Units that are described, and tokens of each.
MOST_DETAILS, TOKENS = 24, 5


def describe_units(
    specimen: Specimen, material: Trial, units: Sequence[Component], scores: Float[Tensor, "prompt unit"]
) -> tuple[NeuronDetail, ...]:
    """Describe units of MLPs, given with their scores on every prompt."""
    batch = material.batch.to(specimen.model.device)
    real, put_out = real_tokens(specimen.model.config, batch).cpu(), activations(specimen.model, batch, neurons=True)
    low, high = means_interval(scores)
    details = []
    for i, unit in enumerate(units):
        layer = put_out.units[unit.layer]
        fires = layer[:, :, unit.neuron] if unit.expert is None else layer[:, :, unit.expert].norm(dim=-1)
        fires = fires.float().cpu().masked_fill(~real, 0.0)
        prompt = int(fires.abs().amax(1).argmax())
        raises, lowers = _written_tokens(specimen, unit)
        details.append(
            NeuronDetail(
                id=str(unit),
                score=float(scores[:, i].mean()),
                low=number(low[i]),
                high=number(high[i]),
                raises=raises,
                lowers=lowers,
                tokens=specimen.pieces(batch.tokens[prompt].cpu()[real[prompt]]),
                activations=tuple(round(value, 4) for value in fires[prompt][real[prompt]].tolist()),
            )
        )
    return tuple(details)


def _written_tokens(specimen: Specimen, unit: Component) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens whose logits a neuron's output direction raises most and lowers most."""
    vocabulary = specimen.vocabulary
    texts = isinstance(vocabulary, TextVocabulary)
    if unit.neuron is None or not (texts or (isinstance(vocabulary, FiniteVocabulary) and vocabulary.outputs)):
        return (), ()
    logits = neuron_logits(specimen.model, unit)
    top = min(TOKENS, len(logits) // 2)
    ends = [logits.topk(top, largest=largest).indices.cpu() for largest in (True, False)]
    if isinstance(vocabulary, FiniteVocabulary) and vocabulary.outputs:
        raises, lowers = (tuple(str(vocabulary.outputs[i]) for i in end.tolist()) for end in ends)
    else:
        raises, lowers = (specimen.pieces(end) for end in ends)
    return raises, lowers
