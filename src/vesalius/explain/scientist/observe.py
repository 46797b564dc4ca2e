"""What a component's output does: causal fingerprints.

The output a component wrote at one position of a source run is put into the same position of a few context inputs, and
the model's outputs there are the fingerprint. Two outputs with the same fingerprint mean the same to the model. Three
choices make fingerprints tell much:

1. contexts are chosen among many inputs for how much a one-position exchange changes there, positions balanced;
2. beside natural sources there are sources in which one upstream component alone was exchanged, so that "reads u" can
   be told from "reads the token from which u was computed";
3. outputs are embedded and projected to a few dimensions, which keeps distances, so that hundreds of hypotheses can be
   scored by sums of squares.

A hypothesis gives every observation a value; its score is the share of the fingerprints' variance (within positions)
that the value predicts on rows it was not fitted on. A finer hypothesis cannot win by fitting noise, a coarser one
loses.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.explain.scientist.body import Body, Edit, Recorded
from vesalius.explain.scientist.codes import distinct
from vesalius.explain.scientist.inputs import Pairings, exchange_pairings, join, natural_pairings
from vesalius.model.components import Component

CANDIDATE_CONTEXTS, CHOSEN_CONTEXTS, RANDOM_CONTEXTS = 160, 10, 4
NATURAL_ROWS, EXCHANGED_ROWS = 260, 70
#: Positions observed where inputs are long.
MOST_POSITIONS = 10
#: Widths of the embedding of one output and of a whole fingerprint.
OUTPUT_WIDTH, FINGERPRINT_WIDTH = 16, 64
#: A component is inert when fewer than this share of one-position exchanges in its best contexts change anything.
INERT_SHARE = 0.01
#: Observations of one component, at most: bounds the time on long inputs.
MOST_OBSERVATIONS = 2200
#: Circuits with more components than this share the observations of so many.
MANY_COMPONENTS = 6


@dataclass(frozen=True)
class Observations:
    """Fingerprints of one component, one per (row of `pairings`, position), centred at each position."""

    component: Component
    pairings: Pairings
    row: Int[Tensor, " n"]
    position: Int[Tensor, " n"]
    fingerprint: Float[Tensor, "n width"]
    effect: float

    @property
    def is_inert(self) -> bool:
        """True when no exchange showed an effect."""
        return self.effect < INERT_SHARE

    def score(self, values: Int[Tensor, " n"]) -> float:
        """Share of the held-out fingerprints' variance that these values predict (position is given for free)."""
        _, group = distinct(torch.stack([self.position, values], 1))
        fitted = self.row % 2 == 0
        n_groups = int(group.max()) + 1
        sums = self.fingerprint.new_zeros(n_groups, self.fingerprint.shape[1])
        sums.index_add_(0, group[fitted], self.fingerprint[fitted])
        counts = torch.bincount(group[fitted], minlength=n_groups).clamp(min=1)
        held = ~fitted
        residual = self.fingerprint[held] - (sums / counts[:, None])[group[held]]
        total = float(self.fingerprint[held].square().sum())
        return 0.0 if total <= 0 else 1 - float(residual.square().sum()) / total


