"""GGUF files of Llama-type models: weights de-quantised to float32, the tokenizer rebuilt from the file's vocabulary.

llama.cpp stores the rows of Llama's query and key matrices in another order (the two numbers of a rotary pair side by
side instead of half a head apart); it is undone here, because our rotation acts on (i, i + d_head/2).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vesalius.errors import PARSER_ERRORS, BadInput
from vesalius.model.config import Config
from vesalius.model.states import build
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, silent

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

ARCHITECTURES = ("llama", "qwen2")

_BLOCK_NAMES = {
    "attn_norm.weight": "ln1.w",
    "ffn_norm.weight": "ln2.w",
    "attn_q.weight": "attn.W_Q",
    "attn_k.weight": "attn.W_K",
    "attn_v.weight": "attn.W_V",
    "attn_q.bias": "attn.b_Q",
    "attn_k.bias": "attn.b_K",
    "attn_v.bias": "attn.b_V",
    "attn_output.weight": "attn.W_O",
    "ffn_up.weight": "mlp.W_in",
    "ffn_gate.weight": "mlp.W_gate",
    "ffn_down.weight": "mlp.W_out",
}


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
                f"{path}: GGUF architecture {self.architecture!r} is not supported; use {' or '.join(ARCHITECTURES)}"
            )

    @property
    def config(self) -> Config:
        """The model's shape from the file's metadata."""
        prefix = self.architecture
        n_heads, d_model = (
            int(self._field(f"{prefix}.attention.head_count")),
            int(self._field(f"{prefix}.embedding_length")),
        )
        embedding = next((t for t in self._reader.tensors if t.name == "token_embd.weight"), None)
        if embedding is None:
            raise BadInput(f"{self.path}: tensor token_embd.weight is missing; the file does not hold a complete model")
        d_vocab = int(embedding.shape[1])
        data = {
            "n_layers": int(self._field(f"{prefix}.block_count")),
            "n_heads": n_heads,
            "n_kv_heads": int(self._field(f"{prefix}.attention.head_count_kv", default=n_heads)),
            "d_model": d_model,
            "d_head": int(self._field(f"{prefix}.attention.key_length", default=d_model // n_heads)),
            "d_mlp": int(self._field(f"{prefix}.feed_forward_length")),
            "d_vocab": d_vocab,
            "d_vocab_out": d_vocab,
            "n_ctx": int(self._field(f"{prefix}.context_length")),
            "norm": "rms",
            "norm_eps": float(self._field(f"{prefix}.attention.layer_norm_rms_epsilon")),
            "rotary": {"base": float(self._field(f"{prefix}.rope.freq_base", default=10_000.0))},
            "activation": "silu",
            "gated": True,
            "bos_token": int(self._field("tokenizer.ggml.bos_token_id", default=-1)),
        }
        if data["bos_token"] < 0:
            del data["bos_token"]
        return Config.read(data, where=str(self.path))

    def load(self, *, step: str = "reading", progress: Progress | None = None) -> Transformer:
        """De-quantise every tensor and build the model; `progress` is called with `step` after each tensor."""
        config, state, report = self.config, {}, progress or silent
        total = len(self._reader.tensors)
        for done, tensor in enumerate(self._reader.tensors, 1):
            name, value = self._convert(tensor.name, self._dequantise(tensor), config)
            state[name] = value
            report(step, done, total)
        return build(config, state, where=str(self.path))

    def tokenizer(self) -> "Backend":
        """A byte-level BPE tokenizer from the vocabulary and merges inside the file."""
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        if self._field("tokenizer.ggml.model") != "gpt2":
            raise BadInput(f"{self.path}: only byte-level BPE vocabularies are supported")
        words, kinds = self._field("tokenizer.ggml.tokens"), self._field("tokenizer.ggml.token_type")
        merges = [tuple(pair.split(" ", 1)) for pair in self._field("tokenizer.ggml.merges")]
        tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
        steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
        if self._field("tokenizer.ggml.pre", default="") in ("smollm", "starcoder", "refact", "command-r"):
            steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        tokenizer.decoder = decoders.ByteLevel()
        control = 3
        special = [
            AddedToken(word, special=True) for word, kind in zip(words, kinds, strict=True) if int(kind) == control
        ]
        tokenizer.add_special_tokens(special)
        return tokenizer

    def _field(self, name: str, **fallback: Any) -> Any:
        field = self._reader.get_field(name)
        if field is not None:
            try:
                return field.contents()
            except PARSER_ERRORS as error:
                raise BadInput(f"{self.path}: metadata {name!r} is damaged ({error}); download it again") from None
        if "default" in fallback:
            return fallback["default"]
        raise BadInput(f"{self.path}: metadata {name!r} is missing; the file is not a language model in GGUF form")

    def _dequantise(self, tensor: Any) -> Tensor:
        from gguf.quants import dequantize

        try:
            return torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
        except (NotImplementedError, ValueError) as error:
            raise BadInput(f"{self.path}: tensor {tensor.name} cannot be de-quantised ({error})") from None

    def _convert(self, name: str, value: Tensor, config: Config) -> tuple[str, Tensor]:
        unchanged = {"token_embd.weight": "embed.W_E", "output_norm.weight": "ln_final.w"}
        if name in unchanged:
            return unchanged[name], value
        if name == "output.weight":
            return "unembed.W_U", value.T
        if name == "rope_freqs.weight":
            raise BadInput(
                f"{self.path}: scaled rotary tables are not supported; use the safetensors version of this model"
            )
        parts = name.split(".", 2)
        if len(parts) != 3 or parts[0] != "blk" or parts[2] not in _BLOCK_NAMES:
            raise BadInput(f"{self.path}: tensor {name!r} is not part of a Llama-type model")
        target = _BLOCK_NAMES[parts[2]]
        return f"blocks.{parts[1]}.{target}", self._reshape(target, value, config)

    def _reshape(self, target: str, value: Tensor, config: Config) -> Tensor:
        letter = target[-1]
        if target.startswith("attn.") and letter in "QKV":
            heads = config.n_heads if letter == "Q" else config.n_kv_heads
            if self.architecture == "llama" and letter in "QK":
                value = value.view(heads, -1, 2, *value.shape[1:]).transpose(1, 2).reshape(value.shape)
            by_head = value.view(heads, config.d_head, *value.shape[1:])
            return by_head.transpose(1, 2) if by_head.ndim == 3 else by_head
        if target == "attn.W_O":
            return value.T.reshape(config.n_heads, config.d_head, -1)
        return value.T if target.startswith("mlp.") else value
