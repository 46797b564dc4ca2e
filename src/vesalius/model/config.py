"""The shape of a transformer; an impossible one cannot be constructed.

There is no `positions` switch: settings of rotary or ALiBi positions are present, or positions are learned. There is no
`tie` switch: whether the unembedding shares the embedding is a fact about the weights, not about the shape. Settings
that differ between layers are tuples with one entry per layer; an empty tuple means that all layers are alike.
"""

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from vesalius.errors import BadInput
from vesalius.values import JsonObject

if TYPE_CHECKING:
    from torch import Tensor  # the families are listed without importing torch

Norm = Literal["none", "layer", "rms"]
Activation = Literal["gelu", "gelu_tanh", "relu", "relu2", "silu", "quick_gelu"]
QkNorm = Literal["none", "head", "all"]
Scaling = Literal["none", "linear", "llama3", "yarn", "longrope", "dynamic"]


class Rotary(BaseModel, frozen=True):
    """Rotary positions: angle of pair i at position p is p * base ** (-2i / d), scaled by one of the known rules.

    The first `d_rotary` numbers of a head are rotated (None: all of them), number i together with i + d_rotary / 2.
    Cosines and sines are multiplied by `attention_factor`. `dynamic` and `longrope` depend on a prompt's length.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    base: PositiveFloat = 10_000.0
    scaling: Scaling = "none"
    factor: PositiveFloat = 1.0
    low_freq_factor: PositiveFloat = 1.0
    high_freq_factor: PositiveFloat = 4.0
    original_n_ctx: PositiveInt = 8192
    d_rotary: PositiveInt | None = None
    attention_factor: PositiveFloat = 1.0
    beta_fast: PositiveFloat = 32.0
    beta_slow: PositiveFloat = 1.0
    truncate: bool = True
    short_factors: tuple[PositiveFloat, ...] = ()
    long_factors: tuple[PositiveFloat, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor {self.low_freq_factor} must be less than high_freq_factor {self.high_freq_factor}"
            )
        if self.d_rotary is not None and self.d_rotary % 2:
            raise ValueError(f"rotary positions rotate pairs: d_rotary {self.d_rotary} must be even")
        if (self.scaling == "longrope") != bool(self.short_factors and self.long_factors):
            raise ValueError("short_factors and long_factors belong to longrope scaling, which needs both")
        return self

    def check(self, d_head: int) -> None:
        """Refuse a head that cannot be rotated like this."""
        d_rotary = self.d_rotary or d_head
        if d_rotary % 2:
            raise ValueError(f"rotary positions rotate pairs: d_head {d_head} must be even")
        if d_rotary > d_head:
            raise ValueError(f"d_rotary {d_rotary} is larger than d_head {d_head}")
        for factors in (self.short_factors, self.long_factors):
            if factors and len(factors) != d_rotary // 2:
                raise ValueError(f"longrope has {len(factors)} factors; {d_rotary // 2} pairs are rotated")
        if self.scaling == "dynamic" and d_rotary == 2:
            raise ValueError("dynamic scaling needs more than one rotated pair")


class Reach(NamedTuple):
    """How far a layer sees: the last `window` tokens, itself included, and in its own chunk of `chunk` tokens alone;
    None: no such limit.
    """

    window: int | None = None
    chunk: int | None = None

    def limits(self, n: int) -> bool:
        """Whether a prompt of n tokens is long enough for it to matter."""
        return any(size is not None and size < n for size in self)


class QueryScale(BaseModel):
    """Queries that grow with their position p: times 1 + strength * log(1 + (p + first) // every), in some `layers`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    strength: float
    every: PositiveInt
    first: int = 0
    layers: tuple[int, ...] = Field(min_length=1, description="layers whose queries are scaled")


class Alibi(BaseModel):
    """Positions that are a bias of scores: each head takes its own slope times the distance from a score. In Falcon it
    is `scaled` like the score, and made of slopes and products that are `rounded` to bfloat16.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    scaled: bool = False
    rounded: bool = False


class Latent(BaseModel):
    """Keys and values that are read from a normed latent vector of `d_latent` numbers, and queries from one of
    `d_query` (0: from the input). The first numbers of a head's query and key, those that rotate, are compared by
    themselves: that part of the key comes from the input and is one for all heads. Values have `d_value` numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    d_latent: PositiveInt
    d_value: PositiveInt
    d_query: NonNegativeInt = 0
    norm_eps: PositiveFloat = 1e-6


class Experts(BaseModel):
    """MLPs of experts: a router sends each token to `n_active` of `n_experts` gated MLPs and adds their outputs,
    each with a weight.

    A weight is the router's score behind a `softmax` over all experts or the `sigmoid` of each, scaled to sum to 1 over
    the chosen (`renormalise`), times `factor`; it multiplies what an expert puts out, or what it reads (`weighs`). Of
    `n_groups` groups of experts only the `active_groups` best can be chosen, a group being as good as its best
    `group_by` experts together; `corrected`: every expert has a bias that counts for the choice alone. `biased`: the
    router and all experts' matrices have biases. `limit` bounds an expert's gate from above and its other factor on
    both sides; `offset` is added to the other factor then. Every token passes one more gated MLP of width `d_shared`
    (0: none), whose output is multiplied by the sigmoid of a number read from the token where it is `shared_gated`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    n_experts: PositiveInt
    n_active: PositiveInt
    d_expert: PositiveInt
    renormalise: bool
    layers: tuple[int, ...] = Field(min_length=1, description="layers whose MLP is made of experts")
    scores: Literal["softmax", "sigmoid"] = "softmax"
    factor: float = 1.0
    weighs: Literal["output", "input"] = "output"
    n_groups: PositiveInt = 1
    active_groups: PositiveInt = 1
    corrected: bool = False
    biased: bool = False
    limit: PositiveFloat | None = None
    offset: float = 0.0
    d_shared: NonNegativeInt = 0
    shared_gated: bool = False
    group_by: PositiveInt = 2

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.n_active > self.n_experts:
            raise ValueError(f"n_active {self.n_active} is more than n_experts {self.n_experts}")
        if self.n_experts % self.n_groups:
            raise ValueError(f"n_experts {self.n_experts} is not a multiple of n_groups {self.n_groups}")
        size = self.n_experts // self.n_groups
        if self.active_groups > self.n_groups or self.active_groups * size < self.n_active:
            raise ValueError(f"{self.active_groups} of {self.n_groups} groups do not hold n_active {self.n_active}")
        if self.n_groups > 1 and size < self.group_by:
            raise ValueError(f"a group is as good as its best {self.group_by} experts: groups have only {size}")
        if self.weighs == "input" and self.biased:
            raise ValueError("an expert with biases writes something whatever it reads: weighs must be 'output'")
        if self.shared_gated and not self.d_shared:
            raise ValueError("shared_gated needs d_shared, the width of the expert that every token passes")
        return self

    @property
    def n_units(self) -> int:
        """How many experts there are to replace: those of the router, and last the one that every token passes."""
        return self.n_experts + bool(self.d_shared)

    @property
    def d_active(self) -> int:
        """The width of all that a token passes."""
        return self.n_active * self.d_expert + self.d_shared


class Config(BaseModel):
    """Everything about a decoder but its weights.

    `norm_at`: whether a norm stands before what a layer reads (`input`), after what it writes (`output`), or both.
    `block`: MLPs read what attention wrote (`sequential`), or both read the same stream, each through its own norm
    (`parallel`) or through one (`parallel_one_norm`). `qk_norm`: RMSNorm of queries and keys, of each `head` or of
    `all` heads together. `attn_scale` multiplies scores (None: 1 / sqrt(d_head)); a soft cap c turns x into c tanh(x /
    c). `windows`: how many tokens back a layer sees, itself included (None: all); `chunks`: the size of the chunks that
    each token sees its own of. `layer_rotary`: each layer's own rotation (None: no positions in this layer);
    `layer_qk_norm` likewise. `query_scale`: queries that grow with their position. `sinks`: each head has a score that
    takes its share of the softmax and has no value, so that patterns sum to less than 1. `alibi`: positions that are a
    bias of scores. `latent`: queries, keys and values that are read from latents. `wrapped`: the model type of
    transformers' module that computes the layers, where our transformer does not; `mixers` are layers of it that have
    groups of channels in the place of heads, without patterns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    n_layers: PositiveInt
    n_heads: PositiveInt
    d_model: PositiveInt
    d_head: PositiveInt
    d_mlp: PositiveInt
    d_vocab: PositiveInt
    d_vocab_out: PositiveInt
    n_ctx: PositiveInt
    n_kv_heads: PositiveInt = Field(default=0, validate_default=False, description="defaults to n_heads")
    norm: Norm = "none"
    norm_eps: PositiveFloat = 1e-5
    rotary: Rotary | None = None
    activation: Activation = "gelu"
    gated: bool = False
    causal: bool = True
    bos_token: int | None = None
    pad_token: int | None = None
    norm_at: Literal["input", "output", "both"] = "input"
    block: Literal["sequential", "parallel", "parallel_one_norm"] = "sequential"
    qk_norm: QkNorm = "none"
    attn_scale: PositiveFloat | None = None
    attn_softcap: PositiveFloat | None = None
    final_softcap: PositiveFloat | None = None
    clip_qkv: PositiveFloat | None = None
    embed_scale: PositiveFloat = 1.0
    windows: tuple[PositiveInt | None, ...] = ()
    layer_rotary: tuple[Rotary | None, ...] = ()
    experts: Experts | None = None
    wrapped: str | None = None
    mixers: tuple[int, ...] = ()
    chunks: tuple[PositiveInt | None, ...] = ()
    layer_qk_norm: tuple[QkNorm, ...] = ()
    query_scale: QueryScale | None = None
    sinks: bool = False
    alibi: Alibi | None = None
    latent: Latent | None = None

    @model_validator(mode="before")
    @classmethod
    def _default_kv_heads(cls, data: dict) -> dict:
        return {"n_kv_heads": data.get("n_heads"), **data} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}")
        for rotary in (self.rotary, *self.layer_rotary):
            if rotary is not None:
                rotary.check(self.d_head)
        for name in ("windows", "chunks", "layer_rotary", "layer_qk_norm"):
            if len(getattr(self, name)) not in (0, self.n_layers):
                raise ValueError(f"{name} has {len(getattr(self, name))} entries for {self.n_layers} layers")
        if self.layer_rotary and self.rotary is None:
            raise ValueError("layer_rotary needs rotary, which says that positions are not learned")
        if self.alibi is not None and (self.rotary is not None or not self.causal or self.sinks):
            raise ValueError("alibi compares keys before a query: rotary must be null, causal true and sinks false")
        if self.latent is not None:
            self._check_latent()
        for name in ("experts", "query_scale"):
            part = getattr(self, name)
            if part and not all(0 <= layer < self.n_layers for layer in part.layers):
                raise ValueError(f"{name}: layers {part.layers} are named; there are {self.n_layers} layers")
        if self.experts and not self.gated:
            raise ValueError("experts are gated MLPs: gated must be true")
        if self.block == "parallel_one_norm" and self.norm_at != "input":
            raise ValueError("parallel blocks with one norm have it at their input: norm_at must be 'input'")
        for name in ("bos_token", "pad_token"):
            token = getattr(self, name)
            if token is not None and not 0 <= token < self.d_vocab:
                raise ValueError(f"{name} {token} is outside the vocabulary of {self.d_vocab}")
        return self

    def _check_latent(self) -> None:
        rotated = None if self.rotary is None or self.layer_rotary else self.rotary.d_rotary
        if rotated is None or rotated >= self.d_head:
            raise ValueError("latent needs rotary with d_rotary less than d_head, and the same in all layers")
        plain = {"qk_norm": "none", "layer_qk_norm": (), "clip_qkv": None, "n_kv_heads": self.n_heads}
        for name, value in plain.items():
            if getattr(self, name) != value:
                raise ValueError(f"{name} {getattr(self, name)} does not go with latent, which needs {value!r}")

    def not_padding(self, tokens: "Tensor") -> "Tensor":
        """Where tokens are not padding: everywhere, in a model that has none."""
        return tokens == tokens if self.pad_token is None else tokens != self.pad_token

    def begin_with_bos(self, tokens: "Tensor") -> bool:
        """Whether every row begins with the token that begins a text; False in a model that has none."""
        return self.bos_token is not None and bool((tokens[:, 0] == self.bos_token).all())

    @classmethod
    def read(cls, data: dict, *, where: str) -> "Config":
        """Validate a parsed JSON object; a wrong field becomes one line that names `where` and the field."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "config"
            raise BadInput(f"{where}: {field}: {first['msg'].removeprefix('Value error, ')}") from None

    @property
    def queries_per_kv(self) -> int:
        """How many query heads read one key-value head (1 without grouped-query attention)."""
        return self.n_heads // self.n_kv_heads

    @property
    def d_value(self) -> int:
        """The numbers that a head's values have."""
        return self.d_head if self.latent is None else self.latent.d_value

    @property
    def divisor(self) -> float:
        """What products of queries and keys are divided by."""
        return math.sqrt(self.d_head) if self.attn_scale is None else 1 / self.attn_scale

    @property
    def learned_positions(self) -> bool:
        """Whether every position has a vector of its own, added to the embedding."""
        return self.rotary is None and self.alibi is None

    @property
    def parallel(self) -> bool:
        """Whether attention and MLP of a layer read the same residual stream."""
        return self.block != "sequential"

    def reach_of(self, layer: int) -> Reach:
        """How far a layer sees."""
        return Reach(*(sizes[layer] if sizes else None for sizes in (self.windows, self.chunks)))

    def qk_norm_of(self, layer: int) -> QkNorm:
        """How a layer norms its queries and keys."""
        return self.layer_qk_norm[layer] if self.layer_qk_norm else self.qk_norm

    def rotary_of(self, layer: int) -> Rotary | None:
        """How a layer rotates its queries and keys."""
        return self.layer_rotary[layer] if self.layer_rotary else self.rotary

    def identity(self) -> JsonObject:
        """The shape as JSON for a fingerprint: settings added since the first release appear only where they are
        used, so that older models keep their fingerprints.
        """
        whole, used = self.model_dump(mode="json"), self.model_dump(mode="json", exclude_defaults=True)
        data = {name: value for name, value in whole.items() if name in used or name not in _LATER["config"]}
        for part in ("rotary", "experts"):
            if (settings := getattr(self, part)) is not None:
                changed = settings.model_dump(exclude_defaults=True)
                data[part] = {
                    name: value for name, value in whole[part].items() if name in changed or name not in _LATER[part]
                }
        return data


def _from(first: str, model: type[BaseModel]) -> set[str]:
    """The fields of a model from one on."""
    names = list(model.model_fields)
    return set(names[names.index(first) :])


_LATER = {"config": _from("norm_at", Config), "rotary": _from("d_rotary", Rotary), "experts": _from("scores", Experts)}
