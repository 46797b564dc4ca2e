"""How one component is probed: in which contexts its output is put, and what is kept of the model's answers.

A context is an input and a background. The probed value stands at one position of the input; at the other positions
stands what the component wrote there itself, or (for readers that saturate: "any of", "at least") what it wrote in the
background input. Contexts are chosen among many for how much a one-position exchange changes there, positions
balanced. Outputs are embedded and projected to a few dimensions, which keeps distances, so that hundreds of
hypotheses can be scored by sums of squares.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from vesalius.components import Component
from vesalius.explanations.scientist.circuit_runs import CircuitRuns, Edit, RecordedRun, both_real

CANDIDATE_CONTEXTS, CHOSEN_CONTEXTS, RANDOM_CONTEXTS = 160, 10, 4
#: Positions observed where inputs are long.
MOST_POSITIONS = 10
#: Widths of the embedding of one output and of a whole fingerprint.
OUTPUT_WIDTH, FINGERPRINT_WIDTH = 16, 64


@dataclass(frozen=True)
class Contexts:
    """Rows of the pool: where values are put, and which run fills the other positions (the row itself: nothing)."""

    base: Int[Tensor, " context"]
    background: Int[Tensor, " context"]

    def take(self, chosen: Int[Tensor, " n"]) -> "Contexts":
        """Some of the contexts."""
        return Contexts(self.base[chosen], self.background[chosen])


@dataclass(frozen=True)
class Probe:
    """The contexts of one component and the seed of the projection: enough to fingerprint any further value of it."""

    component: Component
    contexts: Contexts
    seed: int

    def fingerprints(
        self,
        runs: CircuitRuns,
        pool: RecordedRun,
        acts: Float[Tensor, "row with_bos width"],
        row: Int[Tensor, " n"],
        position: Int[Tensor, " n"],
    ) -> Float[Tensor, "n width"]:
        """What the model answers to the value of each row at each position, over all contexts."""
        generator = torch.Generator().manual_seed(self.seed)
        embedding = _embedding(runs, generator)
        last = self.component.layer == runs.model.config.n_layers - 1
        read = self._own_position if last else self._everywhere
        result = torch.zeros(len(row), FINGERPRINT_WIDTH)
        for context in range(len(self.contexts.base)):
            n_read = 1 if last else pool.outputs.shape[1]
            width = n_read * (1 if embedding is None else OUTPUT_WIDTH)
            mixing = torch.randn((width, FINGERPRINT_WIDTH), generator=generator) / FINGERPRINT_WIDTH**0.5
            base = int(self.contexts.base[context])
            fits = (position < pool.sequences.lengths[base]).nonzero()[:, 0]
            if not len(fits):
                continue
            outputs, kept = read(runs, pool, acts, row[fits], position[fits], context)
            embedded = (outputs.unsqueeze(-1) if embedding is None else embedding[outputs]) * kept[..., None]
            result[fits] += embedded.flatten(1) @ mixing
        return result

    def _everywhere(
        self, runs: CircuitRuns, pool: RecordedRun, acts: Tensor, row: Tensor, position: Tensor, context: int
    ) -> tuple[Tensor, Tensor]:
        """One position exchanged at a time, outputs read everywhere."""
        base = self.contexts.base[context].expand(len(row))
        edit = one_position_edit(pool, self.component, self.contexts.take(torch.tensor([context])), acts[row], position)
        outputs, _ = runs.patched(pool, base, edit)
        return outputs, pool.sequences.real[base]

    def _own_position(
        self, runs: CircuitRuns, pool: RecordedRun, acts: Tensor, row: Tensor, position: Tensor, context: int
    ) -> tuple[Tensor, Tensor]:
        """In the last layer a position's exchange shows at that position only, so all are exchanged in one run."""
        rows, member = row.unique(return_inverse=True)
        everywhere = torch.ones((len(rows), acts.shape[1]), dtype=torch.bool)
        everywhere[:, 0] = False
        base = self.contexts.base[context].expand(len(rows))
        outputs, _ = runs.patched(pool, base, Edit(self.component, acts[rows], everywhere))
        return outputs[member, position][:, None], torch.ones(len(row), 1)


