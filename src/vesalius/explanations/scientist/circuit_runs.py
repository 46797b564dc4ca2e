"""A fast patched forward pass for thousands of tiny rows.

The intervention engine serves any plan on any model; the scientist needs one narrow thing very often: one component's
output replaced at some positions, every row differently, every output read. `CircuitRuns` runs that from the layer of
the component on, out of recorded residual streams. `tests/explanations/test_scientist.py` holds it to the engine.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.scientist.inputs import Pairings, Sequences
from vesalius.model.hooks import Tap
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.model.transformer import Layout, Transformer

_CLEAN = Tap()
#: Positions computed at once; bounds memory at any length.
_POSITIONS_AT_ONCE = 16_000


@dataclass(frozen=True)
class Edit:
    """Replace a component's output (a head's z, an MLP's output) where `where` is True."""

    component: Component
    values: Float[Tensor, "row with_bos width"]
    where: Bool[Tensor, "row with_bos"]


@dataclass(frozen=True)
class RecordedRun:
    """A run and what later runs start from."""

    sequences: Sequences
    layout: Layout
    pre: tuple[Float[Tensor, "row with_bos d_model"], ...]
    written: dict[Component, Float[Tensor, "row with_bos width"]]
    outputs: Tensor


class CircuitRuns:
    """A specimen's model, its inputs as codes, its outputs as codes (or numbers), and a count of rows run."""

    def __init__(self, specimen: Specimen, vocabulary: FiniteVocabulary, components: list[Component]) -> None:
        self.model: Transformer = specimen.model
        self.vocabulary, self.components = vocabulary, components
        self.numeric = vocabulary.outputs is None
        self.rows = 0

    @torch.no_grad()
    def record(self, sequences: Sequences) -> RecordedRun:
        """Run inputs and keep the residual streams and the outputs of the circuit's components."""
        ids = sequences.ids(self.vocabulary)
        layout = self.model.layout(ids)
        resid = self.model.embed(ids, layout, _CLEAN)
        pre, written = [], {}
        for layer, block in enumerate(self.model.blocks):
            pre.append(resid)
            z = block.attn.mix(block.attn.heads(block.ln1(resid, _CLEAN), None, _CLEAN), layout, None, _CLEAN)
            middle = resid + block.attn.out(z, _CLEAN)
            out = block.mlp(block.ln2(middle, _CLEAN), _CLEAN)
            for component in self.components:
                if component.layer == layer:
                    written[component] = out if component.head is None else z[:, :, component.head]
            resid = middle + out
        self.rows += len(ids)
        return RecordedRun(sequences, layout, tuple(pre), written, self.read(resid))

    def read(self, resid: Float[Tensor, "row with_bos d_model"]) -> Tensor:
        """Outputs after BOS: codes, or numbers."""
        logits = self.model.unembed(resid, None, _CLEAN)[:, 1:]
        return logits[..., 0] if self.numeric else logits.argmax(-1)

    @torch.no_grad()
    def patched(
        self, recorded: RecordedRun, rows: Int[Tensor, " n"], edit: Edit, *, keep: tuple[Component, ...] = ()
    ) -> tuple[Tensor, dict[Component, Tensor]]:
        """Outputs of recorded inputs with one component replaced; and what the components in `keep` then write."""
        at_once = max(1, _POSITIONS_AT_ONCE // edit.values.shape[1])
        outputs, kept = [], []
        for part in torch.arange(len(rows)).split(at_once):
            piece = Edit(edit.component, edit.values[part], edit.where[part])
            output, written = self._walk(recorded, rows[part], piece, keep)
            outputs.append(output)
            kept.append(written)
        self.rows += len(rows)
        return torch.cat(outputs), {c: torch.cat([written[c] for written in kept]) for c in keep}

    def _walk(
        self, recorded: RecordedRun, rows: Tensor, edit: Edit, keep: tuple[Component, ...]
    ) -> tuple[Tensor, dict[Component, Tensor]]:
        start, head = edit.component.layer, edit.component.head
        layout, resid, where = recorded.layout.take(rows), recorded.pre[start][rows], edit.where.unsqueeze(-1)
        written: dict[Component, Tensor] = {}
        for layer in range(start, self.model.config.n_layers):
            block = self.model.blocks[layer]
            z = block.attn.mix(block.attn.heads(block.ln1(resid, _CLEAN), None, _CLEAN), layout, None, _CLEAN)
            if layer == start and head is not None:
                z = z.clone(memory_format=torch.contiguous_format)
                z[:, :, head] = torch.where(where, edit.values, z[:, :, head])
            middle = resid + block.attn.out(z, _CLEAN)
            out = block.mlp(block.ln2(middle, _CLEAN), _CLEAN)
            if layer == start and head is None:
                out = torch.where(where, edit.values, out)
            for component in keep:
                if component.layer == layer:
                    written[component] = out if component.head is None else z[:, :, component.head]
            resid = middle + out
        return self.read(resid), written

    def interchange(
        self, recorded: RecordedRun, pairings: Pairings, component: Component, *, keep: tuple[Component, ...] = ()
    ) -> tuple[Tensor, dict[Component, Tensor]]:
        """Outputs of the pairings of one component: its output moves from source to base where both are real."""
        rows = pairings.rows_of(component)
        base, source = pairings.base[rows], pairings.source[rows]
        where = both_real(recorded.sequences, base, source)
        where = torch.cat([where.new_zeros(len(where), 1), where], 1)
        return self.patched(recorded, base, Edit(component, recorded.written[component][source], where), keep=keep)

    @torch.no_grad()
    def attention(self, recorded: RecordedRun, component: Component) -> Float[Tensor, "row query key"]:
        """Where a head attends, tokens only (what goes to BOS is left out)."""
        assert component.head is not None
        block = self.model.blocks[component.layer]
        heads = block.attn.heads(block.ln1(recorded.pre[component.layer], _CLEAN), None, _CLEAN)
        name = f"blocks.{component.layer}.attn.hook_pattern"
        tap = Tap(keep=lambda hook: hook == name)
        block.attn.mix(heads, recorded.layout, None, tap)
        return tap.stored[name][:, component.head, 1:, 1:]


def both_real(sequences: Sequences, base: Tensor, source: Tensor) -> Bool[Tensor, "row pos"]:
    """Positions that are inside both inputs."""
    return sequences.real[base] & sequences.real[source]
