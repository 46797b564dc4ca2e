"""How a family's checkpoint is laid out: a table of weight names, and the shapes they come in.

A family names the file's weights by ours (`attn.W_Q` -> `self_attn.q_proj.weight`). Matrices of a checkpoint map output
to input rows (`[out, in]`) unless `input_major`; here they become TransformerLens' shapes. What no table can say (fused
matrices, interleaved heads, experts) a family's `prepare` turns into separate plain weights first.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vesalius.errors import BadInput
from vesalius.model.config import Config
from vesalius.values import JsonObject

State = dict[str, Tensor]
Raw = JsonObject

UNEMBED = "unembed.W_U"
#: Tables that some checkpoints store although they are not weights.
BUFFERS = re.compile(r"\.attn(\.attention)?\.(masked_)?bias$|rotary_emb\.inv_freq$|\.attention\.(masked_)?bias$")


class Unsupported(BadInput):
    """A model that our transformer does not compute exactly, and what stands in the way; transformers' own module may
    be wrapped instead.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message.removeprefix("config.json: ").partition(" is not supported")[0]


@dataclass(frozen=True)
class Family:
    """One group of architectures: which `model_type`s it reads, how a config becomes ours, and where weights are.

    Every weight in `outer` and `inner` must be stored, but for those that a field of the config switches off and an
    unembedding that is tied to the embedding; every stored weight must be one of them.
    """

    name: str
    model_types: tuple[str, ...]
    config: Callable[[Raw], Raw]
    #: Our names outside of layers to the checkpoint's.
    outer: Mapping[str, str]
    #: Our names within a layer to the checkpoint's within a layer.
    inner: Mapping[str, str]
    #: How the names of a layer begin, `{}` being its number.
    layer: str
    input_major: bool = False
    #: Added to the weights of norms (Gemma stores them less 1).
    norm_offset: float = 0.0
    #: Rows of the learned positions that stand before position 0.
    first_position: int = 0
    #: Whether the unembedding is the embedding where a config does not say so.
    tied: bool = False
    #: Fields of a config that switch weights on, each with its default and our names within a layer.
    switches: Mapping[str, tuple[bool, tuple[str, ...]]] = field(default_factory=dict)
    prepare: Callable[[State, Config], State] | None = None
    prefixes: tuple[str, ...] = field(default=())
    #: Numbers that a config multiplies what some weights compute by, put on the weights.
    factors: Callable[[Raw], Mapping[str, float]] | None = None
    #: Methods of quantisation whose files `prepare` reads.
    quantised: tuple[str, ...] = ()

    def read_config(self, raw: Raw, *, where: str) -> Config:
        """A `Config` from a parsed config.json; what is missing, impossible or not exact is refused in one line."""
        try:
            refuse_inexact(raw, self.quantised)
            return Config.read(self.config(raw), where=where)
        except Unsupported as error:
            raise Unsupported(re.sub("^config.json:", f"{where}:", str(error)), error.reason) from None
        except BadInput as error:
            raise BadInput(re.sub("^config.json:", f"{where}:", str(error))) from None
        except KeyError as error:
            raise BadInput(f"{where}: field {error} is missing") from None
        except (TypeError, ZeroDivisionError, ValueError) as error:
            raise BadInput(f"{where}: a size is not a positive number ({error})") from None

    def is_tied(self, raw: Raw) -> bool:
        """Whether a config says that the unembedding is the embedding."""
        return bool(raw.get("tie_word_embeddings", self.tied))

    def read_weights(self, weights: Mapping[str, Tensor], config: Config, raw: Raw, *, where: str) -> State:
        """Weights by TransformerLens' names; missing, surplus and misshapen ones are refused in one line."""
        own = {_without(name, self.prefixes): tensor for name, tensor in weights.items() if not BUFFERS.search(name)}
        begins = re.compile(re.escape(self.layer).replace(r"\{\}", r"(\d+)"))
        in_layer = {name: int(match[1]) for name in own if (match := begins.match(name))}
        # Layers behind the last one predict further tokens; transformers leaves them out as well.
        further = range(config.n_layers, config.n_layers + (raw.get("num_nextn_predict_layers") or 0))
        own = {name: tensor for name, tensor in own.items() if in_layer.get(name) not in further}
        layers = set(in_layer.values()) - set(further)
        # Counted first: a set of as many layers as a config may say would take all memory.
        if len(layers) != config.n_layers or layers != set(range(config.n_layers)):
            raise BadInput(f"{where}: config.json says {config.n_layers} layers, the weights hold {len(layers)}")
        try:
            prepared = self.prepare(own, config) if self.prepare else own
            return self._renamed(prepared, config, raw)
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from None
        except KeyError as error:
            raise BadInput(f"{where}: weight {error} is missing from the model; download it again") from None
        except (RuntimeError, IndexError) as error:
            raise BadInput(f"{where}: a weight does not have the shape that config.json says ({error})") from None

    def _renamed(self, weights: State, config: Config, raw: Raw) -> State:
        left, state = dict(weights), {}
        off = {
            ours: switch
            for switch, (default, weights_of) in self.switches.items()
            if not raw.get(switch, default)
            for ours in weights_of
        }
        names = dict(self.outer)
        for layer in range(config.n_layers):
            names |= {
                f"blocks.{layer}.{ours}": self.layer.format(layer) + theirs
                for ours, theirs in self.inner.items()
                if ours not in off and not _belongs_elsewhere(ours, layer, config)
            }
        for ours, theirs in names.items():
            if theirs in left:
                state[ours] = self._shaped(ours, left.pop(theirs), config)
            elif ours != UNEMBED or not self.is_tied(raw):
                raise BadInput(self._missing(ours, theirs))
        if left:
            raise BadInput(self._surplus(min(left), off))
        if "embed_norm.w" in state:  # nothing is added before it, so it is put on the embedding; the head has none
            table, weight, bias = (state.pop(name) for name in ("embed.W_E", "embed_norm.w", "embed_norm.b"))
            normed = F.layer_norm(table.float(), weight.shape, weight.float(), bias.float(), config.norm_eps)
            state |= {"embed.W_E": normed.to(table.dtype), UNEMBED: state.get(UNEMBED, table.T)}
        for name, factor in self.factors(raw).items() if self.factors else ():
            if name == UNEMBED and UNEMBED not in state and factor != 1.0:
                state[UNEMBED] = state["embed.W_E"].T
            for ours in [ours for ours in state if ours == name or ours.endswith(f".{name}")]:
                state[ours] = state[ours] if factor == 1.0 else state[ours] * factor
        embed, unembed = state["embed.W_E"], state.get(UNEMBED)
        if unembed is not None and "unembed.b_U" not in state and _same(unembed.T, embed):
            del state[UNEMBED]  # `build` ties the two
        return state

    def _missing(self, ours: str, theirs: str) -> str:
        if ours == UNEMBED:
            return (
                f"weight {theirs!r} is missing and tie_word_embeddings is false: there is no head to compute logits "
                "with; use a causal language model, or say tie_word_embeddings: true if the embedding is its head"
            )
        return f"weight {theirs!r} is missing from the model; download it again"

    def _surplus(self, theirs: str, off: Mapping[str, str]) -> str:
        """Why a stored weight is read by nothing: transformers would leave it out without a word."""
        switch = next((switch for ours, switch in off.items() if theirs.endswith("." + self.inner[ours])), None)
        reason = f": {switch} is false in its config" if switch else ""
        return f"weight {theirs!r} has no place in this {self.name} model{reason}"

    def _shaped(self, name: str, value: Tensor, config: Config) -> Tensor:
        part = name.rsplit(".", 1)[-1]
        if name == "pos_embed.W_pos":
            return value[self.first_position :]
        if part == "w":
            return value.float() + self.norm_offset if self.norm_offset else value
        if part in _AS_STORED:
            return value
        if part in ("b_Q", "b_K", "b_V"):
            return value.view(-1, config.d_head)
        if part == "W_U":
            return value.T
        if value.ndim == 3:  # experts, [expert, out, in]
            return value.transpose(1, 2)
        value = value if self.input_major else value.T
        if part in ("W_Q", "W_K", "W_V"):
            return value.reshape(len(value), -1, config.d_head).permute(1, 0, 2)
        if part in ("W_UQ", "W_UK", "W_UV"):
            return value.reshape(len(value), config.n_heads, -1).permute(1, 0, 2)
        return value.reshape(-1, config.d_value, value.shape[1]) if part == "W_O" else value


