"""The standard tests of attention heads, and the names that follow from their figures by rule.

*Attention* by token role: a role is a set of (query, key) pairs (the previous token, earlier copies of the current one,
the tokens after those, the position itself, BOS), and a head's mass on it is the attention from each query to the
role's keys, averaged over the queries that have such keys. Its chance level is the mass of uniform attention.

*Probes* contain no behaviour: random tokens, repeated once after BOS where there is one, so that copies and the tokens
after them exist and nothing else can be predicted; for a finite vocabulary a sample of the specimen's inputs.

*Names*: `RULES` is the one table of names, figures and bars. Detections of a discovery use the figures of attention,
the atlas of a model (`explanations.atlas`) all of them: what a head writes for the tokens that it reads is measured
there.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.checks import ROLES
from vesalius.errors import BadInput
from vesalius.intervene import Batch
from vesalius.model.hooks import HookPoint
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.model.transformer import Transformer

# Attention by token role.

Target = Bool[Tensor, "prompt query key"]
#: What the sink is called where prompts begin with BOS, and where they do not.
BOS, FIRST_TOKEN = "BOS", "first token"


def general_roles(
    tokens: Int[Tensor, "prompt pos"], real: Bool[Tensor, "prompt pos"], *, first: int
) -> dict[str, Target]:
    """The roles that exist in any text; positions before `first` (BOS) are not queries and count as a sink only."""
    place = torch.arange(tokens.shape[1])
    query, key = place[:, None], place[None, :]
    is_query = real & (place >= first)
    pairs = is_query[:, :, None] & real[:, None, :] & (key <= query)
    copies = pairs & (tokens[:, :, None] == tokens[:, None, :]) & (key < query) & (key >= first)
    after = torch.zeros_like(copies)
    after[:, :, 1:] = copies[:, :, :-1]
    sink = pairs & (key == 0) & (query > 0)
    return {
        "induction": after & (key < query),
        "duplicate": copies,
        "previous": pairs & (key == query - 1) & (key >= first),
        "self": pairs & (key == query),
        (BOS if first else FIRST_TOKEN): sink,
    }


def masses(pattern: Float[Tensor, "prompt head query key"], target: Target) -> Float[Tensor, "prompt head"]:
    """Attention on the target keys, averaged over the queries with a target; NaN if there are none."""
    return masses_in_place(pattern, target).cpu()


def masses_in_place(pattern: Float[Tensor, "prompt head query key"], target: Target) -> Float[Tensor, "prompt head"]:
    """The same where the pattern is, so that nothing waits for a device."""
    target = target.to(pattern.device)
    has_target = target.any(-1)
    mass = torch.einsum("phqk,pqk->phq", pattern, target.to(pattern.dtype))
    total = (mass * has_target[:, None]).sum(-1)
    n_queries = has_target.sum(1).clamp(min=1)
    return torch.where(has_target.any(1)[:, None], total / n_queries[:, None], torch.nan)


def explained_by_position(pattern: Float[Tensor, "prompt head query key"]) -> Float[Tensor, " head"]:
    """How much of a pattern is the same in every prompt: the mean product of the patterns of two prompts, as a share of
    the mean square of one. 1: the tokens do not matter; a head that looks for one token among many has about one in as
    many. Attention to the first position counts for nothing, since that is where heads look that have nothing to find.
    """
    seen = pattern[..., 1:].float()
    n, squares = len(seen), seen.square().sum((0, 2, 3))
    products = (seen.sum(0).square().sum((1, 2)) - squares) / max(n - 1, 1)
    return (products / squares.clamp(min=1e-12)).cpu()


# Probes: prompts that hold no behaviour.

ROWS, LENGTH = 8, 32


@dataclass(frozen=True)
class Probe:
    """Prompts of a test; `first` is 1 where they begin with BOS, else 0. Tokens repeat from position `repeats` on, None
    where that is left to chance.
    """

    batch: Batch
    first: int
    repeats: int | None = None

    @property
    def real(self) -> Bool[Tensor, "prompt pos"]:
        """True at tokens, False at padding."""
        mask = self.batch.mask
        return torch.ones_like(self.batch.tokens, dtype=torch.bool) if mask is None else mask

    @property
    def roles(self) -> dict[str, Target]:
        """The token roles of its prompts."""
        return general_roles(self.batch.tokens, self.real, first=self.first)

    def uniform(self, *, causal: bool) -> Float[Tensor, "prompt query key"]:
        """Attention that is even over all keys that a query can see."""
        n = self.batch.tokens.shape[1]
        seen = torch.ones(n, n).tril() if causal else torch.ones(n, n)
        attend = seen * self.real[:, None, :]
        return attend / attend.sum(-1, keepdim=True).clamp(min=1)


def repeated_tokens(specimen: Specimen, *, rows: int = ROWS, seed: int = 0) -> Probe:
    """Random tokens repeated once, or for a finite vocabulary inputs of its own."""
    vocabulary, config = specimen.vocabulary, specimen.model.config
    if isinstance(vocabulary, FiniteVocabulary):
        tokens = specimen.tokenize(specimen.sample(rows, seed))
        return Probe(Batch(tokens, specimen.model.config.not_padding(tokens)), 1)
    prefix = bos_of(specimen)
    length, ordinary = min(LENGTH, (config.n_ctx - len(prefix)) // 2), ordinary_tokens(specimen)
    length = min(length, len(ordinary))
    if length < 2:
        raise BadInput(
            f"{specimen.name}: a context of {config.n_ctx} and {len(ordinary)} ordinary tokens are too few to probe "
            "attention; leave the detectors out"
        )
    rng = random.Random(f"detectors/{seed}")
    sequences = [rng.sample(ordinary, length) for _ in range(rows)]
    tokens = torch.tensor([[*prefix, *tokens, *tokens] for tokens in sequences])
    return Probe(Batch(tokens), len(prefix), len(prefix) + length)


def bos_of(specimen: Specimen) -> list[int]:
    """What stands before every text: the beginning-of-sequence token where there is one."""
    vocabulary = specimen.vocabulary
    bos = vocabulary.tokenizer.bos if isinstance(vocabulary, TextVocabulary) else None
    return [] if bos is None else [bos]


def ordinary_tokens(specimen: Specimen) -> list[int]:
    """The tokens that random prompts are drawn from: those that are text by themselves, and not BOS."""
    vocabulary, size = specimen.vocabulary, specimen.model.config.d_vocab
    ids = vocabulary.tokenizer.ordinary_ids if isinstance(vocabulary, TextVocabulary) else range(size)
    prefix = bos_of(specimen)
    return [i for i in ids if i < size and i not in prefix]


# Attention of every head on a probe.


@dataclass(frozen=True)
class Detections:
    """Mean attention of every head on each role beside its chance level, the share that position explains, the heads
    flagged for a role, and the number of rows run.
    """

    masses: Mapping[str, Float[Tensor, "layer head"]]
    rows: int
    chance: Mapping[str, float]
    positional: Float[Tensor, "layer head"]

    @property
    def flagged(self) -> dict[str, tuple[Component, ...]]:
        """The heads of each role that a discovery is compared with, in order of computation."""
        return {
            role: tuple(Component(layer, head) for layer, head in (self.masses[role] > MOST).nonzero().tolist())
            for role in ROLES
        }

    @property
    def heads(self) -> frozenset[Component]:
        """Heads flagged for any role."""
        return frozenset(head for heads in self.flagged.values() for head in heads)


class AttentionReader:
    """Reads the attention of every layer in a run: give its `hook` to the run, then ask for `detections`."""

    def __init__(self, model: Transformer, probe: Probe) -> None:
        self._probe, self._roles = probe, probe.roles
        uniform = probe.uniform(causal=model.config.causal)[:, None]
        self._chance = {role: _over_prompts(uniform, target).item() for role, target in self._roles.items()}
        self._masses: dict[str, list[Tensor]] = {role: [] for role in self._roles}
        self._positional: list[Tensor] = []

    def hook(self, pattern: Float[Tensor, "prompt head query key"], _: HookPoint) -> None:
        """Measure one layer's attention."""
        for role, target in self._roles.items():
            self._masses[role].append(_over_prompts(pattern, target))
        fresh = slice(self._probe.repeats)  # a head that looks for copies finds them at one distance
        self._positional.append(explained_by_position(pattern[:, :, fresh, fresh]))

    @property
    def detections(self) -> Detections:
        """The attention of every head."""
        return Detections(
            {role: torch.stack(layers) for role, layers in self._masses.items()},
            len(self._probe.batch),
            self._chance,
            torch.stack(self._positional),
        )


