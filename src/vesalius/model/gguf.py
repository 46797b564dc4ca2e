"""GGUF files: weights de-quantised to float32, the tokenizer rebuilt from the file's vocabulary.

llama.cpp stores the rows of Llama's query and key matrices in another order (the two numbers of a rotary pair side by
side instead of half a head apart); it is undone here, because our rotation acts on (i, i + d_head/2).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vesalius.errors import BadInput, quoted
from vesalius.model.config import Config
from vesalius.model.families.layout import Raw, side_by_side_to_halves
from vesalius.model.states import PARSER_ERRORS, State, build
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, silent

if TYPE_CHECKING:
    from gguf import ReaderTensor
    from tokenizers import Tokenizer as Backend


# Architectures of GGUF files: what their metadata say about a model's shape, and which tensor is which weight.
#
# Names and conventions are llama.cpp's. What it fixes in its code rather than in the file (Gemma's local rope base, the
# layers of SmolLM3 without positions) is fixed here too.

#: Reads metadata by name, with a default if given; what a file holds there is not known before.
Field = Callable[..., Any]

#: Layers that a file may say a model has, far beyond any there is.
MOST_LAYERS = 1 << 16
_ATTENTION = {
    **{f"attn_{x}.weight": f"attn.W_{x.upper()}" for x in "qkv"},
    **{f"attn_{x}.bias": f"attn.b_{x.upper()}" for x in "qkv"},
    "attn_output.weight": "attn.W_O",
    "attn_output.bias": "attn.b_O",
    "attn_q_norm.weight": "attn.q_norm.w",
    "attn_k_norm.weight": "attn.k_norm.w",
}
_MLP = {
    "ffn_up.weight": "mlp.W_in",
    "ffn_up.bias": "mlp.b_in",
    "ffn_gate.weight": "mlp.W_gate",
    "ffn_down.weight": "mlp.W_out",
    "ffn_down.bias": "mlp.b_out",
    "ffn_gate_inp.weight": "mlp.W_router",
    "ffn_gate_exps.weight": "mlp.W_gate",
    "ffn_up_exps.weight": "mlp.W_in",
    "ffn_down_exps.weight": "mlp.W_out",
}
_NORMS = {
    "attn_norm.weight": "ln1.w",
    "attn_norm.bias": "ln1.b",
    "ffn_norm.weight": "ln2.w",
    "ffn_norm.bias": "ln2.b",
    "post_attention_norm.weight": "ln1_post.w",
    "post_ffw_norm.weight": "ln2_post.w",
}
#: Tensors of a layer; matrices that join several weights are split before.
BLOCK_NAMES = {**_ATTENTION, **_MLP, **_NORMS}
OUTER_NAMES = {
    "token_embd.weight": "embed.W_E",
    "position_embd.weight": "pos_embed.W_pos",
    "output_norm.weight": "ln_final.w",
    "output_norm.bias": "ln_final.b",
    "output.weight": "unembed.W_U",
    "output.bias": "unembed.b_U",
}


@dataclass(frozen=True)
class Architecture:
    """What is particular about a GGUF architecture. `interleaved`: queries and keys are stored for a rotation of
    neighbours; `settings` adds to the shape that all share. `biases` are those of a layer that must be stored (others
    may be), `outer` what must be stored outside of layers: elsewhere, a missing unembedding is the embedding.
    """

    settings: Callable[[Field, Raw], Raw]
    interleaved: bool = False
    rotary: bool = True
    biases: tuple[str, ...] = ()
    outer: tuple[str, ...] = ()


def _layers(count: int) -> int:
    """A number of layers, which is checked before anything is listed by layer."""
    if not 1 <= count <= MOST_LAYERS:
        raise BadInput(f"block_count is {count:,}; a model has 1 to {MOST_LAYERS:,} layers")
    return count


def shape(field: Field, architecture: Architecture, *, d_vocab: int) -> Raw:
    """The fields of a `Config`. `field(name)` reads metadata of this architecture, with a default if given."""
    n_heads, d_model = int(field("attention.head_count")), int(field("embedding_length"))
    data: Raw = {
        "n_layers": _layers(int(field("block_count"))),
        "n_heads": n_heads,
        "n_kv_heads": int(field("attention.head_count_kv", default=n_heads)),
        "d_model": d_model,
        "d_head": int(field("attention.key_length", default=d_model // n_heads)),
        "d_mlp": int(field("feed_forward_length")),
        "d_vocab": d_vocab,
        "d_vocab_out": d_vocab,
        "n_ctx": int(field("context_length")),
    }
    if architecture.rotary:
        data["rotary"] = _rotary(field, data["d_head"])
    return {**data, **architecture.settings(field, data)}


def _rotary(field: Field, d_head: int) -> Raw:
    rotation: Raw = {"base": float(field("rope.freq_base", default=10_000.0))}
    rotated = int(field("rope.dimension_count", default=d_head))
    if rotated != d_head:
        rotation["d_rotary"] = rotated
    kind = field("rope.scaling.type", default="none")
    if kind in ("linear", "yarn"):
        factor = float(field("rope.scaling.factor"))
        rotation |= {"scaling": kind, "factor": factor}
        if kind == "yarn":
            rotation["original_n_ctx"] = int(field("rope.scaling.original_context_length"))
            rotation["attention_factor"] = 0.1 * math.log(max(factor, 1.0)) + 1.0
    elif kind not in ("none", "longrope"):
        raise BadInput(f"rope scaling {kind!r} is not supported; use the safetensors version of this model")
    return rotation


def _gated_rms(field: Field, data: Raw, **other: object) -> Raw:
    eps = float(field("attention.layer_norm_rms_epsilon"))
    return {"norm": "rms", "norm_eps": eps, "activation": "silu", "gated": True, **other}


def _layer_norm(field: Field, **other: object) -> Raw:
    eps = float(field("attention.layer_norm_epsilon"))
    return {"norm": "layer", "norm_eps": eps, "activation": "gelu_tanh", **other}


def _llama(field: Field, data: Raw) -> Raw:
    n_experts, window = int(field("expert_count", default=0)), int(field("attention.sliding_window", default=0))
    experts = _experts(field, data, data["d_mlp"]) if n_experts else None
    return _gated_rms(field, data, experts=experts, windows=(window,) * data["n_layers"] if window else ())


def _experts(field: Field, data: Raw, d_expert: int) -> Raw:
    return {
        "n_experts": int(field("expert_count")),
        "n_active": int(field("expert_used_count")),
        "d_expert": d_expert,
        "renormalise": True,
        "layers": tuple(range(data["n_layers"])),
    }


def _qwen3_moe(field: Field, data: Raw) -> Raw:
    experts = _experts(field, data, int(field("expert_feed_forward_length")))
    return _gated_rms(field, data, qk_norm="head", experts=experts)


def _gemma(field: Field, data: Raw, **other: object) -> Raw:
    return _gated_rms(field, data, activation="gelu_tanh", embed_scale=data["d_model"] ** 0.5, **other)


def _gemma_scale(data: Raw, largest: int) -> float:
    """Scores of the largest Gemma are scaled by the width per head, of the others by the size of a head."""
    return (data["d_model"] / data["n_heads"] if data["n_layers"] == largest else data["d_head"]) ** -0.5


def _gemma2(field: Field, data: Raw) -> Raw:
    window = int(field("attention.sliding_window"))
    return _gemma(
        field,
        data,
        norm_at="both",
        attn_scale=_gemma_scale(data, 46),
        attn_softcap=float(field("attn_logit_softcapping")),
        final_softcap=float(field("final_logit_softcapping")),
        windows=tuple(None if layer % 2 else window for layer in range(data["n_layers"])),
    )


def _gemma3(field: Field, data: Raw) -> Raw:
    window, local = int(field("attention.sliding_window")), {"base": 10_000.0}
    sliding = [(layer + 1) % 6 != 0 for layer in range(data["n_layers"])]
    return _gemma(
        field,
        data,
        norm_at="both",
        qk_norm="head",
        attn_scale=_gemma_scale(data, 62),
        windows=tuple(window if yes else None for yes in sliding),
        layer_rotary=tuple(local if yes else data["rotary"] for yes in sliding),
    )


def _smollm3(field: Field, data: Raw) -> Raw:
    layers = range(data["n_layers"])
    return _gated_rms(field, data, layer_rotary=tuple(data["rotary"] if (i + 1) % 4 else None for i in layers))


def _olmo(field: Field, data: Raw) -> Raw:
    clip = float(field("attention.clamp_kqv", default=0.0))
    return _layer_norm(field, activation="silu", gated=True, clip_qkv=clip or None)


def _neox(field: Field, data: Raw) -> Raw:
    parallel = bool(field("use_parallel_residual", default=True))
    return _layer_norm(field, activation="gelu", block="parallel" if parallel else "sequential")


_QKV = ("attn.b_Q", "attn.b_K", "attn.b_V")
_ALL_BIASES = (*_QKV, "attn.b_O", "mlp.b_in", "mlp.b_out", "ln1.b")
ARCHITECTURES = {
    "llama": Architecture(_llama, interleaved=True),
    "qwen2": Architecture(_gated_rms, biases=_QKV),
    "qwen3": Architecture(lambda field, data: _gated_rms(field, data, qk_norm="head")),
    "qwen3moe": Architecture(_qwen3_moe),
    "gemma": Architecture(_gemma),
    "gemma2": Architecture(_gemma2),
    "gemma3": Architecture(_gemma3),
    "phi2": Architecture(
        lambda field, data: _layer_norm(field, block="parallel_one_norm"),
        biases=_ALL_BIASES,
        outer=("ln_final.b", "unembed.W_U", "unembed.b_U"),
    ),
    "phi3": Architecture(_gated_rms),
    "olmo": Architecture(_olmo, interleaved=True),
    "olmo2": Architecture(lambda field, data: _gated_rms(field, data, norm_at="output", qk_norm="all")),
    "smollm3": Architecture(_smollm3, interleaved=True),
    "gpt2": Architecture(
        lambda field, data: _layer_norm(field), rotary=False, biases=(*_ALL_BIASES, "ln2.b"), outer=("ln_final.b",)
    ),
    "gptneox": Architecture(_neox, biases=(*_ALL_BIASES, "ln2.b"), outer=("ln_final.b", "unembed.W_U")),
}


# Tokenizers rebuilt from the vocabulary inside a GGUF file: byte-level BPE, and SentencePiece BPE.

#: Types of tokens in a GGUF file.
_CONTROL, _USER_DEFINED = 3, 4
_SPACE = "\u2581"
#: How text is split before merging, by llama.cpp's name; the default of byte-level BPE is GPT-2's rule.
_GPT2 = ("default", "", "gpt-2", "olmo", "phi-2", "mpt", "jina-en")
_DIGIT_BY_DIGIT = ("smollm", "starcoder", "refact", "command-r")
_LETTERS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {
    "qwen2": _LETTERS % "",
    "llama-bpe": _LETTERS % "{1,3}",
    "llama3": _LETTERS % "{1,3}",
    "smaug-bpe": _LETTERS % "{1,3}",
}
_SPLITS |= {"dbrx": _LETTERS % "{1,3}", "olmo2": _LETTERS % "{1,3}"}


def rebuild(field: Field, *, where: str) -> "Backend":
    """The tokenizer of a GGUF file whose metadata `field(name)` reads."""
    kind = field("tokenizer.ggml.model")
    words, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    if kind == "gpt2":
        backend = _byte_level(words, field("tokenizer.ggml.merges"), field("tokenizer.ggml.pre", default=""), where)
    elif kind == "llama":
        prefix = bool(field("tokenizer.ggml.add_space_prefix", default=True))
        backend = _sentencepiece(words, field("tokenizer.ggml.scores"), prefix=prefix)
    else:
        raise BadInput(f"{where}: tokenizers of kind {kind!r} are not supported; give a tokenizer of your own")
    _add_special(backend, words, kinds, both=kind == "llama")
    return backend


def _byte_level(words: Sequence[str], merges: Sequence[str], pre: str, where: str) -> "Backend":
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    pairs = [(first, second) for first, _, second in (pair.partition(" ") for pair in merges)]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, pairs))
    steps: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if pre in _DIGIT_BY_DIGIT:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    elif pre in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[pre]), behavior="isolated")
        steps = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    elif pre not in _GPT2:
        raise BadInput(f"{where}: the rule {pre!r} for splitting text is not known; give a tokenizer of your own")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(words: Sequence[str], scores: Sequence[float], *, prefix: bool) -> "Backend":
    """SentencePiece's BPE: pieces with higher scores are merged first; unknown characters become bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocabulary = {word: i for i, word in enumerate(words)}
    merges = []
    for word, score in zip(words, scores, strict=True):
        splits = [(word[:cut], word[cut:]) for cut in range(1, len(word))]
        inside = [(a, b) for a, b in splits if a in vocabulary and b in vocabulary]
        inside.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        merges += [(score, pair) for pair in inside]
    merges.sort(key=lambda merge: -merge[0])
    unknown = next((word for word in ("<unk>", "[UNK]") if word in vocabulary), None)
    pairs = [pair for _, pair in merges]
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    replace: normalizers.Normalizer = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), replace]) if prefix else replace
    steps: list[decoders.Decoder] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return tokenizer


