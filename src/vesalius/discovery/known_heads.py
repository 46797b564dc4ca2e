"""Known heads, to compare a discovered circuit with: those that publications name for GPT-2 small and Llama-3-8B, and
those that attention alone shows.

A model counts as GPT-2 small by its shape, since weights have no name: for other weights of that shape (a fine-tuned or
a random model) the figures only say how far its circuit agrees with the published one. Where the file of the weights is
at hand, `recognised_by` also compares its hash with that of the published file.

| behaviour      | source                                                                                           |
|----------------|--------------------------------------------------------------------------------------------------|
| `ioi`          | Wang et al. 2022, arXiv 2211.00593: 26 heads in seven roles                                      |
| `induction`    | the five heads that MechRL takes as canonical                                                    |
| `greater-than` | Hanna et al. 2023, arXiv 2305.00586, heads as the ACDC authors list them (arXiv 2304.14997)      |
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.checks import ROLES
from vesalius.errors import BadInput
from vesalius.files import sha256
from vesalius.intervene import Batch
from vesalius.model.config import Config
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary

#: GPT-Neo 125M has as many layers, heads and words, but other contexts, windows and scales.
GPT2_SMALL = {
    "n_layers": 12,
    "n_heads": 12,
    "n_kv_heads": 12,
    "d_model": 768,
    "d_mlp": 3072,
    "d_vocab": 50257,
    "n_ctx": 1024,
    "norm": "layer",
    "rotary": None,
    "gated": False,
    "block": "sequential",
    "attn_scale": None,
    "windows": (),
}
#: SHA-256 of `model.safetensors` as published on the hub (`openai-community/gpt2`).
GPT2_SMALL_SHA256 = "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707"
WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True)
class PublishedHeads:
    """The published heads of a behaviour by role, and the publication."""

    source: str
    roles: Mapping[str, tuple[Component, ...]]

    @property
    def heads(self) -> frozenset[Component]:
        """All heads of all roles."""
        return frozenset(head for heads in self.roles.values() for head in heads)

    def role_of(self, head: Component) -> str | None:
        """The role that the publication gives a head."""
        return next((role for role, heads in self.roles.items() if head in heads), None)


def _heads(names: str) -> tuple[Component, ...]:
    return tuple(Component.parse(name) for name in names.split())


_INDUCTION = PublishedHeads(
    "MechRL's canonical induction heads of GPT-2 small", {"induction head": _heads("5.1 5.5 6.9 7.2 7.10")}
)
PUBLISHED: Mapping[str, PublishedHeads] = {
    "ioi": PublishedHeads(
        "Wang et al. 2022, arXiv 2211.00593",
        {
            "name mover": _heads("9.6 9.9 10.0"),
            "negative name mover": _heads("10.7 11.10"),
            "backup name mover": _heads("9.0 9.7 10.1 10.2 10.6 10.10 11.2 11.9"),
            "S-inhibition head": _heads("7.3 7.9 8.6 8.10"),
            "induction head": _heads("5.5 5.8 5.9 6.9"),
            "duplicate-token head": _heads("0.1 0.10 3.0"),
            "previous-token head": _heads("2.2 4.11"),
        },
    ),
    "induction": _INDUCTION,
    "induction-out": _INDUCTION,
    "greater-than": PublishedHeads(
        "Hanna et al. 2023, arXiv 2305.00586, as listed with arXiv 2304.14997",
        {"reads the year": _heads("0.1 0.3 0.5"), "brings the year to the end": _heads("5.5 6.1 6.9 7.10 8.11 9.1")},
    ),
}


def published_heads(config: Config, behaviour: str | None) -> PublishedHeads | None:
    """The published heads for a behaviour if the model has GPT-2 small's shape, else None."""
    return PUBLISHED.get(behaviour or "") if is_gpt2_small(config) else None


def is_gpt2_small(config: Config) -> bool:
    """Whether a model has GPT-2 small's shape."""
    return all(getattr(config, name) == value for name, value in GPT2_SMALL.items())


