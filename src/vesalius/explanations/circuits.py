"""Which components are explained: those named, or those of a discovered circuit that score high enough."""

from collections.abc import Iterable

from vesalius.components import Component
from vesalius.discovery.methods import Discovery
from vesalius.documents.circuit import CHOSEN_SHARE, Circuit
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen

Named = Iterable[str | Component]


def explained_components(
    specimen: Specimen, given: Circuit | Discovery | Named | None, *, source: str = "circuit"
) -> Named | None:
    """The components of a discovered circuit by the rule of `Circuit.chosen`; names, and None, pass through.

    `source` names the circuit in complaints.
    """
    circuit = given.circuit if isinstance(given, Discovery) else given
    if not isinstance(circuit, Circuit):
        return circuit
    config = specimen.model.config
    chosen = circuit.require_fit(config, config.d_model, source=source).chosen()
    if not chosen:
        raise BadInput(
            f"{source}: no head or MLP is in the graph with a score of at least {CHOSEN_SHARE} of the largest; "
            "discover it with more prompts or another method"
        )
    return chosen
