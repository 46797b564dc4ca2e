"""Models and tensors on disk: safetensors files with one-line errors, written atomically."""

import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vesalius.errors import BadInput, Failed
from vesalius.files import read_json, write_json
from vesalius.model.config import Config
from vesalius.model.dtypes import stored_dtype
from vesalius.model.states import build, to_state
from vesalius.model.transformer import Transformer

CONFIG_FILE, WEIGHTS_FILE = "model.json", "model.safetensors"
SCHEMA = 1


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file; a missing, truncated or foreign file is refused in one line."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path}: not a complete safetensors file ({error}); download or create it again") from None


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file in one step."""
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    try:
        save_file(tensors, partial)
        os.replace(partial, path)
    except (OSError, SafetensorError) as error:
        partial.unlink(missing_ok=True)
        raise Failed(f"{path}: could not be written ({error}); free some space or choose another place") from None


def save_model(model: Transformer, directory: Path) -> None:
    """Write `model.json` and `model.safetensors`; the JSON comes last, so a directory that has it is complete."""
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / WEIGHTS_FILE, to_state(model))
    config, tied = model.config.model_dump(exclude_defaults=True), model.unembed_weight is model.W_E
    write_json(directory / CONFIG_FILE, {"schema": SCHEMA, "tied": tied, "config": config})


def load_model(directory: Path, *, dtype: torch.dtype | None = None) -> Transformer:
    """Read what `save_model` wrote; `dtype` None keeps the number format of the file."""
    data = read_json(directory / CONFIG_FILE)
    if data.get("schema") != SCHEMA:
        raise BadInput(f"{directory / CONFIG_FILE}: schema {data.get('schema')!r}; this version reads schema {SCHEMA}")
    config = Config.read(data.get("config") or {}, where=str(directory / CONFIG_FILE))
    state = read_tensors(directory / WEIGHTS_FILE)
    dtype = dtype or (stored_dtype(state["embed.W_E"]) if "embed.W_E" in state else torch.float32)
    if not data.get("tied", True) and "unembed.W_U" not in state:
        raise BadInput(f"{directory / WEIGHTS_FILE}: weight unembed.W_U is missing; the file is incomplete")
    return build(config, state, where=str(directory / WEIGHTS_FILE), dtype=dtype, biases=True)
