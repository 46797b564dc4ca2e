"""Devices for tests on a machine without any: tensors that say where they are, and a record of every transfer.

Under `LogicalDevices` the devices "meta:0", "meta:1", ... hold real numbers in ordinary memory. A tensor made there, or
moved there by `.to`, carries the name, and so does everything computed from it. An operation on tensors of two
devices is refused, as CUDA refuses it: numbers without axes and index tensors on the CPU excepted.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

CPU = torch.device("cpu")
_DEVICE = Tensor.device.__get__  # type: ignore[attr-defined]
_INDEXING = ("__getitem__", "__setitem__", "index_put", "index_put_")
#: What reads a tensor's numbers, and so brings them to the CPU.
_READING = ("tolist", "item", "__bool__", "__int__", "__float__", "__index__", "numpy", "__format__", "__repr__")


class LogicalDevices(TorchFunctionMode):
    """Within this context tensors have logical devices; `transfers` counts moves by (from, to)."""

    def __init__(self) -> None:
        super().__init__()
        self.transfers: Counter[tuple[str, str]] = Counter()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        owner = getattr(function, "__self__", None)
        if name == "__get__":
            return self._property(owner, function, args, kwargs)
        if name == "__set__":
            return self._assign(owner, function, args, kwargs)
        if name == "cpu":
            return _placed(args[0].view_as(args[0]), CPU)
        if function is torch.autograd.grad:  # each gradient is where its tensor is
            return tuple(_placed(g, device_of(x)) for g, x in zip(function(*args, **kwargs), args[1], strict=True))
        if name in _READING or name.startswith("_has_"):
            return function(*args, **kwargs)
        wanted, args, kwargs = _taken_device(name, args, kwargs)
        if name == "to" and wanted is None and isinstance(args[1] if len(args) > 1 else None, Tensor):
            wanted = device_of(args[1])
        here = _common_device(name or str(resolve_name(function)), args, kwargs)
        result = function(*args, **kwargs)
        if wanted is not None and name == "to" and wanted != here:
            self.transfers[str(here), str(wanted)] += 1
            result = result.view_as(result) if result is args[0] else result
        return _place_all(result, here if wanted is None else wanted)

    def _property(self, owner: Any, function: Any, args: Any, kwargs: Any) -> Any:
        if owner is Tensor.device:
            return device_of(args[0])
        result = function(*args, **kwargs)
        return _placed(result, device_of(args[0])) if isinstance(result, Tensor) else result

    def _assign(self, owner: Any, function: Any, args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(args[1], Tensor):
            _placed(args[0], device_of(args[1]))
        return result


def device_of(tensor: Tensor) -> torch.device:
    """The logical device of a tensor."""
    return getattr(tensor, "logical_device", CPU)


def _placed(tensor: Any, device: torch.device) -> Any:
    if isinstance(tensor, Tensor):
        tensor.logical_device = device  # type: ignore[attr-defined]
    return tensor


def _place_all(result: Any, device: torch.device) -> Any:
    for tensor in _tensors(result):
        _placed(tensor, device)
    return result


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _taken_device(name: str, args: Any, kwargs: dict[str, Any]) -> tuple[torch.device | None, Any, dict[str, Any]]:
    """The device that a call names, and the call with the CPU in its place."""
    wanted = None
    if kwargs.get("device") is not None:
        wanted, kwargs = torch.device(kwargs["device"]), {**kwargs, "device": CPU}
    if name == "to":
        listed = list(args)
        for i, value in enumerate(listed[1:], 1):
            if isinstance(value, str | torch.device):
                wanted, listed[i] = torch.device(value), CPU
        args = tuple(listed)
    return wanted, args, kwargs


def _common_device(name: str, args: Any, kwargs: dict[str, Any]) -> torch.device:
    tensors = [*_tensors(args), *_tensors(list(kwargs.values()))]
    if name in _INDEXING and tensors:
        first = device_of(tensors[0])
        tensors = [tensors[0], *(t for t in tensors[1:] if not (device_of(t) == CPU and first != CPU))]
    if name in ("copy_",):
        return device_of(tensors[0])
    devices = {device_of(tensor) for tensor in tensors if tensor.ndim}
    if len(devices) > 1:
        raise AssertionError(f"{name} mixes tensors on {', '.join(sorted(map(str, devices)))}")
    if devices:
        return devices.pop()
    placed = [device_of(tensor) for tensor in tensors if device_of(tensor) != CPU]
    return placed[0] if placed else CPU
