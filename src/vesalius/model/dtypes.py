"""Number formats by name."""

import torch
from torch import Tensor

from vesalius.errors import BadInput

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def dtype_named(name: str | torch.dtype) -> torch.dtype | None:
    """A number format by name; None for "auto", which keeps that of the weights."""
    if isinstance(name, torch.dtype):
        name = str(name).removeprefix("torch.")
    if name == "auto":
        return None
    if name not in DTYPES:
        raise BadInput(f"dtype {name!r} does not exist; choose auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def asked_dtype(name: str | torch.dtype) -> str | None:
    """The name of a number format that was asked for; None for "auto"."""
    dtype = dtype_named(name)
    return None if dtype is None else str(dtype).removeprefix("torch.")


def stored_dtype(weight: Tensor) -> torch.dtype:
    """The number format to keep weights in: their own if it is one of those, else float32."""
    return weight.dtype if weight.dtype in DTYPES.values() else torch.float32
