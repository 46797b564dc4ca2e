"""Weights by name: the flat dictionary every loader produces and every file stores.

Names and shapes are TransformerLens': `embed.W_E [vocab, d_model]`, `blocks.0.attn.W_Q [head, d_model, d_head]`,
`unembed.W_U [d_model, out]`. A loader turns its format into such a dictionary; `build` makes a model of it and refuses
weights that do not fit.
"""

import hashlib
import json
import math
import os
import pickle
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vesalius.errors import BadInput, Failed, quoted
from vesalius.files import read_json, write_json
from vesalius.model.config import Config
from vesalius.model.devices import Devices, place, stored_dtype
from vesalius.model.transformer import Block, Transformer

State = dict[str, Tensor]
#: What parsers of other packages raise on a damaged file.
PARSER_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError,
    TypeError, ValueError, pickle.UnpicklingError, struct.error, zipfile.BadZipFile,
)  # fmt: skip


class NotFinite(BadInput):
    """A weight that holds NaN or infinity."""

    SAID = "holds NaN or infinity; the file is damaged or training diverged"


_MLP_WEIGHTS = (
    "W_router", "b_router", "b_choice", "W_shared_gate", "W_in", "b_in", "W_gate", "b_gate", "W_out", "b_out",
)  # fmt: skip
#: Ends of the names of weights that stay in float32: norms, and what decides between experts.
_WIDE = (".w", ".b", ".b_choice")


def named_views(model: Transformer) -> State:
    """Every weight as a view in TransformerLens' name and shape; writing to a view writes to the model."""
    if model.config.wrapped:  # transformers' own names: the parts have no common ones
        return dict(model.get_submodule("module").named_parameters())
    views: State = {"embed.W_E": model.W_E}
    if model.W_pos is not None:
        views["pos_embed.W_pos"] = model.W_pos
    for i, block in enumerate(model.blocks):
        views |= _block_norms(f"blocks.{i}", block)
        for name in block.attn.weights:
            if getattr(block.attn, name) is not None:
                views[f"blocks.{i}.attn.{name}"] = getattr(block.attn, name)
        for prefix, mlp in (("mlp", block.mlp), ("mlp.shared", getattr(block.mlp, "shared", None))):
            named = {name: getattr(mlp, name, None) for name in _MLP_WEIGHTS}
            views |= {f"blocks.{i}.{prefix}.{name}": weight for name, weight in named.items() if weight is not None}
    return views | _norm_views("ln_final", model.ln_final) | {"unembed.W_U": model.W_U, "unembed.b_U": model.b_U}


def to_state(model: Transformer) -> State:
    """Copies of all weights, ready for a file. An unembedding tied to the embedding is left out."""
    views = named_views(model)
    if model.unembed_weight is model.W_E and "unembed.W_U" in views:
        del views["unembed.W_U"]
    return {name: view.detach().contiguous() for name, view in views.items()}


def build(
    config: Config,
    state: Mapping[str, Tensor],
    *,
    where: str,
    dtype: torch.dtype = torch.float32,
    biases: bool = False,
    device: Devices = "cpu",
    release: bool = False,
) -> Transformer:
    """Make a transformer from named weights in the number format `dtype`; norms stay in float32. Weights are copied one
    by one to `device`, so that those of a file that is mapped into memory never lie in main memory all at once; with
    `release` each is dropped from `state` once it is copied, so that weights in memory never lie there twice.

    A missing `unembed.W_U` is tied to the embedding, and missing biases are zero unless `biases` says that all are
    stored; any other gap, surplus, wrong shape or NaN is refused in one line that names `where`.
    """
    model = _empty(config, state, where=where, biases=biases)
    place(narrowed(model, dtype), device)
    with torch.no_grad():
        for name, view in named_views(model).items():
            if name in state:
                value = state[name]
                # A sum is read off in a tenth of the time; one of finite values may overflow.
                if not torch.isfinite(value.sum()) and not torch.isfinite(value).all():
                    raise NotFinite(f"{where}: weight {name} {NotFinite.SAID}")
                view.copy_(value)
                if release and isinstance(state, dict):
                    del state[name]
            elif name != "unembed.W_U":
                view.zero_()
    return model.eval().requires_grad_(False)


