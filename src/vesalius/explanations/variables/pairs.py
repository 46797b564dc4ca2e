"""Pairs with what the algorithm predicts of them, and how the outputs of a place are graded.

Only pairs whose base and source the model answers as the algorithm says are used; the share of bases that it does is
the algorithm's `agreement`. Of a variable, a pair

- *changes* where the model's answer on the base is not the predicted one: a place that carries the variable moves the
  output to what is predicted;
- *stays* where the answer on the base is the predicted one, while the source is answered in another way or another
  variable differs: a place that carries the variable and nothing else leaves the output alone.

A place is graded kind by kind. Its accuracy is that of the worst kind of pairs that change, so that a kind in which
rivals agree cannot hide one in which they do not.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.explanations.variables.algorithms import Runner
from vesalius.explanations.variables.sides import Case, Side, TokenOf
from vesalius.intervene.exchanging import NOTHING, Exchange, Sides
from vesalius.model.transformer import Transformer

CHANGES, STAYS = "changes", "stays"
#: A kind with fewer pairs than this says nothing of a variable.
LEAST_PAIRS = 4

#: Which of the outputs are as predicted, by kind: how many, of how many.
Counts = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Graded:
    """A variable at a place: hits of the pairs that change and of those that stay, by kind."""

    changes: Counts
    stays: Counts

    @property
    def accuracy(self) -> Metric:
        """The share of the worst kind of pairs that change."""
        return worst(self.changes)

    @property
    def kept(self) -> Metric:
        """The share of the worst kind of pairs that stay."""
        return worst(self.stays)

    @property
    def score(self) -> float:
        """What places are ranked by: the smaller of both shares."""
        shares = [metric.value for metric in (self.accuracy, self.kept) if metric.value is not None]
        return 0.0 if self.accuracy.value is None else min(shares)


def worst(counts: Counts) -> Metric:
    """The smallest share among the kinds that have enough pairs; of equal ones that of fewest pairs."""
    known = [(hits / n, n, hits) for hits, n in counts.values() if n >= LEAST_PAIRS]
    if not known:
        return Metric.of_share(0, 0)
    _, n, hits = min(known)
    return Metric.of_share(hits, n)


@dataclass(frozen=True)
class Pairs:
    """Rows that are ready to be exchanged, with an algorithm's predictions: `wanted[v][i]` are the tokens that are
    right in row i after exchanging variable v (None: no prediction), `part[v][i]` whether that changes or stays.
    """

    exchange: Exchange
    kinds: tuple[str, ...]
    wanted: Mapping[str, Sequence[frozenset[int] | None]]
    part: Mapping[str, Sequence[str | None]]
    usable: Sequence[bool]
    nothing_differs: Sequence[bool]
    base_answers: Sequence[int]
    agreement: Metric
    drawn: int

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that are graded."""
        return tuple(self.part)

    def graded_rows(self) -> Int[Tensor, " some"]:
        """The rows that change or stay for some variable."""
        kept = [any(parts[row] is not None for parts in self.part.values()) for row in range(len(self))]
        return torch.tensor(kept, dtype=torch.bool).nonzero()[:, 0]

    def rows(self, variable: str, part: str, kind: str | None = None) -> Int[Tensor, " some"]:
        """The rows of a variable that change, or that stay."""
        return torch.tensor(
            [
                row
                for row, (one, of) in enumerate(zip(self.part[variable], self.kinds, strict=True))
                if one == part and kind in (None, of)
            ],
            dtype=torch.long,
        )

    def grade(self, variable: str, answers: Int[Tensor, " row"], rows: Int[Tensor, " row"]) -> Graded:
        """Grade the outputs of these rows."""
        counts: dict[str, dict[str, list[bool]]] = {CHANGES: defaultdict(list), STAYS: defaultdict(list)}
        for answer, row in zip(answers.tolist(), rows.tolist(), strict=True):
            part, wanted = self.part[variable][row], self.wanted[variable][row]
            if part is not None and wanted is not None:
                counts[part][self.kinds[row]].append(answer in wanted)
        return Graded(*({kind: (sum(hits), len(hits)) for kind, hits in counts[part].items()} for part in counts))


