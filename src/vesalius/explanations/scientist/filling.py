"""Active observation: the program says which inputs and exchanges reach what was hardly ever seen, and those are run.

Tables are read off observations, so an argument that random inputs almost never give stays unknown. The program
computed so far tells, without running the model, which of many candidate runs give rare arguments.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.scientist.assemble import CircuitProgram
from vesalius.explanations.scientist.circuit_runs import CircuitRuns, RecordedRun
from vesalius.explanations.scientist.codes import distinct
from vesalius.explanations.scientist.inputs import Pairings, exchange_pairings, join, natural_pairings
from vesalius.explanations.scientist.observe import Observations

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
