"""Inputs for experiments on a specimen with a finite vocabulary, and pairings of them.

Eight inputs in ten come from the specimen's own distribution, the rest from generic designs (few symbols, one symbol,
one symbol but for one place, sorted), which reach values that random inputs hardly ever do.

`Pairings` lists interchange experiments: base input, source input and the component whose output moves from one to
the other. A row whose component is None is the base run itself.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from vesalius.components import Component
from vesalius.model.specimen import FiniteVocabulary, Specimen, listed_tokens

PAD = -1
#: Share of inputs from the specimen's own distribution.
NATURAL_SHARE = 0.8
#: Share of designed inputs that have full length.
FULL_LENGTH_SHARE = 0.4


@dataclass(frozen=True)
class Sequences:
    """Inputs as token codes, -1 past the end of each."""

    codes: Int[Tensor, "row pos"]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def lengths(self) -> Int[Tensor, " row"]:
        """Tokens of each input."""
        return self.real.sum(1)

    @property
    def real(self) -> Bool[Tensor, "row pos"]:
        """True at tokens, False past the end."""
        return self.codes != PAD

    def take(self, rows: Int[Tensor, " n"]) -> "Sequences":
        """Some of the inputs."""
        return Sequences(self.codes[rows])

    def ids(self, vocabulary: FiniteVocabulary) -> Int[Tensor, "row with_bos"]:
        """Token ids as the model takes them, BOS first."""
        bos = self.codes.new_full((len(self), 1), vocabulary.bos)
        return torch.cat([bos, self.codes.masked_fill(~self.real, vocabulary.pad)], 1)


@dataclass(frozen=True)
class Pairings:
    """Rows of interchange experiments; `source` is -1 where nothing is exchanged."""

    base: Int[Tensor, " row"]
    source: Int[Tensor, " row"]
    moved: tuple[Component | None, ...]

    def __len__(self) -> int:
        return len(self.base)

    def take(self, rows: Int[Tensor, " n"]) -> "Pairings":
        """Some of the rows."""
        return Pairings(self.base[rows], self.source[rows], tuple(self.moved[row] for row in rows.tolist()))

    def rows_of(self, component: Component) -> Int[Tensor, " n"]:
        """The rows in which this component is exchanged."""
        return torch.tensor([i for i, moved in enumerate(self.moved) if moved == component], dtype=torch.long)


def finite_vocabulary(specimen: Specimen) -> FiniteVocabulary:
    """The specimen's vocabulary, which must list its tokens."""
    return listed_tokens(specimen, "the built-in scientist of circuits")


def draw_sequences(specimen: Specimen, n: int, *, seed: int, natural_share: float = NATURAL_SHARE) -> Sequences:
    """`n` inputs, natural ones and designs mixed in random order."""
    vocabulary = finite_vocabulary(specimen)
    code_of = {token: code for code, token in enumerate(vocabulary.tokens)}
    generator = torch.Generator().manual_seed(seed)
    n_natural = max(1, round(n * natural_share))
    codes = torch.full((n, vocabulary.max_len), PAD)
    for row, tokens in enumerate(specimen.sample(n_natural, seed)):
        codes[row, : len(tokens)] = torch.tensor([code_of[token] for token in tokens])
    if n > n_natural:
        codes[n_natural:] = _designs(n - n_natural, vocabulary, generator)
    return Sequences(codes[torch.randperm(n, generator=generator)])


def natural_pairings(n: int) -> Pairings:
    """Every input once, nothing exchanged."""
    return Pairings(torch.arange(n), torch.full((n,), -1), (None,) * n)


def exchange_pairings(n_inputs: int, n: int, components: list[Component], *, seed: int) -> Pairings:
    """`n` rows per component with random base and source."""
    generator = torch.Generator().manual_seed(seed)
    total = n * len(components)
    base = torch.randint(n_inputs, (total,), generator=generator)
    source = (base + torch.randint(1, max(2, n_inputs), (total,), generator=generator)) % n_inputs
    return Pairings(base, source, tuple(component for component in components for _ in range(n)))


def join(first: Pairings, second: Pairings) -> Pairings:
    """The rows of both."""
    return Pairings(
        torch.cat([first.base, second.base]), torch.cat([first.source, second.source]), first.moved + second.moved
    )


def _designs(n: int, vocabulary: FiniteVocabulary, generator: Generator) -> Int[Tensor, "row pos"]:
    n_tokens, longest = len(vocabulary.tokens), vocabulary.max_len
    lengths = torch.randint(vocabulary.min_len, longest + 1, (n,), generator=generator)
    lengths[torch.rand(n, generator=generator) < FULL_LENGTH_SHARE] = longest
    uniform = torch.randint(n_tokens, (n, longest), generator=generator)
    symbols = torch.randint(n_tokens, (n, 2), generator=generator)
    rate = torch.rand((n, 1), generator=generator)
    of_two = torch.where(torch.rand((n, longest), generator=generator) < rate, symbols[:, :1], symbols[:, 1:])
    constant = symbols[:, :1].expand(n, longest)
    place = (torch.rand(n, generator=generator) * lengths).long()
    but_one = torch.where(torch.arange(longest) == place[:, None], symbols[:, 1:], constant)
    kind = torch.randint(5, (n, 1), generator=generator)
    codes = torch.where(kind == 0, uniform, torch.where(kind == 1, of_two, torch.where(kind == 2, constant, but_one)))
    past_end = torch.arange(longest) >= lengths[:, None]
    ascending = uniform.masked_fill(past_end, n_tokens).sort(1).values
    return torch.where(kind == 4, ascending, codes).masked_fill(past_end, PAD)