def with_biases(table: Mapping[str, str]) -> dict[str, str]:
    """The weight and the bias of each entry: `{"ln1": "ln_1", "mlp.in": "fc1"}` is about ln1.w, ln1.b, mlp.W_in and
    mlp.b_in.
    """
    names = {}
    for ours, theirs in table.items():
        part, dot, last = ours.partition(".")
        for kind, own in (("weight", "W"), ("bias", "b")):
            names[f"{part}.{own}_{last}" if dot else f"{part}.{own.lower()}"] = f"{theirs}.{kind}"
    return names


def sizes(raw: Raw, **other: object) -> Raw:
    """The fields that most families share, under their most common names."""
    n_heads, d_model = raw["num_attention_heads"], raw["hidden_size"]
    return {
        "n_layers": raw["num_hidden_layers"],
        "n_heads": n_heads,
        "n_kv_heads": raw.get("num_key_value_heads") or n_heads,
        "d_model": d_model,
        "d_head": raw.get("head_dim") or d_model // n_heads,
        "d_mlp": raw["intermediate_size"],
        "d_vocab": raw["vocab_size"],
        "d_vocab_out": raw["vocab_size"],
        "n_ctx": raw["max_position_embeddings"],
        "bos_token": bos(raw),
        **other,
    }


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
}


