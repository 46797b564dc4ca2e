"""GGUF files: weights de-quantised to float32, the tokenizer rebuilt from the file's vocabulary.

llama.cpp stores the rows of Llama's query and key matrices in another order (the two numbers of a rotary pair side by
side instead of half a head apart); it is undone here, because our rotation acts on (i, i + d_head/2).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vesalius.errors import PARSER_ERRORS, BadInput, quoted
from vesalius.model.config import Config
from vesalius.model.families.layout import side_by_side_to_halves
from vesalius.model.gguf_shapes import ARCHITECTURES, BLOCK_NAMES, OUTER_NAMES, shape
from vesalius.model.gguf_tokenizer import rebuild
from vesalius.model.states import State, build
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, silent

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

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

        def field(name: str, **fallback: Any) -> Any:
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
            values = np.require(dequantize(tensor.data, tensor.tensor_type), np.float32, ["C", "W", "O"])
            return torch.from_numpy(values)
        except (NotImplementedError, ValueError) as error:
            raise BadInput(f"{self.path}: tensor {tensor.name} cannot be de-quantised ({error})") from None

    def _tensor(self, name: str) -> Any:
        return next((tensor for tensor in self._reader.tensors if tensor.name == name), None)

    def _rope_factors(self, field: Callable[..., Any]) -> dict[str, Any]:
        """Divisors of the rotary frequencies that the file stores as tensors."""
        names = {"rope_factors_short.weight": "short_factors", "rope_factors_long.weight": "long_factors"}
        tensors = {ours: self._tensor(name) for name, ours in names.items()}
        if (always := self._tensor("rope_freqs.weight")) is not None:
            tensors = {"short_factors": always, "long_factors": always}
        if None in tensors.values():
            return {}
        factors = {ours: tuple(self._dequantise(tensor).tolist()) for ours, tensor in tensors.items()}
        attention, original = 1.0, int(field("rope.scaling.original_context_length", default=field("context_length")))
        if always is None:
            attention = float(field("rope.scaling.attn_factor", default=1.0))
        return {"scaling": "longrope", **factors, "original_n_ctx": original, "attention_factor": attention}

    def _converted(self, tensor: Any, config: Config) -> State:
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