def _over_prompts(pattern: Float[Tensor, "prompt head query key"], target: Target) -> Float[Tensor, " head"]:
    return masses(pattern, target).float().nanmean(0).nan_to_num()


def is_pattern(name: str) -> bool:
    """Whether a hook point is that of a layer's attention."""
    return name.endswith(".hook_pattern")


@torch.no_grad()
def detect(specimen: Specimen, *, rows: int = ROWS, seed: int = 0) -> Detections:
    """Run the probe once and measure every head's attention."""
    specimen.require_patterns("what heads attend to")
    model, probe = specimen.model, repeated_tokens(specimen, rows=rows, seed=seed)
    reader, batch = AttentionReader(model, probe), probe.batch.to(model.device)
    none = torch.zeros(len(batch), 1, dtype=torch.long, device=model.device)
    model.run_with_hooks(batch.tokens, mask=batch.mask, choose=none, fwd_hooks=[(is_pattern, reader.hook)])
    return reader.detections


# Names by rule.

#: Shares of attention: much of it, most of it, nearly all of it.
MUCH, MOST, NEARLY_ALL = 0.4, 0.5, 0.8
#: What is written about the token that is read, in standard deviations over tokens: clearly, and somewhat.
CLEARLY, SOMEWHAT = 2.0, 0.5
NO_NAME = "no standard name"
Side = Literal[">", "<"]


