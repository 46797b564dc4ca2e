"""The scientist's runs of a specimen: inputs and outputs as codes, one component of the circuit replaced.

Recorded runs are the engine's `Recordings`; a patched run is a plan of the engine in which every row replaces the same
component by a value of its own, at positions of its own.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.scientist.inputs import Pairings, Sequences
from vesalius.intervene import Batch, Plan, Readout, Recordings, component_values, run_with_outputs
from vesalius.intervene.probes import HeadInputs
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.model.transformer import Transformer

#: Bytes of activations held at once: small enough to stay in the processor's caches.
_MEMORY = 32 * 2**20
#: Bytes of a recorded run: kept whole, because thousands of patched runs start from it.
_RECORDED_MEMORY = 4 * 2**30


@dataclass(frozen=True)
class Edit:
    """Replace a component's output (a head's z, an MLP's output without its bias) where `where` is True."""

    component: Component
    values: Float[Tensor, "row with_bos width"]
    where: Bool[Tensor, "row with_bos"]


@dataclass(frozen=True)
class RecordedRun:
    """A run and what later runs start from."""

    sequences: Sequences
    recordings: Recordings
    component_outputs: dict[Component, Float[Tensor, "row with_bos width"]]
    outputs: Tensor


class CircuitRuns:
    """A specimen's model, its inputs as codes, its outputs as codes (or numbers), and a count of rows run."""

    def __init__(self, specimen: Specimen, vocabulary: FiniteVocabulary, components: list[Component]) -> None:
        self.model: Transformer = specimen.model
        self.vocabulary, self.components = vocabulary, components
        self.numeric = vocabulary.outputs is None
        self.rows = 0

    def record(self, sequences: Sequences) -> RecordedRun:
        """Run inputs and keep the residual streams and the outputs of the circuit's components."""
        batch, readout = Batch(sequences.ids(self.vocabulary)), Readout(self._read)
        recordings = Recordings(self.model, batch, readout, memory=_RECORDED_MEMORY)
        self.rows += len(sequences)
        return RecordedRun(sequences, recordings, recordings.outputs(self.components), recordings.scores())

    def patched(
        self, recorded: RecordedRun, rows: Int[Tensor, " n"], edit: Edit, *, keep: tuple[Component, ...] = ()
    ) -> tuple[Tensor, dict[Component, Tensor]]:
        """Outputs of recorded inputs with one component replaced; and what the components in `keep` then write."""
        self.rows += len(rows)
        plan = Plan.each(self.model.config, rows, edit.component, positions=edit.where)
        values = component_values(self.model, edit.component, edit.values)
        return run_with_outputs(recorded.recordings, plan, values, keep, memory=_MEMORY)

    def interchange(
        self, recorded: RecordedRun, pairings: Pairings, component: Component, *, keep: tuple[Component, ...] = ()
    ) -> tuple[Tensor, dict[Component, Tensor]]:
        """Outputs of the pairings of one component: its output moves from source to base where both are real."""
        rows = pairings.rows_of(component)
        base, source = pairings.base[rows], pairings.source[rows]
        where = both_real(recorded.sequences, base, source)
        where = torch.cat([where.new_zeros(len(where), 1), where], 1)
        return self.patched(
            recorded, base, Edit(component, recorded.component_outputs[component][source], where), keep=keep
        )

    def attention(self, recorded: RecordedRun, component: Component) -> Float[Tensor, "row query key"]:
        """Where a head attends, tokens only (attention to BOS is left out)."""
        recordings = recorded.recordings
        inputs = HeadInputs(self.model, recordings.batch, recordings.resid(component.layer), component)
        return inputs.pattern()[:, 1:, 1:]

    def _read(self, logits: Float[Tensor, "row with_bos out"], prompt: Int[Tensor, " row"]) -> Tensor:
        """Outputs after BOS: codes, or numbers."""
        return logits[:, 1:, 0] if self.numeric else logits[:, 1:].argmax(-1)


def both_real(sequences: Sequences, base: Tensor, source: Tensor) -> Bool[Tensor, "row pos"]:
    """Positions that are inside both inputs."""
    return sequences.real[base] & sequences.real[source]
