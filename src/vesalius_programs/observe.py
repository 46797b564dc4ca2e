"""What a component's output does: causal fingerprints.

1. A context is an input and a background. The probed value stands at one position of the input; at the other positions
   stands what the component wrote there itself, or (for readers that saturate: "any of", "at least") what it wrote in
   the background input. Contexts are chosen among many for how much a one-position exchange changes there, positions
   balanced. Outputs are embedded and projected to a few dimensions, which keeps distances, so that hundreds of
   hypotheses can be scored by sums of squares.
2. The output a component wrote at one position of a source run is put into the same position of the contexts, and the
   model's outputs there are the fingerprint. Two outputs with the same fingerprint mean the same to the model. Beside
   natural sources there are sources in which one upstream component alone was exchanged, so that "reads u" can be told
   from "reads the token from which u was computed".
3. A hypothesis gives every observation a value; its score is the share of the fingerprints' variance (within positions)
   that the value predicts on rows it was not fitted on. A finer hypothesis cannot win by fitting noise, a coarser one
   loses.
4. A value that is the same at every position, as what follows from the length, is one that the model never met at one
   position alone, and a reader may compare it there with here. Where the exchanges of such a component are badly
   predicted, its values are put in at all positions together (`at_all_positions`).
5. Tables are read off observations, so an argument that random inputs almost never give stays unknown. The program
   computed so far tells, without running the model, which of many candidate runs give rare arguments; those are run
   (`observe_rare_arguments`).
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from vesalius.components import Component
from vesalius_programs.program import CircuitProgram
from vesalius_programs.runs import (
    CircuitRuns,
    Edit,
    Pairings,
    RecordedRun,
    both_real,
    distinct,
    exchange_pairings,
    join,
    natural_pairings,
    numbered,
)

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


class Written(NamedTuple):
    """What a component wrote in some rows, and where these have a token."""

    acts: Float[Tensor, "row with_bos width"]
    real: Bool[Tensor, "row pos"]

    def up_to(self, lengths: Int[Tensor, " row"]) -> "Written":
        """The same on rows of these lengths; what is missing at the end is what was written last."""
        places = torch.arange(self.acts.shape[1])
        filled = places.minimum(self.real.sum(1, keepdim=True))[..., None].expand(-1, -1, self.acts.shape[2])
        return Written(self.acts.gather(1, filled), places[:-1] < lengths[:, None])


@dataclass(frozen=True)
class Probe:
    """The contexts of one component and the seed of the projection: enough to fingerprint any further value of it.
    `whole`: what was written at all positions of a row is put in together.
    """

    component: Component
    contexts: Contexts
    seed: int
    whole: bool = False

    def fingerprints(
        self,
        runs: CircuitRuns,
        pool: RecordedRun,
        written: "Written",
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
            outputs, kept = read(runs, pool, written, row[fits], position[fits], context)
            embedded = (outputs.unsqueeze(-1) if embedding is None else embedding[outputs]) * kept[..., None]
            result[fits] += embedded.flatten(1) @ mixing
        return result

    def _everywhere(
        self, runs: CircuitRuns, pool: RecordedRun, written: "Written", row: Tensor, position: Tensor, context: int
    ) -> tuple[Tensor, Tensor]:
        """One position exchanged at a time (or all of them), outputs read everywhere."""
        base = self.contexts.base[context].expand(len(row))
        alone = self.contexts.take(torch.tensor([context]))
        edit = one_position_edit(pool, self.component, alone, written.acts[row], position)
        if self.whole:
            both = written.real[row] & pool.sequences.real[base]
            edit = replace(edit, where=torch.cat([both.new_zeros(len(both), 1), both], 1))
        outputs, _ = runs.patched(pool, base, edit)
        return outputs, pool.sequences.real[base]

    def _own_position(
        self, runs: CircuitRuns, pool: RecordedRun, written: "Written", row: Tensor, position: Tensor, context: int
    ) -> tuple[Tensor, Tensor]:
        """In the last layer a position's exchange shows at that position only, so all are exchanged in one run."""
        rows, member = row.unique(return_inverse=True)
        everywhere = torch.ones((len(rows), written.acts.shape[1]), dtype=torch.bool)
        everywhere[:, 0] = False
        base = self.contexts.base[context].expand(len(rows))
        outputs, _ = runs.patched(pool, base, Edit(self.component, written.acts[rows], everywhere))
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

    def answers(rows: Tensor, some: Contexts, place: Tensor) -> Tensor:
        edit = one_position_edit(pool, component, some, outputs[rows], place)
        return runs.patched(pool, some.base, edit)[0]

    theirs, own = answers(source, contexts, position), pool.outputs[contexts.base]
    # With nothing behind, the own value in its own place is the run as it is.
    behind = (contexts.base != contexts.background).nonzero()[:, 0]
    if len(behind):
        some = contexts.take(behind)
        own = own.index_copy(0, behind, answers(some.base, some, position[behind]))
    changed = (theirs - own).abs() > 0.02 if runs.numeric else theirs != own
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


