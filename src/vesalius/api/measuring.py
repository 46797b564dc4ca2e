"""Measurements on a natural model by name: the instruments that agents use, for people."""

from typing import Any

from vesalius.api.catalogue import loaded
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.natural.instruments import Instruments
from vesalius.model.specimen import Specimen, TextVocabulary


def instruments(
    specimen: Specimen | str, *, behaviour: Any = None, n: int = 16, seed: int = 0, split: str = "test"
) -> Instruments:
    """Instruments on `n` prompts of a natural model's behaviour: attention between roles, replacements of sets of
    components at a role, corrupted roles, attention cuts, pruning, the logit lens, direct effects, restoring.

    Each method returns plain data; docs/reference/instruments.md lists them.
    """
    specimen = loaded(specimen, behaviour=behaviour)
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary) or specimen.behaviour is None:
        raise BadInput(
            f"specimen {specimen.name!r}: instruments measure a natural model on a behaviour; give `behaviour`"
        )
    return Instruments(NaturalLab.draw(specimen, n, seed=seed, split=split), piece=vocabulary.tokenizer.piece)