def recognised_by(directory: str | Path | None) -> str:
    """How a model of GPT-2 small's shape was recognised: by its shape alone, or by the hash of its file as well."""
    file = None if directory is None else Path(directory).expanduser() / WEIGHTS_FILE
    if file is None or not file.is_file():
        return "GPT-2 small by its shape; its weights were not compared"
    if sha256(file) == GPT2_SMALL_SHA256:
        return "GPT-2 small by its shape and by the hash of its weights"
    return "GPT-2 small by its shape; the hash of its weights is not that of the published file"


# The All-for-One (AF1) circuit: ten components of Llama-3-8B that publications study for three-operand addition.
#
# The subgraph is that of Mamidanna et al. 2025; the ten components are those that the HyVE paper (arXiv 2606.24026,
# Appendix G) explains. Only names are here: what each component does is in the answer key. A model counts as Llama-3-8B
# by its shape, since weights have no name: fine-tuned weights of that shape are taken for it as well. Llama-3.1-8B has
# the same sizes, and is told apart by its longer context and scaled rotation.

LLAMA_3_8B = "Llama-3-8B"
LLAMA_3_8B_SHAPE = {
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 8,
    "d_model": 4096,
    "d_mlp": 14336,
    "d_vocab": 128256,
    "n_ctx": 8192,
}
AF1_SOURCE = "HyVE paper, arXiv 2606.24026, Appendix G"
_NAMES = "L15H3 L15H13 L15H31 L16H1 L16H21 L20_MLP L26H3 L28H18 L29_MLP L31_MLP"
AF1_COMPONENTS: tuple[Component, ...] = tuple(map(Component.parse, _NAMES.split()))


def is_llama_3_8b(config: Config) -> bool:
    """Whether a model has the shape of Llama-3-8B."""
    scaled = config.rotary is not None and config.rotary.scaling != "none"
    return not scaled and all(getattr(config, name) == value for name, value in LLAMA_3_8B_SHAPE.items())


# Attention by token role: BOS, the position itself, the previous token, earlier copies, and the tokens after those.
#
# A role is a set of (query, key) pairs. A head's mass on it is the attention from each query to the role's keys,
# averaged over the queries that have such keys.

Target = Bool[Tensor, "prompt query key"]


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
        ("BOS" if first else "first token"): sink,
    }


def masses(pattern: Float[Tensor, "prompt head query key"], target: Target) -> Float[Tensor, "prompt head"]:
    """Attention on the target keys, averaged over the queries with a target; NaN if there are none."""
    target = target.to(pattern.device)
    has_target = target.any(-1)
    mass = torch.einsum("phqk,pqk->phq", pattern, target.to(pattern.dtype))
    total = (mass * has_target[:, None]).sum(-1)
    n_queries = has_target.sum(1).clamp(min=1)
    return torch.where(has_target.any(1)[:, None], total / n_queries[:, None], torch.nan).cpu()


# Heads detected by their attention alone: previous-token, duplicate-token and induction heads.
#
# The probe contains no behaviour. For text and for token ids it is random tokens, repeated once after BOS where there
# is one, so that copies and the tokens after them exist and nothing else can be predicted; for a finite vocabulary it
# is a sample of the specimen's inputs. A head is flagged for a role if more than half of its attention lies there, on
# average over the probe.

FLAGGED_MASS = 0.5
ROWS, LENGTH = 8, 16


@dataclass(frozen=True)
class Detections:
    """Mean attention of every head on each role, the heads flagged for it, and the number of rows run."""

    masses: Mapping[str, Float[Tensor, "layer head"]]
    rows: int

    @property
    def flagged(self) -> dict[str, tuple[Component, ...]]:
        """The heads of each role, in order of computation."""
        return {
            role: tuple(Component(layer, head) for layer, head in (mass > FLAGGED_MASS).nonzero().tolist())
            for role, mass in self.masses.items()
        }

    @property
    def heads(self) -> frozenset[Component]:
        """Heads flagged for any role."""
        return frozenset(head for heads in self.flagged.values() for head in heads)