@dataclass(frozen=True)
class Rule:
    """A name, and what the figures of a head must be for it: each beyond its bar. A figure that could not be measured
    fails it.
    """

    name: str
    bars: tuple[tuple[str, Side, float], ...]

    def holds(self, figures: Mapping[str, float | None]) -> bool:
        """Whether a head with these figures has the name."""
        return all(
            (value := figures.get(figure)) is not None and (value > bar if side == ">" else value < bar)
            for figure, side, bar in self.bars
        )

    def __str__(self) -> str:
        return " and ".join(f"{figure} {side} {bar:g}" for figure, side, bar in self.bars)


#: The first that holds is a head's name, the others that hold are said with it. What a head does to what it reads comes
#: before where it looks; where it looks by content before where it looks by position.
RULES: Sequence[Rule] = (
    Rule("copy-suppression head", (("copying", "<", -CLEARLY), ("copying_in_run", "<", -SOMEWHAT))),
    Rule("induction head", (("induction", ">", MUCH), ("copying_in_run", ">", SOMEWHAT))),
    Rule("prefix-matching head", (("induction", ">", MOST),)),
    Rule("previous-token head", (("previous", ">", MOST),)),
    Rule("duplicate-token head", (("duplicate", ">", MOST),)),
    Rule("copying head", (("copying", ">", CLEARLY), ("copying_in_run", ">", SOMEWHAT))),
    Rule("current-token head", (("current", ">", MOST),)),
    Rule("BOS head", (("bos", ">", NEARLY_ALL),)),
    Rule("positional head", (("positional", ">", NEARLY_ALL),)),
)


def names_of(figures: Mapping[str, float | None]) -> tuple[str, ...]:
    """The names of a head with these figures, the one that says most first; none where no rule holds."""
    names = [rule.name for rule in RULES if rule.holds(figures)]
    return tuple(name for name in names if name != "prefix-matching head" or "induction head" not in names)
