"""A model of which only the shape is known: a directory with a config.json and no weights, for plans."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vesalius.files import read_json
from vesalius.intervene.recordings import DEFAULT_MEMORY, FREE_SHARE, shape_of
from vesalius.model.devices import DTYPES, Devices, dtype_named, free_bytes, gpus, named_devices, weight_bytes
from vesalius.model.families import family
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer

WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.pt")


@dataclass(frozen=True)
class Shape:
    """A model without numbers, the bytes of its weights, how many of them a token passes, and its tokenizer."""

    model: Transformer
    dtype: torch.dtype
    weights: int
    active: int
    tokenizer: Tokenizer | None


def read_shape(source: Any, *, dtype: str | torch.dtype) -> Shape | None:
    """The shape in a directory that holds a config.json and no weights; None for anything else."""
    directory = Path(str(source)).expanduser()
    where = directory / "config.json"
    if not where.is_file() or any(any(directory.glob(pattern)) for pattern in WEIGHTS):
        return None
    raw = read_json(where)
    config = family(raw, where=str(where)).read_config(raw, where=str(where))
    stored = str(raw.get("dtype") or raw.get("torch_dtype") or "float32")
    chosen = dtype_named(dtype) or DTYPES.get(stored, torch.float32)
    model = shape_of(config, chosen)
    tied = bool(raw.get("tie_word_embeddings", False)) * config.d_vocab * config.d_model
    named = any((directory / name).exists() for name in ("tokenizer.json", "vocab.json"))
    tokenizer = Tokenizer.from_directory(directory, bos=config.bos_token) if named else None
    passed = sum(weight.numel() for weight in model.parameters()) - config.d_vocab * config.d_model
    if config.experts is not None:
        idle = (config.experts.n_experts - config.experts.n_active) * 3 * config.d_model * config.experts.d_expert
        passed -= idle * len(config.experts.layers)
    return Shape(model, chosen, weight_bytes(model) - tied * chosen.itemsize, passed, tokenizer)


def rooms(devices: Devices) -> dict[torch.device, int]:
    """The devices to choose among, with the bytes that each has free."""
    candidates = gpus() or named_devices("cpu") if devices == "auto" else named_devices(devices)
    return {device: free_bytes(device) for device in candidates}


def memory_beside(device: torch.device, free: int, weights: int) -> int:
    """The bytes of activations that the engine would hold at once beside weights that are not loaded."""
    return max(1, int(FREE_SHARE * (free - weights))) if device.type == "cuda" else DEFAULT_MEMORY
