"""The prompts that attention programs are fitted to and graded on, and what heads do on them.

Four kinds: plain text, random tokens that are repeated, the behaviour's own prompts, and their counterfactuals. Fitted
to text alone, an induction head is "BOS"; fitted to the behaviour alone, a rule may be a place of its template. Each
kind counts the same. Text and random tokens that grade are others than those that were fitted to. Random tokens come
again at another distance in every row: at one distance for all, position alone would say where the copy is.

Of a behaviour's prompts most queries are words of the template, and a head may matter at one. A third of the weight is
therefore even over all queries, a third goes to the query whose answer is read, and a third to queries in proportion to
how far the head's attention differs on the counterfactual prompt.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.discovery.head_tests import bos_of, ordinary_tokens, repeated_tokens
from vesalius.errors import BadInput
from vesalius.explanations.atlas.text import passages
from vesalius.explanations.running.rules import Tokens
from vesalius.intervene import Batch
from vesalius.intervene.patterns import own_patterns, patterns_of_runs
from vesalius.intervene.recordings import Recordings
from vesalius.model.specimen import Specimen

TEXT, RANDOM, OWN, COUNTERFACTUAL = "text", "repeated random tokens", "own prompts", "counterfactual prompts"
#: Rows of repeated random tokens, and the seeds of those that are fitted to and that grade.
RANDOM_ROWS, FIT_SEED, GRADE_SEED = 6, 11_000_003, 12_000_017
Patterns = Mapping[Component, Float[Tensor, "prompt query key"]]


@dataclass(frozen=True)
class Sample:
    """One kind of prompts: what rules see of them, the patterns of heads, and of a behaviour's prompts those on the
    counterfactuals (of these, on the prompts) with their tokens, and the query that is read.
    """

    kind: str
    tokens: Tokens
    patterns: Patterns
    partner: Patterns | None = None
    other: Tokens | None = None
    read: Float[Tensor, "prompt query"] | None = None

    def weights(self, head: Component) -> Float[Tensor, "prompt query"]:
        """How much each query counts for a head; 1 in sum."""
        even = _normalised(self.tokens.queries.float())
        if self.partner is None or self.read is None:
            return even
        change = (self.patterns[head] - self.partner[head]).abs().sum(-1) / 2 * self.tokens.queries
        return (even + _normalised(self.read * self.tokens.queries) + _normalised(change, otherwise=even)) / 3

    def moved(self, head: Component) -> Float[Tensor, "prompt query key"] | None:
        """What the counterfactual prompt changes of a head's attention."""
        return None if self.partner is None else self.patterns[head] - self.partner[head]


def samples(
    specimen: Specimen,
    heads: Sequence[Component],
    own: Trial | None,
    *,
    grading: bool,
    cost: Callable[[float], None],
    runs: Recordings | None = None,
) -> list[Sample]:
    """The prompts for fitting, or for `grading`, run once each; `cost` is told how many were run. `runs` are those of
    the behaviour's prompts, where they were made already.
    """
    model, first = specimen.model, len(bos_of(specimen))
    batches: dict[str, Batch] = {}
    if (text := passages(specimen)) is not None:
        batches[TEXT] = text.batch.take(torch.arange(int(grading), len(text.batch.tokens), 2))
    with suppress(BadInput):  # too short a context, or too few tokens, to repeat any
        batches[RANDOM] = repeated_anywhere(specimen, grading=grading)
    found = []
    for kind, batch in batches.items():
        found.append(Sample(kind, Tokens.of(specimen, batch, first), own_patterns(model, batch, heads)))
        cost(len(batch))
    return found if own is None else [*found, *behaviour_samples(specimen, heads, own, cost=cost, runs=runs)]


def repeated_anywhere(specimen: Specimen, *, grading: bool) -> Batch:
    """Rows of random tokens that begin again, each after another number of tokens; rows that grade have numbers that
    none has that was fitted to.
    """
    prefix, ordinary = bos_of(specimen), ordinary_tokens(specimen)
    width = repeated_tokens(specimen, rows=1).batch.tokens.shape[1] - len(prefix)  # refuses too short a context
    step = max(2, width * 3 // 8 // RANDOM_ROWS)
    rng, rows = random.Random(GRADE_SEED if grading else FIT_SEED), []
    for row in range(RANDOM_ROWS):
        distance = min(width // 2 + row * step + step // 2 * grading, width - 2, len(ordinary))
        tokens = rng.sample(ordinary, distance)
        rows.append([*prefix, *tokens, *tokens, *tokens][: len(prefix) + width])
    return Batch(torch.tensor(rows))


def behaviour_samples(
    specimen: Specimen,
    heads: Sequence[Component],
    own: Trial,
    *,
    cost: Callable[[float], None],
    runs: Recordings | None = None,
) -> list[Sample]:
    """A behaviour's prompts and their counterfactuals; `runs` of the prompts that were made already are read."""
    model, first = specimen.model, len(bos_of(specimen))
    if runs is None:
        clean, passes = own_patterns(model, own.batch, heads), float(len(own.batch))
    else:
        clean, passes = patterns_of_runs(runs, heads)
    other = own_patterns(model, own.counterfactual, heads)
    cost(passes + len(own.batch))
    read = torch.zeros(own.batch.tokens.shape)
    if own.readout.at is not None:
        read.scatter_(1, own.readout.at[:, :1].cpu(), 1.0)
    tokens, others = (Tokens.of(specimen, batch, first) for batch in (own.batch, own.counterfactual))
    return [Sample(OWN, tokens, clean, other, others, read), Sample(COUNTERFACTUAL, others, other, clean, tokens, read)]


def _normalised(weights: Tensor, otherwise: Tensor | None = None) -> Tensor:
    total = float(weights.sum())
    if total <= 1e-6:
        return torch.zeros_like(weights) if otherwise is None else otherwise
    return weights / total