def activation(raw: Raw, *keys: str, default: str) -> str:
    """The activation named by the first of some fields that is there."""
    key = next((key for key in keys if raw.get(key)), keys[0])
    name = raw.get(key) or default
    if name not in ACTIVATIONS:
        raise Unsupported(f"config.json: {key} {name!r} is not supported; use one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def bos(raw: Raw) -> int | None:
    """The first beginning-of-sequence id; None if it is outside the vocabulary, as in shrunken test models."""
    value = raw.get("bos_token_id")
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, int) and 0 <= first < raw["vocab_size"] else None


def expect(raw: Raw, **values: object) -> None:
    """Refuse a config that sets a field to something that is not computed exactly here."""
    for name, value in values.items():
        if raw.get(name, value) != value:
            raise Unsupported(f"config.json: {name}={raw[name]} is not supported; expected {value}")


def refuse_inexact(raw: Raw, quantised: tuple[str, ...] = ()) -> None:
    """Refuse what no family here computes exactly, but for the methods of quantisation that this one reads."""
    quantisation = raw.get("quantization_config")
    method = quantisation.get("quant_method", "?") if isinstance(quantisation, dict) else "?"
    if quantisation and method not in quantised:
        raise BadInput(
            f"config.json: quantised weights ({method}) are not supported; use the original or a GGUF version"
        )
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if "mrope_section" in rope or rope.get("rope_type") == "mrope" or rope.get("type") == "mrope":
        raise BadInput("config.json: multimodal rotary positions (mrope) are not supported; use a text model")
    if raw.get("is_encoder_decoder"):
        raise BadInput("config.json: encoder-decoder models are not supported; use a decoder")