def observe(body: Body, pool: Recorded, component: Component, upstream: list[Component], *, seed: int) -> Observations:
    """Fingerprint one component; `upstream` are the live components it might read."""
    generator = torch.Generator().manual_seed(seed)
    contexts, effect = _choose_contexts(body, pool, component, generator)
    pairings = natural_pairings(min(NATURAL_ROWS, len(pool.sequences)))
    written = [pool.written[component][pairings.base]]
    if upstream:
        n = max(20, min(EXCHANGED_ROWS, 240 // len(upstream)))
        exchanged = exchange_pairings(len(pool.sequences), n, upstream, seed=seed)
        for other in upstream:
            written.append(body.interchange(pool, exchanged, other, keep=(component,))[1][component])
        pairings = join(pairings, exchanged)
    acts = torch.cat(written)
    row, position = _observed_places(pool, pairings, len(body.components), generator)
    if effect < INERT_SHARE:
        return Observations(component, pairings, row, position, torch.zeros(len(row), 1), effect)
    if component.layer == body.model.config.n_layers - 1:
        raw = _own_position_fingerprints(body, pool, component, contexts, acts, row, position, generator)
    else:
        raw = _fingerprints(body, pool, component, contexts, acts, row, position, generator)
    return Observations(component, pairings, row, position, _centred(raw, position), effect)


def _observed_places(
    pool: Recorded, pairings: Pairings, n_components: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    real = pool.sequences.real[pairings.base]
    n_positions = real.shape[1]
    if n_positions > MOST_POSITIONS + 2:
        chosen = torch.linspace(0, n_positions - 1, MOST_POSITIONS).long()
        real = real & torch.zeros(n_positions, dtype=torch.bool).index_fill(0, chosen, True)
    row, position = real.nonzero(as_tuple=True)
    most = MOST_OBSERVATIONS * MANY_COMPONENTS // max(MANY_COMPONENTS, n_components)
    if len(row) > most:
        kept = torch.randperm(len(row), generator=generator)[:most].sort().values
        row, position = row[kept], position[kept]
    return row, position


def _one_position(edit_positions: Int[Tensor, " n"], width: int) -> Tensor:
    """Masks that are True at one token position each (BOS stands before position 0)."""
    return torch.arange(width) == edit_positions[:, None] + 1


def _choose_contexts(
    body: Body, pool: Recorded, component: Component, generator: torch.Generator
) -> tuple[Int[Tensor, " context"], float]:
    """Rows of the pool to use as contexts, and the share of exchanges that change something in the best of them."""
    n = min(CANDIDATE_CONTEXTS, len(pool.sequences))
    lengths = pool.sequences.lengths
    real = pool.sequences.real[:n]
    if real.shape[1] > MOST_POSITIONS + 2:
        chosen = torch.linspace(0, real.shape[1] - 1, MOST_POSITIONS).long()
        real = real & torch.zeros(real.shape[1], dtype=torch.bool).index_fill(0, chosen, True)
    context, position = real.nonzero(as_tuple=True)
    source = torch.randint(len(pool.sequences), context.shape, generator=generator)
    longest = int(lengths.argmax())
    source = torch.where(lengths[source] > position, source, longest)
    values = pool.written[component][source]
    outputs, _ = body.patched(pool, context, Edit(component, values, _one_position(position, values.shape[1])))
    change = _changed(body, outputs, pool.outputs[context]) & pool.sequences.real[context]
    scores = torch.zeros(real.shape)
    scores[context, position] = change.float().sum(1)
    covered, picked = torch.zeros(real.shape[1]), []
    for _ in range(min(CHOSEN_CONTEXTS, n)):
        gain = (scores / (1 + covered)).sum(1)
        gain[picked] = -1
        best = int(gain.argmax())
        picked.append(best)
        covered += scores[best]
    effect = float((scores[picked] > 0).float().sum() / real[picked].sum())
    long = (lengths[:n] == lengths[:n].max()).nonzero()[:, 0].tolist()
    extra = [row for row in [*long, *range(n)] if row not in picked][:RANDOM_CONTEXTS]
    return torch.tensor(picked + extra), effect


def _changed(body: Body, outputs: Tensor, clean: Tensor) -> Tensor:
    return (outputs - clean).abs() > 0.02 if body.numeric else outputs != clean


def _embedding(body: Body, generator: torch.Generator) -> Tensor | None:
    """Random unit codes for the outputs; None for numbers, which stand for themselves."""
    if body.numeric:
        return None
    assert body.vocabulary.outputs is not None
    codes = torch.randn((len(body.vocabulary.outputs), OUTPUT_WIDTH), generator=generator)
    return codes / codes.norm(dim=1, keepdim=True)


def _embed(outputs: Tensor, embedding: Tensor | None) -> Tensor:
    return outputs.unsqueeze(-1) if embedding is None else embedding[outputs]


def _fingerprints(
    body: Body,
    pool: Recorded,
    component: Component,
    contexts: Tensor,
    acts: Tensor,
    row: Tensor,
    position: Tensor,
    generator: torch.Generator,
) -> Float[Tensor, "n width"]:
    """One position exchanged at a time, outputs read everywhere."""
    embedding = _embedding(body, generator)
    width = 1 if embedding is None else OUTPUT_WIDTH
    n_positions = pool.outputs.shape[1]
    lengths = pool.sequences.lengths
    result = torch.zeros(len(row), FINGERPRINT_WIDTH)
    for context in contexts.tolist():
        mixing = torch.randn((n_positions * width, FINGERPRINT_WIDTH), generator=generator) / FINGERPRINT_WIDTH**0.5
        fits = (position < lengths[context]).nonzero()[:, 0]
        values = acts[row[fits]]
        edit = Edit(component, values, _one_position(position[fits], values.shape[1]))
        outputs, _ = body.patched(pool, torch.full((len(fits),), context), edit)
        embedded = _embed(outputs, embedding) * pool.sequences.real[context][None, :, None]
        result[fits] += embedded.flatten(1) @ mixing
    return result


def _own_position_fingerprints(
    body: Body,
    pool: Recorded,
    component: Component,
    contexts: Tensor,
    acts: Tensor,
    row: Tensor,
    position: Tensor,
    generator: torch.Generator,
) -> Float[Tensor, "n width"]:
    """In the last layer a position's exchange shows at that position only, so all are exchanged in one run."""
    embedding = _embedding(body, generator)
    width = 1 if embedding is None else OUTPUT_WIDTH
    lengths = pool.sequences.lengths
    result = torch.zeros(len(row), FINGERPRINT_WIDTH)
    everywhere = torch.ones(acts.shape[:2], dtype=torch.bool)
    everywhere[:, 0] = False
    for context in contexts.tolist():
        mixing = torch.randn((width, FINGERPRINT_WIDTH), generator=generator) / FINGERPRINT_WIDTH**0.5
        outputs, _ = body.patched(pool, torch.full((len(acts),), context), Edit(component, acts, everywhere))
        embedded = _embed(outputs[row, position], embedding) * (position < lengths[context])[:, None]
        result += embedded @ mixing
    return result


def _centred(raw: Tensor, position: Tensor) -> Tensor:
    """Fingerprints less their mean at the same position; positions that hardly vary are silenced as noise."""
    _, group = position.unique(return_inverse=True)
    counts = torch.bincount(group).clamp(min=1)[:, None]
    means = raw.new_zeros(len(counts), raw.shape[1]).index_add_(0, group, raw) / counts
    centred = raw - means[group]
    spread = raw.new_zeros(len(counts)).index_add_(0, group, centred.square().sum(1)) / counts[:, 0]
    return torch.where((spread > 0.08 * spread.max())[group][:, None], centred, 0.0)
