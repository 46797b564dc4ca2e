"""What a component's output does: causal fingerprints.

The output a component wrote at one position of a source run is put into the same position of a few context inputs, and
the model's outputs there are the fingerprint (see `probe`). Two outputs with the same fingerprint mean the same to the
model. Beside natural sources there are sources in which one upstream component alone was exchanged, so that "reads u"
can be told from "reads the token from which u was computed". More values can be observed later, with the same probe.

A hypothesis gives every observation a value; its score is the share of the fingerprints' variance (within positions)
that the value predicts on rows it was not fitted on. A finer hypothesis cannot win by fitting noise, a coarser one
loses.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.scientist.circuit_runs import CircuitRuns, RecordedRun
from vesalius.explanations.scientist.codes import distinct
from vesalius.explanations.scientist.inputs import Pairings, exchange_pairings, join, natural_pairings
from vesalius.explanations.scientist.probe import Probe, choose_contexts, observed_positions

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

    def values(self, codes: Int[Tensor, "row pos"]) -> Int[Tensor, " n"]:
        """What a variable is at the places observed."""
        return codes[self.row, self.position]

    def silent_positions(self, *, numeric: bool) -> Int[Tensor, " m"]:
        """Positions at which it makes no difference what the component wrote."""
        places, _, spread = _spread(self.raw, self.position)
        return places[spread <= (SILENT_NUMBERS if numeric else SILENT_SHARE) * spread.max()]

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
    return probe.fingerprints(runs, pool, _written(runs, pool, probe.component, pairings), row, position)


def _written(runs: CircuitRuns, pool: RecordedRun, component: Component, pairings: Pairings) -> Tensor:
    acts = pool.component_outputs[component][pairings.base]
    for other in dict.fromkeys(moved for moved in pairings.moved if moved is not None):
        _, kept = runs.interchange(pool, pairings, other, keep=(component,))
        acts[pairings.rows_of(other)] = kept[component]
    return acts


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
