"""Measurements on a natural model by name: the instruments that agents use, for people."""

from vesalius.api.door import verb
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.natural.instruments import Instruments
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.options import Draw


@verb
def instruments(specimen: Specimen, *, draw: Draw) -> Instruments:
    """Instruments on `n` prompts of a natural model's behaviour: attention between roles, replacements of sets of
    components at a role, corrupted roles, attention cuts, pruning, the logit lens, direct effects, restoring.

    Each method returns plain data; docs/reference/instruments.md lists them.
    """
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary) or specimen.behaviour is None:
        raise BadInput(
            f"specimen {specimen.name!r}: instruments measure a natural model on a behaviour; give `behaviour`"
        )
    lab = NaturalLab.draw(specimen, draw.n, seed=draw.seed, split=draw.split)
    return Instruments(lab, piece=vocabulary.tokenizer.piece)
