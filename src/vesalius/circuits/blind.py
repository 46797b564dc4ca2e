"""Specimens without anything that gives their program away: a new name, no key, no figures by component."""

from pathlib import Path

from vesalius.circuits.specimens import SPECIMEN_FILE, Card, write_specimen
from vesalius.components import all_components
from vesalius.model.files import load_model
from vesalius.model.transformer import Transformer

MADE_BY = "vesalius league make"


def write_blind(source: Path, target: Path, *, name: str, circuit_given: bool) -> Transformer:
    """Copy a trained specimen under another name; without `circuit_given` its card lists every component of the model.

    The card of a trained specimen names the task, which holds the seed, and says for every component what interchange
    showed; neither is kept.
    """
    card, model = Card.read(source / SPECIMEN_FILE), load_model(source)
    every = tuple(map(str, all_components(model.config)))
    blind = card.model_copy(
        update={
            "id": name,
            "name": name,
            "kind": "trained",
            "components": card.components if circuit_given else every,
            "gate": {name: card.gate[name] for name in ("n", "accuracy") if name in card.gate},
            "made_by": MADE_BY,
        }
    )
    target.mkdir(parents=True, exist_ok=True)
    write_specimen(target, model, blind)
    return model