NATURAL_ROWS, EXCHANGED_ROWS = 260, 70
#: A component is inert when fewer than this share of one-position exchanges in its best contexts change anything.
INERT_SHARE = 0.01
#: Observations of one component, at most: bounds the time on long inputs.
MOST_OBSERVATIONS = 2200
#: Circuits with more components than this share the observations of so many.
MANY_COMPONENTS = 6
#: Positions whose fingerprints vary less than this share of the most are silenced as noise.
NOISE_SHARE = 0.08
#: Positions are silent below this share of the most; where outputs are numbers a small share is still a small effect.
SILENT_SHARE, SILENT_NUMBERS = 0.02, 1e-4


class _Half(NamedTuple):
    """Some of the observations."""

    rows: Int[Tensor, " m"]
    fingerprint: Float[Tensor, "m width"]


@dataclass(frozen=True)
class Observations:
    """Fingerprints of one component, one per (row of `pairings`, position); `raw` as measured."""

    probe: Probe
    pairings: Pairings
    row: Int[Tensor, " n"]
    position: Int[Tensor, " n"]
    raw: Float[Tensor, "n width"]
    effect: float
    fingerprint: Float[Tensor, "n width"] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", _centred(self.raw, self.position))

    @property
    def component(self) -> Component:
        """Whose fingerprints these are."""
        return self.probe.component

    @property
    def is_inert(self) -> bool:
        """True when no exchange showed an effect."""
        return self.effect < INERT_SHARE

    def groups(self, values: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Numbers for observations at the same position with the same value."""
        low, high = values.aminmax()
        return numbered(self.position * (high - low + 1) + (values - low))[1]

    @cached_property
    def _halves(self) -> "tuple[_Half, _Half]":
        """What a score is fitted on, and what it is held against."""
        rows = ((self.row % 2 == half).nonzero().squeeze(1) for half in (0, 1))
        fitted, held = (_Half(chosen, self.fingerprint[chosen]) for chosen in rows)
        return fitted, held

    @cached_property
    def _held_out_variance(self) -> float:
        return float(self._halves[1].fingerprint.square().sum())

    def score(self, groups: Int[Tensor, " n"]) -> float:
        """Share of the held-out fingerprints' variance that the means of `groups` predict; position is given for
        free.
        """
        if self._held_out_variance <= 0:
            return 0.0
        fitted, held = self._halves
        n_groups, known = int(groups.max()) + 1, groups[fitted.rows]
        sums = self.fingerprint.new_zeros(n_groups, self.fingerprint.shape[1]).index_add_(0, known, fitted.fingerprint)
        counts = torch.bincount(known, minlength=n_groups).clamp(min=1)
        residual = held.fingerprint - (sums / counts[:, None])[groups[held.rows]]
        return 1 - float(residual.square().sum()) / self._held_out_variance

    def values(self, codes: Int[Tensor, "row pos"]) -> Int[Tensor, " n"]:
        """What a variable is at the places observed."""
        return codes[self.row, self.position]

    def silent_positions(self, *, numeric: bool) -> Int[Tensor, " m"]:
        """Positions at which it makes no difference what the component wrote."""
        places, _, spread = _spread(self.raw, self.position)
        return places[spread <= (SILENT_NUMBERS if numeric else SILENT_SHARE) * spread.max()]

    def at_all_positions(self, runs: CircuitRuns, pool: RecordedRun) -> "Observations":
        """Once a row, what the component wrote at all its positions put in together, up to the length that the
        value came with; without the rows that hold values of two inputs.
        """
        lengths, base = pool.sequences.lengths, self.probe.contexts.base
        covered = (self.pairings.source < 0) | (lengths[self.pairings.source] >= lengths[self.pairings.base])
        row = covered.nonzero()[:, 0]
        probe = replace(self.probe, contexts=Contexts(base, base), whole=True)
        raw = _raw(runs, pool, probe, self.pairings, row, torch.zeros_like(row))
        return Observations(probe, self.pairings, row, torch.zeros_like(row), raw, self.effect)

    def with_more(
        self,
        runs: CircuitRuns,
        pool: RecordedRun,
        pairings: Pairings,
        row: Int[Tensor, " m"],
        position: Int[Tensor, " m"],
    ) -> "Observations":
        """These and the fingerprints of further places, given as rows of further `pairings`."""
        raw = _raw(runs, pool, self.probe, pairings, row, position)
        return Observations(
            self.probe,
            join(self.pairings, pairings),
            torch.cat([self.row, row + len(self.pairings)]),
            torch.cat([self.position, position]),
            torch.cat([self.raw, raw]),
            self.effect,
        )


def observe(
    runs: CircuitRuns, pool: RecordedRun, component: Component, upstream: list[Component], *, seed: int
) -> Observations:
    """Fingerprint one component; `upstream` are the live components it might read."""
    generator = torch.Generator().manual_seed(seed)
    contexts, effect = choose_contexts(runs, pool, component, generator)
    probe = Probe(component, contexts, seed)
    pairings = natural_pairings(min(NATURAL_ROWS, len(pool.sequences)))
    if upstream:
        n = max(20, min(EXCHANGED_ROWS, 240 // len(upstream)))
        pairings = join(pairings, exchange_pairings(len(pool.sequences), n, upstream, seed=seed))
    row, position = _observed_places(pool, pairings, len(runs.components), generator)
    inert = effect < INERT_SHARE
    raw = torch.zeros(len(row), 1) if inert else _raw(runs, pool, probe, pairings, row, position)
    return Observations(probe, pairings, row, position, raw, effect)


def _raw(
    runs: CircuitRuns, pool: RecordedRun, probe: Probe, pairings: Pairings, row: Tensor, position: Tensor
) -> Tensor:
    """Fingerprints of what the component wrote in the rows of `pairings`, natural or with another one exchanged."""
    written = _written(runs, pool, probe.component, pairings)
    if probe.whole:
        origin = torch.where(pairings.source < 0, pairings.base, pairings.source)
        written = written.up_to(pool.sequences.lengths[origin])
    return probe.fingerprints(runs, pool, written, row, position)


def _written(runs: CircuitRuns, pool: RecordedRun, component: Component, pairings: Pairings) -> Written:
    acts = pool.component_outputs[component][pairings.base]
    for other in dict.fromkeys(moved for moved in pairings.moved if moved is not None):
        _, kept = runs.interchange(pool, pairings, other, keep=(component,))
        acts[pairings.rows_of(other)] = kept[component]
    return Written(acts, pool.sequences.real[pairings.base])


def _observed_places(
    pool: RecordedRun, pairings: Pairings, n_components: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    row, position = observed_positions(pool.sequences.real[pairings.base]).nonzero(as_tuple=True)
    most = MOST_OBSERVATIONS * MANY_COMPONENTS // max(MANY_COMPONENTS, n_components)
    if len(row) > most:
        kept = torch.randperm(len(row), generator=generator)[:most].sort().values
        row, position = row[kept], position[kept]
    return row, position


def _centred(raw: Tensor, position: Tensor) -> Tensor:
    """Fingerprints less their mean at the same position; positions that hardly vary are silenced as noise."""
    _, centred, spread = _spread(raw, position)
    group = position.unique(return_inverse=True)[1]
    return torch.where((spread > NOISE_SHARE * spread.max())[group][:, None], centred, 0.0)


def _spread(raw: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The positions, the fingerprints less their mean at the same position, and their variance at each position."""
    places, group = position.unique(return_inverse=True)
    counts = torch.bincount(group).clamp(min=1)[:, None]
    means = raw.new_zeros(len(counts), raw.shape[1]).index_add_(0, group, raw) / counts
    centred = raw - means[group]
    spread = raw.new_zeros(len(counts)).index_add_(0, group, centred.square().sum(1)) / counts[:, 0]
    return places, centred, spread


#: An argument seen this often needs no more observations.
ENOUGH = 4
#: Places observed on top, at most, and candidate exchanges of each upstream component.
MOST_ADDED, CANDIDATES = 500, 300


def observe_rare_arguments(
    runs: CircuitRuns,
    pool: RecordedRun,
    program: CircuitProgram,
    observations: Observations,
    reads: tuple[str, ...],
    *,
    seed: int,
) -> Observations:
    """The observations with those places added at which the variables `reads` have values seldom seen so far."""
    if observations.probe.whole:
        return observations
    upstream = [component for component in program.variables if str(component) in reads]
    candidates = candidate_pairings(len(pool.sequences), upstream, CANDIDATES, seed=seed)
    env = program.exchanged(pool.sequences, candidates)
    row, position = _shuffled_places(env.real, seed)
    arguments = torch.stack([env[name][row, position] for name in reads], -1)
    seen_env = program.exchanged(pool.sequences, observations.pairings)
    seen = torch.stack([seen_env[name][observations.row, observations.position] for name in reads], -1)
    chosen = rare(arguments, seen, enough=ENOUGH)[:MOST_ADDED]
    if not len(chosen):
        return observations
    return observations.with_more(runs, pool, *_only_rows(candidates, row[chosen], position[chosen]))


def candidate_pairings(n_inputs: int, components: list[Component], n: int, *, seed: int) -> Pairings:
    """Every input as it is, and `n` exchanges of each component."""
    natural = natural_pairings(n_inputs)
    return join(natural, exchange_pairings(n_inputs, n, components, seed=seed)) if components else natural


def rare(candidates: Int[Tensor, "n argument"], seen: Int[Tensor, "m argument"], *, enough: int) -> Int[Tensor, " k"]:
    """Which candidates to take, in order, so that every value among them is there `enough` times, `seen` included."""
    _, group = distinct(torch.cat([seen, candidates]))
    n_groups = int(group.max()) + 1
    already = torch.bincount(group[: len(seen)], minlength=n_groups)
    group = group[len(seen) :]
    order = group.argsort(stable=True)
    starts = torch.bincount(group, minlength=n_groups).cumsum(0).roll(1)
    starts[0] = 0
    place_in_group = torch.empty_like(group)
    place_in_group[order] = torch.arange(len(group)) - starts[group[order]]
    return (place_in_group + already[group] < enough).nonzero()[:, 0]


def _shuffled_places(real: Bool[Tensor, "row pos"], seed: int) -> tuple[Tensor, Tensor]:
    row, position = real.nonzero(as_tuple=True)
    order = torch.randperm(len(row), generator=torch.Generator().manual_seed(seed))
    return row[order], position[order]


def _only_rows(
    pairings: Pairings, row: Int[Tensor, " n"], position: Int[Tensor, " n"]
) -> tuple[Pairings, Int[Tensor, " n"], Int[Tensor, " n"]]:
    """The pairings that are used, and the places with rows numbered among them."""
    used, member = row.unique(return_inverse=True)
    return pairings.take(used), member, position