def narrowed(model: Transformer, dtype: torch.dtype) -> Transformer:
    """The same model with its weights in a number format, but for those that stay in float32."""
    for name, parameter in model.named_parameters():
        if not name.endswith(_WIDE):
            parameter.data = parameter.data.to(dtype)
    return model


def _empty(config: Config, state: Mapping[str, Tensor], *, where: str, biases: bool) -> Transformer:
    """A model without memory for its weights, held against the weights: the sizes of a config may be anything."""
    stored = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    if stored != config.n_layers:
        raise BadInput(f"{where}: holds the weights of {stored} layers; the config says {config.n_layers}")
    try:
        with torch.device("meta"):
            model = Transformer(config)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise BadInput(f"{where}: a model of the sizes in its config cannot be made ({error})") from None
    if "unembed.W_U" not in state and config.d_vocab == config.d_vocab_out:
        model.unembed_weight = model.W_E
    views = named_views(model)
    if surplus := sorted(set(state) - set(views)):
        raise BadInput(
            f"{where}: weight {quoted(surplus[0])} has no place in this model; expected names such as embed.W_E"
        )
    for name in sorted(set(state) & set(views)):
        if state[name].shape != views[name].shape:
            shapes = f"has shape {tuple(state[name].shape)}; this model needs {tuple(views[name].shape)}"
            raise BadInput(f"{where}: weight {name} {shapes}")
    if missing := [name for name in views if name not in state and _is_needed(name, model, biases=biases)]:
        raise BadInput(f"{where}: weight {missing[0]} is missing; the file is incomplete")
    return model


def _is_needed(name: str, model: Transformer, *, biases: bool) -> bool:
    """Whether a weight must be stored: an unembedding tied to the embedding need not, a bias only where all are."""
    if name.rsplit(".", 1)[-1].startswith("b"):
        return biases
    return name != "unembed.W_U" or model.unembed_weight is not model.W_E


def _block_norms(prefix: str, block: Block) -> State:
    norms = {"ln1": block.ln1, "ln1_post": block.ln1_post, "ln2_post": block.ln2_post}
    norms |= {f"attn.{name}": getattr(block.attn, name) for name in block.attn.norms}
    if block.ln2 is not block.ln1:
        norms["ln2"] = block.ln2
    return {
        name: view for norm, layer in norms.items() for name, view in _norm_views(f"{prefix}.{norm}", layer).items()
    }


def _norm_views(prefix: str, norm: nn.Module) -> State:
    weights = {f"{prefix}.{letter}": getattr(norm, letter) for letter in ("w", "b")}
    return {name: weight for name, weight in weights.items() if weight is not None}


def fingerprint(model: Transformer) -> str:
    """A short hash of a model's shape and weights."""
    return weights_sha256(model)[:16]


def weights_sha256(model: Transformer) -> str:
    """SHA-256 over a model's shape and weights."""
    digest = hashlib.sha256(json.dumps(model.config.identity(), sort_keys=True).encode())
    for name, tensor in sorted(to_state(model).items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        exact = tensor if tensor.dtype == torch.float64 else tensor.float()  # numpy has no bfloat16
        digest.update(exact.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


# Models and tensors on disk: safetensors files with one-line errors, written atomically.

CONFIG_FILE, WEIGHTS_FILE = "model.json", "model.safetensors"
SCHEMA = 1


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file; a missing, truncated or foreign file is refused in one line."""
    with _opening(path):
        return load_file(path)


#: Numbers of a tensor that is read although only shapes were asked for: settings such as the k of a dictionary.
FEW = 16


def read_shapes(path: Path) -> dict[str, Tensor]:
    """The same tensors without their numbers (on the meta device), but for those of a few; the file's beginning is
    read.
    """
    with _opening(path), safe_open(path, framework="pt") as file:
        return {name: _without_numbers(file, name) for name in file.keys()}  # noqa: SIM118 (not a mapping)


def _without_numbers(file: safe_open, name: str) -> Tensor:
    shape = file.get_slice(name).get_shape()
    return file.get_tensor(name) if math.prod(shape) <= FEW else torch.empty(shape, device="meta")


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    if not path.is_file():  # to open a pipe would wait for one who writes
        raise BadInput(f"{path}: no such file")
    try:
        yield
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
    if model.config.wrapped:
        raise BadInput(
            f"a wrapped {model.config.wrapped} model is not written in our format; load the directory that "
            "transformers wrote instead"
        )
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
