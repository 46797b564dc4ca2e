"""TransformerLens and InterpBench checkpoints: a `.pth` state dict beside a config.

The state dict is read with `weights_only=True`. The config may be JSON or, as InterpBench publishes it, a pickle of
a configuration object: it is parsed by an unpickler that builds inert records and calls nothing.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius.model.config import Config
from vesalius.model.states import PARSER_ERRORS, State, build
from vesalius.model.transformer import Transformer
from vesalius.values import JsonObject

_NORMS = {None: "none", "LN": "layer", "LNPre": "layer", "RMS": "rms", "RMSPre": "rms"}
#: Norms whose scale was folded into the weights that read from them.
_FOLDED = ("LNPre", "RMSPre")
#: Settings that change what a model computes and that our transformer does not have.
_UNSUPPORTED = (
    "attn_only",
    "parallel_attn_mlp",
    "rotary_adjacent_pairs",
    "use_local_attn",
    "scale_attn_by_inverse_layer_idx",
)
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "relu": "relu", "silu": "silu"}
_BUFFERS = ("mask", "IGNORE", "rotary_sin", "rotary_cos")


class Inert:
    """Replaces any object in a pickle: holds what it would have been built from and does nothing."""

    arguments: tuple[object, ...]
    fields: JsonObject

    def __new__(cls, *arguments: object, **fields: object) -> "Inert":
        # Pickles make most objects by __new__ alone, so nothing may be left to __init__.
        record = super().__new__(cls)
        record.arguments, record.fields = arguments, dict(fields)
        return record

    def __init__(self, *arguments: object, **fields: object) -> None: ...

    def __setstate__(self, state: object) -> None:
        # The state of an object with slots is a pair: its dictionary, if it has one, and its slots.
        states = state if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict) else (state, {})
        attributes, slots = states[0] or {}, states[1]
        self.fields.update({**attributes, **slots} if isinstance(attributes, dict) else {"state": state})

    def __setitem__(self, key: object, value: object) -> None:
        self.fields[str(key)] = value

    def append(self, value: object) -> None:
        """Called by a pickle's append opcode."""
        self.arguments = (*self.arguments, value)

    def extend(self, values: Any) -> None:
        """As `append`, for many."""
        self.arguments = (*self.arguments, *values)


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[Inert]:
        return type(f"{module}.{name}", (Inert,), {})

    def persistent_load(self, pid: object) -> Inert:
        return Inert(pid)


def read_pickle_inert(path: Path) -> Any:
    """Parse a pickle without importing or calling anything it names; objects come back as `Inert` records."""
    try:
        return _InertUnpickler(io.BytesIO(path.read_bytes())).load()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except PARSER_ERRORS as error:
        raise BadInput(f"{path}: not a complete pickle file ({error})") from None


def load_lens(weights: Path, config: Path) -> Transformer:
    """Load a TransformerLens state dict (`.pth`, `.pt`) with its config (`.json`, or `.pkl` parsed without running
    it).
    """
    if config.suffix == ".json":
        fields = read_json(config)
    else:
        parsed = read_pickle_inert(config)
        fields = parsed.fields if isinstance(parsed, Inert) else parsed
        if not isinstance(fields, dict):
            raise BadInput(f"{config}: expected a configuration object, found {type(parsed).__name__}")
    shape, state = lens_config(fields, where=str(config)), _lens_state(weights)
    if fields.get("normalization_type") in _FOLDED:
        norms = [f"blocks.{layer}.ln{i}" for layer in range(shape.n_layers) for i in (1, 2)]
        state |= {f"{norm}.w": torch.ones(shape.d_model) for norm in [*norms, "ln_final"]}
    return build(shape, state, where=str(weights))


def lens_config(fields: JsonObject, *, where: str) -> Config:
    """A `Config` from the fields of a TransformerLens configuration."""
    norm, act = fields.get("normalization_type"), fields.get("act_fn", "relu")
    if norm not in _NORMS or act not in _ACTIVATIONS:
        raise BadInput(f"{where}: normalization_type {norm!r} with act_fn {act!r} is not supported")
    if unsupported := [name for name in _UNSUPPORTED if fields.get(name)]:
        raise BadInput(f"{where}: {unsupported[0]} is not supported; use a model without it")
    rotary = fields.get("positional_embedding_type", "standard") == "rotary"
    try:
        data = {
            **{name: fields[name] for name in ("n_layers", "n_heads", "d_model", "d_head", "d_vocab", "n_ctx")},
            "d_mlp": fields.get("d_mlp") or 4 * fields["d_model"],
            "d_vocab_out": fields["d_vocab"] if fields.get("d_vocab_out", -1) in (-1, None) else fields["d_vocab_out"],
            "n_kv_heads": fields.get("n_key_value_heads") or fields["n_heads"],
            "norm": _NORMS[norm],
            "norm_eps": fields.get("eps", 1e-5),
            "activation": _ACTIVATIONS[act],
            "gated": bool(fields.get("gated_mlp", False)),
            "causal": fields.get("attention_dir", "causal") == "causal",
            "rotary": {"base": float(fields.get("rotary_base", 10_000))} if rotary else None,
        }
    except KeyError as error:
        raise BadInput(f"{where}: field {error} is missing") from None
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where}: a size is not a number ({error})") from None
    return Config.read(data, where=where)


def _lens_state(path: Path) -> State:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except PARSER_ERRORS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(f"{path}: not a plain PyTorch state dict ({reason})") from None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise BadInput(f"{path}: expected a dictionary of tensors")
    renamed = {name.replace("._W_", ".W_").replace("._b_", ".b_"): value for name, value in state.items()}
    return {name: value.float() for name, value in renamed.items() if name.rsplit(".", 1)[-1] not in _BUFFERS}