def side_by_side_to_halves(weight: Tensor, d_head: int, d_rotary: int) -> Tensor:
    """Reorder the rows of a query or key matrix (or bias) of a family that rotates neighbours (2i, 2i + 1): our
    rotation acts on (i, i + d_rotary / 2). Scores do not change when queries and keys are reordered alike.
    """
    by_head = weight.view(-1, d_head, *weight.shape[1:])
    order = torch.cat([torch.arange(0, d_rotary, 2), torch.arange(1, d_rotary, 2), torch.arange(d_rotary, d_head)])
    return by_head[:, order].reshape(weight.shape)


def split_groups(weights: State, config: Config, name: str) -> State:
    """Separate the rows of fused queries, keys and values (`name` of each layer, `{}` being its number) that are, for
    every key-value head, the queries that read it, its key and its value. They become `q`, `k` and `v` beside it.
    """
    state = dict(weights)
    for layer in range(config.n_layers):
        fused = name.format(layer)
        start = fused.rpartition(".")[0]
        for kind in ("weight", "bias"):
            if kind == "bias" and f"{fused}.bias" not in state:
                continue
            rows = state.pop(f"{fused}.{kind}")
            groups = rows.view(config.n_kv_heads, config.queries_per_kv + 2, config.d_head, *rows.shape[1:])
            parts = zip("qkv", (groups[:, :-2], groups[:, -2], groups[:, -1]), strict=True)
            state |= {f"{start}.{part}.{kind}": x.reshape(-1, *rows.shape[1:]) for part, x in parts}
    return state


def _without(name: str, prefixes: tuple[str, ...]) -> str:
    for prefix in prefixes:
        name = name.removeprefix(prefix)
    return name


#: Weights without an axis that files order in another way.
_AS_STORED = (
    "b", "W_E", "b_O", "b_U", "b_in", "b_out", "b_gate", "b_router", "b_choice", "sinks", "b_DQ", "b_DKV", "b_KR",
)  # fmt: skip
#: What attention whose queries come from a latent has in the place of one matrix, and the other way round.
_OF_QUERY_LATENTS, _OF_QUERIES = ("attn.W_DQ", "attn.b_DQ", "attn.q_latent_norm.w", "attn.W_UQ"), "attn.W_Q"
#: Beginnings of the names of weights that only layers with experts have.
_OF_EXPERTS = ("mlp.W_router", "mlp.b_router", "mlp.b_choice", "mlp.W_shared_gate", "mlp.shared.")


def _belongs_elsewhere(ours: str, layer: int, config: Config) -> bool:
    """Whether a weight is one that other layers have, or other models of its family: of experts, or of a norm."""
    if ours.startswith(_OF_EXPERTS):
        return config.experts is None or layer not in config.experts.layers
    if ours in ("attn.q_norm.w", "attn.k_norm.w"):
        return config.qk_norm_of(layer) == "none"
    if config.latent is not None and ours in (_OF_QUERIES, *_OF_QUERY_LATENTS):
        return (ours == _OF_QUERIES) == bool(config.latent.d_query)
    return ours.startswith("ln2.") and config.block == "parallel_one_norm"


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and (one is other or torch.equal(one, other))


# Rotary settings of Hugging Face configs: `rope_parameters` of version 5, `rope_theta` and `rope_scaling` before.

KINDS = ("default", "linear", "llama3", "yarn", "longrope", "dynamic")