def _add_special(backend: "Backend", words: Sequence[str], kinds: Sequence[int], *, both: bool) -> None:
    from tokenizers import AddedToken

    pairs = list(zip(words, map(int, kinds), strict=True))
    backend.add_special_tokens([AddedToken(word, special=True) for word, kind in pairs if kind == _CONTROL])
    if both:
        own = [AddedToken(word, normalized=False) for word, kind in pairs if kind == _USER_DEFINED]
        backend.add_tokens(own)


#: Tensors that are not weights: they divide the frequencies of the rotation.
_FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")


class GgufFile:
    """An open GGUF file: `config`, `load` and `tokenizer`. Nothing in it is executed."""

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader

        if not path.is_file():
            raise BadInput(f"{path}: no such file")
        self.path = path
        try:
            self._reader: GGUFReader = GGUFReader(path)
        except PARSER_ERRORS as error:
            raise BadInput(f"{path}: not a complete GGUF file ({error}); download it again") from None
        self.architecture = str(self._field("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise BadInput(
                f"{path}: GGUF architecture {self.architecture!r} is not supported; use {', '.join(ARCHITECTURES)}"
            )

    @property
    def config(self) -> Config:
        """The model's shape from the file's metadata."""
        embedding = self._tensor("token_embd.weight")
        self._field(f"{self.architecture}.attention.head_count")
        if embedding is None:
            raise BadInput(f"{self.path}: tensor token_embd.weight is missing; the file does not hold a complete model")

        def field(name: str, **fallback: object) -> Any:
            return self._field(f"{self.architecture}.{name}", **fallback)

        try:
            data = shape(field, ARCHITECTURES[self.architecture], d_vocab=int(embedding.shape[1]))
        except BadInput as error:
            raise BadInput(f"{self.path}: {str(error).removeprefix(f'{self.path}: ')}") from None
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise BadInput(f"{self.path}: a size in the metadata is not a positive number ({error})") from None
        bos = int(self._field("tokenizer.ggml.bos_token_id", default=-1))
        if 0 <= bos < data["d_vocab"]:
            data["bos_token"] = bos
        if (factors := self._rope_factors(field)) and data.get("rotary"):
            data["rotary"] |= factors
            data["layer_rotary"] = tuple(x and {**x, **factors} for x in data.get("layer_rotary", ()))
        return Config.read(data, where=str(self.path))

    def load(
        self, *, dtype: torch.dtype | None = None, step: str = "reading", progress: Progress | None = None
    ) -> Transformer:
        """De-quantise every tensor and build the model (in float32 unless `dtype` is given); `progress` is called with
        `step` after each tensor.
        """
        config, state, report = self.config, {}, progress or silent
        total = len(self._reader.tensors)
        for done, tensor in enumerate(self._reader.tensors, 1):
            if tensor.name not in _FACTORS:
                state |= self._converted(tensor, config)
            report(step, done, total)
        if self.architecture == "olmo":  # its norms have no weights
            norms = [f"blocks.{layer}.{norm}" for layer in range(config.n_layers) for norm in ("ln1", "ln2")]
            state |= {f"{norm}.w": torch.ones(config.d_model) for norm in [*norms, "ln_final"]}
        self._require(state, config)
        return build(config, state, where=str(self.path), dtype=dtype or torch.float32, release=True)

    def tokenizer(self) -> "Backend":
        """The tokenizer from the vocabulary inside the file."""
        return rebuild(self._field, where=str(self.path))

    def _require(self, state: State, config: Config) -> None:
        """Refuse a file without the weights that its architecture always has."""
        kind = ARCHITECTURES[self.architecture]
        needed = [f"blocks.{layer}.{name}" for layer in range(config.n_layers) for name in kind.biases]
        if missing := [name for name in (*kind.outer, *needed) if name not in state]:
            raise BadInput(
                f"{self.path}: weight {missing[0]} is missing, which every {self.architecture} model has; "
                "download the file again"
            )

    def _field(self, name: str, **fallback: object) -> Any:
        field = self._reader.get_field(name)
        if field is not None:
            try:
                return field.contents()
            except PARSER_ERRORS as error:
                raise BadInput(f"{self.path}: metadata {name!r} is damaged ({error}); download it again") from None
        if "default" in fallback:
            return fallback["default"]
        raise BadInput(f"{self.path}: metadata {name!r} is missing; the file is not a language model in GGUF form")

    def _dequantise(self, tensor: "ReaderTensor") -> Tensor:
        from gguf.quants import dequantize

        try:
            values = np.require(dequantize(tensor.data, tensor.tensor_type), np.float32, ["C", "W", "O"])
            return torch.from_numpy(values)
        except (NotImplementedError, ValueError) as error:
            raise BadInput(f"{self.path}: tensor {tensor.name} cannot be de-quantised ({error})") from None

    def _tensor(self, name: str) -> "ReaderTensor | None":
        return next((tensor for tensor in self._reader.tensors if tensor.name == name), None)

    def _rope_factors(self, field: Field) -> Raw:
        """Divisors of the rotary frequencies that the file stores as tensors."""
        names = {"rope_factors_short.weight": "short_factors", "rope_factors_long.weight": "long_factors"}
        tensors = {ours: tensor for name, ours in names.items() if (tensor := self._tensor(name)) is not None}
        if (always := self._tensor("rope_freqs.weight")) is not None:
            tensors = {"short_factors": always, "long_factors": always}
        if len(tensors) < len(names):
            return {}
        factors = {ours: tuple(self._dequantise(tensor).tolist()) for ours, tensor in tensors.items()}
        attention, original = 1.0, int(field("rope.scaling.original_context_length", default=field("context_length")))
        if always is None:
            attention = float(field("rope.scaling.attn_factor", default=1.0))
        return {"scaling": "longrope", **factors, "original_n_ctx": original, "attention_factor": attention}

    def _converted(self, tensor: "ReaderTensor", config: Config) -> State:
        try:
            return self._convert(tensor.name, self._dequantise(tensor), config)
        except (RuntimeError, IndexError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise BadInput(f"{self.path}: tensor {quoted(tensor.name)} does not fit the metadata ({reason})") from None

    def _convert(self, name: str, value: Tensor, config: Config) -> State:
        """The weights of one tensor by our names."""
        if name in OUTER_NAMES:
            return {OUTER_NAMES[name]: value.T if name == "output.weight" else value}
        parts = name.split(".", 2)
        if len(parts) == 3 and parts[0] == "blk":
            block, split = f"blocks.{parts[1]}.", self._split(parts[2], value, config)
            if all(part in BLOCK_NAMES for part in split):
                return {
                    block + BLOCK_NAMES[part]: self._reshape(BLOCK_NAMES[part], piece, config)
                    for part, piece in split.items()
                }
        raise BadInput(f"{self.path}: tensor {quoted(name)} is not part of a {self.architecture} model")

    def _split(self, name: str, value: Tensor, config: Config) -> State:
        """Matrices that join queries, keys and values, or (Phi-3) the gate and the other half of an MLP."""
        part, kind = name.rsplit(".", 1)
        if part == "attn_qkv":
            cuts = [heads * config.d_head for heads in (config.n_heads, config.n_kv_heads, config.n_kv_heads)]
            pieces = zip("qkv", value.split(cuts), strict=True)
            return {f"attn_{letter}.{kind}": piece for letter, piece in pieces}
        if name == "ffn_up.weight" and config.gated and self._tensor("blk.0.ffn_gate.weight") is None:
            gate, up = value.chunk(2)
            return {"ffn_gate.weight": gate, "ffn_up.weight": up}
        return {name: value}

    def _reshape(self, target: str, value: Tensor, config: Config) -> Tensor:
        letter = target[-1]
        if target.startswith(("attn.W_", "attn.b_")) and letter in "QKV":
            if ARCHITECTURES[self.architecture].interleaved and letter in "QK" and config.rotary:
                value = side_by_side_to_halves(value, config.d_head, config.rotary.d_rotary or config.d_head)
            by_head = value.view(-1, config.d_head, *value.shape[1:])
            return by_head.transpose(1, 2) if by_head.ndim == 3 else by_head
        if target == "attn.W_O":
            return value.T.reshape(config.n_heads, config.d_head, -1)
        return value.transpose(-2, -1) if target.startswith("mlp.W_") else value
