"""How many bytes a computation holds at its peak, found without the numbers.

A model without weights (on torch's `meta` device) is run through the same code as the real one: every tensor has its
shape and no content. `LiveMemory` counts the storages that are alive at the same time, as a GPU's allocator does.
"""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode  # documented in "Extending PyTorch"
from torch.utils._pytree import tree_leaves

from vesalius.model.config import Config
from vesalius.model.transformer import Transformer


class LiveMemory(TorchDispatchMode):
    """Within this context, the bytes of tensors on one kind of device that are alive (`current`) and were at most
    (`peak`). What `known` holds is not counted. Numbers that leave the `meta` device are zeros.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's compiler takes seconds to import, and nothing is compiled here

    def __init__(self, device: str, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.device, self.current, self.peak = device, 0, 0
        self._alive: dict[int, Any] = {id(tensor.untyped_storage()): tensor for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and args[0].is_meta and kwargs.get("device") == torch.device("cpu"):
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        result = func(*args, **kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.device.type == self.device:
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        name, size = id(storage), storage.nbytes()
        if name in self._alive:
            return
        self._alive[name] = weakref.finalize(storage, self._free, name, size)
        self.current += size
        self.peak = max(self.peak, self.current)

    def _free(self, name: int, size: int) -> None:
        self._alive.pop(name, None)
        self.current -= size


def runnable_shape(config: Config, dtype: torch.dtype) -> Transformer:
    """A model of this shape that runs without numbers. MLPs made of experts become one MLP as wide as the experts that
    a token passes, since which ones it passes is decided by numbers.
    """
    if config.experts is not None:
        wide = config.experts.d_expert * config.experts.n_active
        config = config.model_copy(update={"experts": None, "d_mlp": max(config.d_mlp, wide)})
    return shape_of(config, dtype)


def shape_of(config: Config, dtype: torch.dtype) -> Transformer:
    """A model of this shape without memory for its weights."""
    with torch.device("meta"):
        model = Transformer(config)
    for name, weight in model.named_parameters():
        if not name.endswith((".w", ".b")):
            weight.data = weight.data.to(dtype)
    return model.eval().requires_grad_(False)
