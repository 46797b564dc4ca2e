"""Known heads, to compare a discovered circuit with: those that publications name for GPT-2 small and Llama-3-8B. Those
that attention alone shows are in `head_tests`.

A model counts as GPT-2 small by its shape, since weights have no name: for other weights of that shape (a fine-tuned or
a random model) the figures only say how far its circuit agrees with the published one. Where the file of the weights is
at hand, `recognised_by` also compares its hash with that of the published file.

| behaviour      | source                                                                                           |
|----------------|--------------------------------------------------------------------------------------------------|
| `ioi`          | Wang et al. 2022, arXiv 2211.00593: 26 heads in seven roles                                      |
| `induction`    | the five heads that MechRL takes as canonical                                                    |
| `greater-than` | Hanna et al. 2023, arXiv 2305.00586, heads as the ACDC authors list them (arXiv 2304.14997)      |
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.files import sha256
from vesalius.model.config import Config
from vesalius.values import JsonObject

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
    "alibi": None,
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
_IOI = PublishedHeads(
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
)
PUBLISHED: Mapping[str, PublishedHeads] = {
    "ioi": _IOI,
    "mechrl-ioi": _IOI,
    "induction": _INDUCTION,
    "induction-out": _INDUCTION,
    "mechrl-induction": _INDUCTION,
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

    def as_data(self) -> JsonObject:
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