def one_position_edit(
    pool: RecordedRun, component: Component, contexts: Contexts, acts: Tensor, position: Int[Tensor, " n"]
) -> Edit:
    """The values of `acts` at one position each, the background elsewhere (BOS stands before position 0)."""
    here = torch.arange(acts.shape[1]) == position[:, None] + 1
    if bool((contexts.base == contexts.background).all()):
        return Edit(component, acts, here)
    elsewhere = both_real(pool.sequences, contexts.base, contexts.background)
    elsewhere = torch.cat([elsewhere.new_zeros(len(elsewhere), 1), elsewhere], 1)
    behind = pool.component_outputs[component][contexts.background]
    return Edit(component, torch.where(here[..., None], acts, behind), here | elsewhere)


def choose_contexts(
    runs: CircuitRuns, pool: RecordedRun, component: Component, generator: Generator
) -> tuple[Contexts, float]:
    """Contexts in which the component matters, and the share of exchanges that change something in the best of them."""
    candidates = _candidates(runs, pool, component, generator)
    n = len(candidates.base)
    real = observed_positions(pool.sequences.real[candidates.base])
    context, position = real.nonzero(as_tuple=True)
    source = torch.randint(len(pool.sequences), context.shape, generator=generator)
    lengths = pool.sequences.lengths
    source = torch.where(lengths[source] > position, source, int(lengths.argmax()))
    scores = torch.zeros(real.shape)
    scores[context, position] = _changes(runs, pool, component, candidates.take(context), source, position)
    covered, picked = torch.zeros(real.shape[1]), []
    for _ in range(min(CHOSEN_CONTEXTS, n)):
        gain = (scores / (1 + covered)).sum(1)
        gain[picked] = -1
        best = int(gain.argmax())
        picked.append(best)
        covered += scores[best]
    effect = float((scores[picked] > 0).float().sum() / real[picked].sum())
    plain = (candidates.base == candidates.background).nonzero()[:, 0]
    longest = lengths[candidates.base[plain]].argsort(descending=True, stable=True)
    extra = [row for row in plain[longest].tolist() if row not in picked][:RANDOM_CONTEXTS]
    return candidates.take(torch.tensor(picked + extra)), effect


def _candidates(runs: CircuitRuns, pool: RecordedRun, component: Component, generator: Generator) -> Contexts:
    """Inputs as they are, and, unless in the last layer, as many with another input behind."""
    base = torch.arange(min(CANDIDATE_CONTEXTS, len(pool.sequences)))
    if component.layer == runs.model.config.n_layers - 1:
        return Contexts(base, base)
    behind = torch.randint(len(pool.sequences), base.shape, generator=generator)
    return Contexts(torch.cat([base, base]), torch.cat([base, behind]))


def _changes(
    runs: CircuitRuns, pool: RecordedRun, component: Component, contexts: Contexts, source: Tensor, position: Tensor
) -> Float[Tensor, " n"]:
    """How many outputs differ between the source's value and the own value at one position, the rest being equal."""
    outputs = pool.component_outputs[component]
    answers = [
        runs.patched(pool, contexts.base, one_position_edit(pool, component, contexts, outputs[rows], position))[0]
        for rows in (source, contexts.base)
    ]
    changed = (answers[0] - answers[1]).abs() > 0.02 if runs.numeric else answers[0] != answers[1]
    return (changed & pool.sequences.real[contexts.base]).float().sum(1)


def observed_positions(real: Bool[Tensor, "row pos"]) -> Bool[Tensor, "row pos"]:
    """Positions inside each input; a few, evenly spread, where inputs are long."""
    n = real.shape[1]
    if n <= MOST_POSITIONS + 2:
        return real
    chosen = torch.linspace(0, n - 1, MOST_POSITIONS).long()
    return real & torch.zeros(n, dtype=torch.bool).index_fill(0, chosen, True)


def _embedding(runs: CircuitRuns, generator: Generator) -> Tensor | None:
    """Random unit codes for the outputs; None for numbers, which stand for themselves."""
    if runs.numeric:
        return None
    assert runs.vocabulary.outputs is not None
    codes = torch.randn((len(runs.vocabulary.outputs), OUTPUT_WIDTH), generator=generator)
    return codes / codes.norm(dim=1, keepdim=True)