def make_pairs(
    model: Transformer,
    runner: Runner,
    cases: Sequence[Case],
    token_of: TokenOf,
    *,
    roles: Sequence[str],
    pad: int,
    run: bool = True,
) -> Pairs:
    """Run the algorithm on every pair and the model on every base and source; keep the pairs that both answer alike.
    Without `run` the model is taken to answer as the algorithm says: such pairs can be counted, not exchanged.
    """
    if not cases:
        raise BadInput("no pair of a base and its sources could be made of these prompts; choose another behaviour")
    rows = [(base, kind) for base, case in enumerate(cases) for kind in case.sources]
    sides = [cases[base].sources[kind] for base, kind in rows]
    predicted = runner.predicted(
        [(cases[base].base.inputs, side.inputs) for (base, _), side in zip(rows, sides, strict=True)]
    )
    base_of = torch.tensor([base for base, _ in rows])
    first_row = {base: row for row, (base, _) in reversed(list(enumerate(rows)))}
    tokens = _Tokens(token_of)
    of_bases = [
        tokens.options(cases[base].base, one.choices and one.choices[0])
        for base, one in ((base, predicted[first_row[base]]) for base in range(len(cases)))
    ]
    of_rows = [
        tokens.options(side, one.choices and [*one.choices[0], *one.choices[1]])
        for side, one in zip(sides, predicted, strict=True)
    ]
    bases, sources = (Sides.of(one, roles, pad) for one in ([case.base for case in cases], sides))
    exchange = Exchange(model, tuple(roles), bases, sources, base_of, _padded(of_bases), _padded(of_rows))
    if run:
        base_answers, source_answers = (answers.tolist() for answers in exchange.record())
    else:
        base_answers = [
            tokens.any_right(cases[base].base, predicted[first_row[base]].base) for base in range(len(cases))
        ]
        source_answers = [tokens.any_right(side, one.source) for side, one in zip(sides, predicted, strict=True)]
    right = [
        base_answers[base] in (tokens.right(cases[base].base, predicted[first_row[base]].base) or ())
        for base in range(len(cases))
    ]
    wanted: dict[str, list[frozenset[int] | None]] = defaultdict(list)
    for (base, _), one in zip(rows, predicted, strict=True):
        for variable, answer in one.after.items():
            wanted[variable].append(None if answer is None else tokens.right(cases[base].base, answer))
    usable = [
        right[base] and source_answers[row] in (tokens.right(side, one.source) or ())
        for row, ((base, _), side, one) in enumerate(zip(rows, sides, predicted, strict=True))
    ]
    of_row = [base_answers[base] for base, _ in rows]
    return Pairs(
        exchange,
        tuple(kind for _, kind in rows),
        wanted,
        _parts(wanted, of_row, source_answers, usable),
        usable,
        [ok and len(one.same) == len(one.after) for ok, one in zip(usable, predicted, strict=True)],
        of_row,
        Metric.of_share(sum(right), len(right)),
        len(cases),
    )


@dataclass(frozen=True)
class _Tokens:
    """The tokens of answers."""

    token_of: TokenOf

    def right(self, side: Side, answer: object) -> frozenset[int] | None:
        """The tokens of an answer, or of a list of right answers; None if one cannot be read."""
        tokens = [self.token_of(side, one) for one in (answer if isinstance(answer, list) else [answer])]
        return None if not tokens or None in tokens else frozenset(token for token in tokens if token is not None)

    def any_right(self, side: Side, answer: object) -> int:
        """One of the tokens of an answer, or `NOTHING`."""
        return min(self.right(side, answer) or {NOTHING})

    def options(self, side: Side, answers: Sequence[object] | None) -> list[int] | None:
        """The tokens to choose from."""
        if answers is None:
            return None
        tokens = dict.fromkeys(self.token_of(side, one) for one in answers)
        return [token for token in tokens if token is not None]


def _padded(options: Sequence[list[int] | None]) -> Int[Tensor, "row option"] | None:
    if any(one is None or not one for one in options):
        return None
    known = [one for one in options if one is not None]
    width = max(map(len, known))
    return torch.tensor([[*one, *[NOTHING] * (width - len(one))] for one in known])


def _parts(
    wanted: Mapping[str, Sequence[frozenset[int] | None]],
    bases: Sequence[int],
    sources: Sequence[int],
    usable: Sequence[bool],
) -> dict[str, list[str | None]]:
    """Which rows change, and which stay, by variable."""

    def part(variable: str, row: int) -> str | None:
        right = wanted[variable][row]
        if right is None or not usable[row]:
            return None
        if bases[row] not in right:
            return CHANGES
        others = any((one := wanted[other][row]) is not None and bases[row] not in one for other in wanted)
        return STAYS if sources[row] not in right or others else None

    return {variable: [part(variable, row) for row in range(len(bases))] for variable in wanted}