def rotary(raw: Raw, *, d_head: int, base: float = 10_000.0, share: float | None = None) -> Raw:
    """The rotation of all layers; `share` is the default of `partial_rotary_factor` where the family has one."""
    rope = {**(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}
    return rotary_of(rope, raw, d_head=d_head, base=base, share=share)


def rotary_of(rope: Raw, raw: Raw, *, d_head: int, base: float = 10_000.0, share: float | None = None) -> Raw:
    """A rotation from one dictionary of rope settings, with what the rest of the config says where it is silent."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in KINDS:
        raise Unsupported(f"config.json: rope scaling {kind!r} is not supported; use one of {', '.join(KINDS)}")
    settings: Raw = {"base": rope.get("rope_theta") or raw.get("rope_theta") or base}
    if share is not None:
        part = rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or share
        settings |= {} if part == 1 else {"d_rotary": int(d_head * part)}
    if kind != "default":
        if missing := [name for name in _NEEDED[kind] if name not in rope]:
            raise BadInput(f"config.json: rope scaling {kind!r} needs the field {missing[0]!r}; it is missing")
        settings |= {"scaling": kind, **_SCALINGS[kind](rope, raw)}
    return settings


def by_layer_type(raw: Raw, layer_types: list[str], *, d_head: int, bases: dict[str, float]) -> Raw:
    """Rotations of a family in which sliding layers have their own. Older configs give the scaling of full layers in
    `rope_scaling`, their base in `rope_theta` and that of sliding layers in `rope_local_base_freq`.
    """
    nested = raw.get("rope_parameters") or {}
    rotations = {}
    for kind in ("full_attention", "sliding_attention"):
        rope = dict(nested.get(kind) or {})
        if kind == "full_attention":
            rope = {**(raw.get("rope_scaling") or {}), "rope_theta": raw.get("rope_theta") or bases[kind], **rope}
        else:
            local = raw.get("rope_local_base_freq") or (raw.get("rope_theta") if "local" not in bases else None)
            rope = {"rope_theta": local or bases[kind], **rope}
        rope["truncate"] = nested.get("truncate", True)  # transformers looks for it here, not in the layer type's own
        rotations[kind] = rotary_of(rope, raw, d_head=d_head)
    return {
        "rotary": rotations["full_attention"],
        "layer_rotary": tuple(rotations[kind] for kind in layer_types),
    }


def _linear(rope: Raw, raw: Raw) -> Raw:
    return {"factor": rope["factor"]}


def _dynamic(rope: Raw, raw: Raw) -> Raw:
    return {"factor": rope["factor"], "original_n_ctx": raw["max_position_embeddings"]}


def _llama3(rope: Raw, raw: Raw) -> Raw:
    return {
        "factor": rope["factor"],
        "low_freq_factor": rope["low_freq_factor"],
        "high_freq_factor": rope["high_freq_factor"],
        "original_n_ctx": _original(rope, raw),
    }


def _yarn(rope: Raw, raw: Raw) -> Raw:
    original = _original(rope, raw)
    factor = rope.get("factor") or raw["max_position_embeddings"] / original
    attention = rope.get("attention_factor")
    if attention is None:
        rotated, of_all = rope.get("mscale"), rope.get("mscale_all_dim")
        attention = mscale(factor, rotated) / mscale(factor, of_all) if rotated and of_all else mscale(factor)
    return {
        "factor": factor,
        "attention_factor": attention,
        "beta_fast": rope.get("beta_fast") or 32.0,
        "beta_slow": rope.get("beta_slow") or 1.0,
        "truncate": rope.get("truncate", True),
        "original_n_ctx": original,
    }


def _longrope(rope: Raw, raw: Raw) -> Raw:
    original = _original(rope, raw)
    factor = rope.get("factor") or raw["max_position_embeddings"] / original
    attention = rope.get("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return {
        "attention_factor": attention,
        "short_factors": tuple(rope["short_factor"]),
        "long_factors": tuple(rope["long_factor"]),
        "original_n_ctx": original,
    }


def mscale(factor: float, strength: float = 1.0) -> float:
    """By how much yarn multiplies queries and keys in a context that is `factor` times as long."""
    return 1.0 if factor <= 1 else 0.1 * strength * math.log(factor) + 1.0


def _original(rope: Raw, raw: Raw) -> Any:
    """The context before scaling; Phi-3 gives it outside of the rope settings."""
    return (
        raw.get("original_max_position_embeddings")
        or rope.get("original_max_position_embeddings")
        or raw["max_position_embeddings"]
    )


#: Fields without which transformers does not compute a scaling; `factor` of yarn may be null, but must be there.
_NEEDED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
}
_SCALINGS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope, "dynamic": _dynamic}
