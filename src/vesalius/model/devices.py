"""Where a model's weights are: on one device, or its layers spread over several; and the number formats by name.

Each device of a spread model holds a run of consecutive layers. The embedding is with the first layer, the final norm
and the unembedding with the last (an unembedding tied to the embedding stays with it). Activations stay on the device
that computed them; the residual stream is copied where the next layer is on another device.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from vesalius.errors import BadInput
from vesalius.model.transformer import Transformer

#: A device by name, several with commas between them, a list of them, or "auto".
Devices = str | torch.device | Sequence[str | torch.device]
#: The part of a GPU's free memory that weights may take before "auto" spreads a model: activations need room as well.
WEIGHT_SHARE = 0.75


class DeviceCopies:
    """A tensor, and its copies on other devices: each is made when it is first needed."""

    def __init__(self, value: Tensor) -> None:
        self._by_device = {value.device: value}
        self.value = value

    def __len__(self) -> int:
        return len(self.value)

    def on(self, device: torch.device) -> Tensor:
        """The tensor on a device."""
        if device not in self._by_device:
            self._by_device[device] = self.value.to(device)
        return self._by_device[device]


def place(model: Transformer, devices: Devices, *, natural: bool = True) -> tuple[torch.device, ...]:
    """Move a model to a device, or spread its layers over several; returns the devices in use, first layer first. A
    model on the meta device gets memory there, which is not filled.

    "auto" is one GPU where there is one, several where one has no room for the weights, else the CPU (`natural` False:
    always the CPU, which is faster for small circuits).
    """
    if isinstance(devices, str) and devices.strip() == "auto":
        chosen = automatic_devices(model) if natural else (torch.device("cpu"),)
    else:
        chosen = named_devices(devices)
    if len(chosen) == 1:
        tied = model.unembed_weight is model.W_E
        _put(model, chosen[0])
        if tied:
            model.unembed_weight = model.W_E
        return chosen
    return spread(model, chosen, [free_bytes(device) for device in chosen])


def spread(model: Transformer, devices: Sequence[torch.device], room: Sequence[int]) -> tuple[torch.device, ...]:
    """Put consecutive layers on each device, as many as its share of the room holds."""
    layers = [weight_bytes(block) for block in model.blocks]
    tied = model.unembed_weight is model.W_E
    outer = {"W_E": model.W_E} | ({} if model.W_pos is None else {"W_pos": model.W_pos})
    ends = {"b_U": model.b_U} | ({} if tied else {"unembed_weight": model.unembed_weight})
    order = assign_layers(
        layers, room, first=_size(outer.values()), last=_size(ends.values()) + weight_bytes(model.ln_final)
    )
    for block, place_of_block in zip(model.blocks, order, strict=True):
        _put(block, devices[place_of_block])
    first, last = devices[order[0]], devices[order[0] if tied else order[-1]]
    _put(model.ln_final, last)
    for names, device in ((outer, first), (ends, last)):
        for name, weight in names.items():
            setattr(model, name, _put_weight(weight, device))
    if tied:
        model.unembed_weight = model.W_E
    return tuple(devices[i] for i in dict.fromkeys(order))


def _put(module: nn.Module, device: torch.device) -> None:
    if not any(weight.is_meta for weight in module.parameters()):
        module.to(device)
        return
    for part in module.modules():
        for name, weight in part.named_parameters(recurse=False):
            setattr(part, name, _put_weight(weight, device))


def _put_weight(weight: nn.Parameter, device: torch.device) -> nn.Parameter:
    if weight.is_meta:
        # `empty_like` and `to_empty` of weights without memory import a package for symbolic sizes, for seconds.
        return nn.Parameter(torch.empty(weight.shape, dtype=weight.dtype, device=device), weight.requires_grad)
    weight.data = weight.data.to(device)
    return weight


def assign_layers(layers: Sequence[int], room: Sequence[int], *, first: int = 0, last: int = 0) -> list[int]:
    """The device of every layer, from the layers' bytes and the devices' room; `first` and `last` are the bytes that
    stand with the first and the last layer. Every device gets the same share of its room filled, as nearly as whole
    layers allow; a device without room gets none.
    """
    weights = [first + layers[0], *layers[1:-1], layers[-1] + last] if len(layers) > 1 else [first + sum(layers) + last]
    total, whole = sum(weights), sum(room)
    if not whole:
        raise BadInput("none of the devices has memory free; free some, or name other devices")
    limits, until = [], 0.0
    for free in room:
        until += total * free / whole
        limits.append(until)
    order, done = [], 0.0
    for weight in weights:
        middle = done + weight / 2
        order.append(next((i for i, limit in enumerate(limits) if middle <= limit), len(room) - 1))
        done += weight
    return order


def automatic_devices(model: Transformer) -> tuple[torch.device, ...]:
    """The GPU with most room where the weights fit it, all GPUs where they do not, the CPU without any."""
    return fitting_devices(weight_bytes(model), {gpu: free_bytes(gpu) for gpu in gpus()})


def gpus() -> tuple[torch.device, ...]:
    """All GPUs that torch sees."""
    return tuple(torch.device("cuda", i) for i in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()


def fitting_devices(needed: int, room: dict[torch.device, int]) -> tuple[torch.device, ...]:
    """One of the GPUs with this room where it holds `needed` bytes of weights and leaves enough for activations, all
    of them where it does not, the CPU where there is none.
    """
    if not room:
        return (torch.device("cpu"),)
    best = next(iter(room))
    if room[best] * WEIGHT_SHARE < needed:
        best = max(room, key=lambda device: room[device])
    return (best,) if room[best] * WEIGHT_SHARE >= needed else tuple(room)


def replica_devices(devices: str, number: int, n_gpus: int) -> str:
    """Where the worker of this number puts its copy of a model that is on these devices: each on a GPU, or a group of
    GPUs, of its own as long as there are any; then in turn. `n_gpus` are those that the worker sees, perhaps fewer than
    there are. Other devices stay.
    """
    names = [name.strip() for name in devices.split(",")]
    groups = n_gpus // len(names)
    if not groups or not all(name.startswith("cuda") for name in names):
        return devices
    first = (number % groups) * len(names)
    return ",".join(f"cuda:{first + i}" for i in range(len(names)))


def named_devices(names: Devices) -> tuple[torch.device, ...]:
    """Devices by name, or one line saying why one cannot be used here."""
    given = names.split(",") if isinstance(names, str) else [names] if isinstance(names, torch.device) else list(names)
    wanted = [name.strip() if isinstance(name, str) else name for name in given]
    if not wanted or "" in wanted:
        raise BadInput(f"device {names!r} names no device; write cpu, cuda, or several such as cuda:0,cuda:1")
    if "auto" in wanted and len(wanted) > 1:
        raise BadInput(f"device {names!r}: auto chooses by itself; write auto alone, or name every device")
    return tuple(chosen_device(name) for name in wanted)


def chosen_device(name: str | torch.device) -> torch.device:
    """One device by name, or one line saying why it cannot be used here; "auto" is a GPU where there is one."""
    name = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise BadInput(f"device {str(name)!r} cannot be used here ({str(error).splitlines()[0]}); try cpu") from None
    return device


def free_bytes(device: torch.device) -> int:
    """What a GPU has free; the same number for every other device, so that layers are spread evenly over those."""
    if device.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def available_bytes(device: torch.device) -> int | None:
    """What a device has free, main memory included; None where the system does not say."""
    if device.type == "cuda":
        return free_bytes(device)
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    try:  # a container may have less than its machine
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        return free if limit == "max" else max(0, min(free, int(limit) - int(used)))
    except (OSError, ValueError):
        return free


def weight_bytes(model: torch.nn.Module) -> int:
    """Bytes of all weights of a model or a part of it; those that are shared count once."""
    return _size(model.parameters())


def weight_dtype(model: Transformer) -> torch.dtype:
    """The number format of the weights (norms are float32)."""
    return model.W_E.dtype


def _size(weights: "Sequence[Tensor] | object") -> int:
    return sum(weight.numel() * weight.element_size() for weight in weights)  # type: ignore[attr-defined]


# Number formats by name.

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