@torch.no_grad()
def detect(specimen: Specimen, *, rows: int = ROWS, seed: int = 0) -> Detections:
    """Run the probe once and measure every head's attention."""
    model, (batch, first) = specimen.model, _probe(specimen, rows, seed)
    real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask
    targets = {role: general_roles(batch.tokens, real, first=first)[role] for role in ROLES}
    on_device = batch.to(model.device)
    _, cache = model.run_with_cache(
        on_device.tokens,
        mask=on_device.mask,
        names=lambda name: name.endswith(".hook_pattern"),
        choose=torch.zeros(len(batch), 1, dtype=torch.long, device=model.device),
    )
    patterns = [cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(model.config.n_layers)]
    mass_by_role = {
        role: torch.stack([masses(pattern, target).nanmean(0).nan_to_num() for pattern in patterns])
        for role, target in targets.items()
    }
    return Detections(mass_by_role, len(batch))


def _probe(specimen: Specimen, rows: int, seed: int) -> tuple[Batch, int]:
    """The probe's tokens, and 1 if they begin with BOS, else 0."""
    vocabulary, config = specimen.vocabulary, specimen.model.config
    if isinstance(vocabulary, FiniteVocabulary):
        tokens = specimen.tokenize(specimen.sample(rows, seed))
        return Batch(tokens, tokens != config.pad_token), 1
    prefix, ids = [], range(config.d_vocab)
    if isinstance(vocabulary, TextVocabulary):
        prefix = [] if vocabulary.tokenizer.bos is None else [vocabulary.tokenizer.bos]
        ids = vocabulary.tokenizer.ordinary_ids
    length = min(LENGTH, (config.n_ctx - len(prefix)) // 2)
    ordinary = [i for i in ids if i < config.d_vocab and i not in prefix]
    if length < 2 or len(ordinary) < length:
        raise BadInput(
            f"{specimen.name}: a context of {config.n_ctx} and {len(ordinary)} ordinary tokens are too few to probe "
            "attention; leave the detectors out"
        )
    rng = random.Random(f"detectors/{seed}")
    sequences = [rng.sample(ordinary, length) for _ in range(rows)]
    return Batch(torch.tensor([[*prefix, *tokens, *tokens] for tokens in sequences])), len(prefix)


# Whether a circuit's heads are known heads more often than expected by chance.


@dataclass(frozen=True)
class Overlap:
    """Of `chosen` heads out of `candidates`, `both` are among the `known` ones.

    `share` is the share of the chosen heads that are known, `expected` the same for heads drawn at random, `p` the
    probability that a random draw contains as many or more (hypergeometric).
    """

    both: tuple[Component, ...]
    chosen: int
    known: int
    candidates: int

    @property
    def share(self) -> float:
        """Share of the chosen heads that are known."""
        return len(self.both) / self.chosen

    @property
    def expected(self) -> float:
        """The share that random heads would have."""
        return self.known / self.candidates

    @property
    def p(self) -> float:
        """Probability of this many or more when heads are drawn at random."""
        others = self.candidates - self.known
        many = range(len(self.both), min(self.known, self.chosen) + 1)
        ways = sum(comb(self.known, both) * comb(others, self.chosen - both) for both in many)
        return ways / comb(self.candidates, self.chosen)

    def as_data(self) -> dict[str, Any]:
        """The overlap for JSON."""
        return {
            "both": [str(head) for head in self.both],
            "chosen": self.chosen,
            "known": self.known,
            "candidates": self.candidates,
            "share": self.share,
            "expected": self.expected,
            "p": self.p,
        }


def overlap(chosen: Sequence[Component], known: Collection[Component], *, candidates: int) -> Overlap:
    """Compare chosen heads with known ones; `candidates` is the number of heads there are to choose from."""
    if not chosen:
        raise BadInput("no heads were chosen to compare; name at least one")
    return Overlap(tuple(head for head in chosen if head in known), len(chosen), len(set(known)), candidates)
