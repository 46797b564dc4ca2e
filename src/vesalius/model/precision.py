"""Number formats that a processor is slow in: measured once per machine, and float32 in their place.

Half precision is fast on GPUs and on some processors; on others every product is done number by number, and a model is
ten to a hundred times slower than in float32. One small product in both formats tells which. The ratio is kept beside
the converted models, for the processor, the version of torch and the number of threads that it was measured with.
"""

import platform
import time
from pathlib import Path

import torch

from vesalius.errors import BadInput, Failed, note
from vesalius.files import read_json, write_json
from vesalius.model.conversions import cache_directory
from vesalius.model.devices import (
    Devices,
    available_bytes,
    dtype_named,
    gpus,
    named_devices,
    weight_bytes,
    weight_dtype,
)
from vesalius.model.mlp import HALF
from vesalius.model.transformer import Transformer
from vesalius.values import JsonObject

#: A format that takes this many times as long as float32 is slow.
SLOW = 2.0
FILE = "number_formats.json"
#: The product that is timed: rows of tokens and the sides of a weight; the best of several is taken.
ROWS, SIDE, TIMES = 32, 384, 3


def in_a_fast_format(model: Transformer, dtype: str | torch.dtype, device: Devices) -> str | None:
    """Change the weights of a model that will run on the CPU to float32 where nobody asked for their own format and it
    is slow there, and say so. Returns the format by name; None where it is float32 by itself.
    """
    own = weight_dtype(model)
    if own not in HALF:
        return None
    name = str(own).removeprefix("torch.")
    if not _on_cpu(device):
        return name
    ratio = slowness(own)
    if ratio < SLOW:
        return name
    slower = f"{name} is {ratio:.0f} times slower than float32 on this processor"
    if dtype_named(dtype) is not None:
        note(f"{slower}; --dtype float32 takes twice the memory and less time")
        return name
    free = available_bytes(torch.device("cpu"))
    if free is not None and free < 2 * weight_bytes(model):
        note(f"{slower}, and float32 would need {2 * weight_bytes(model) / 2**30:.1f} GB, more than there is free")
        return name
    model.float()
    note(f"the weights are kept in float32, twice the memory: {slower}; --dtype {name} keeps them as they are stored")
    return "float32"


def format_in_use(stored: torch.dtype, device: Devices) -> torch.dtype:
    """The format that a model of this one would run in where nobody asks for another."""
    slow = stored in HALF and _on_cpu(device) and slowness(stored) >= SLOW
    return torch.float32 if slow else stored


def _on_cpu(device: Devices) -> bool:
    if isinstance(device, str) and device.strip() == "auto":
        return not gpus()
    return all(one.type == "cpu" for one in named_devices(device))


def slowness(dtype: torch.dtype) -> float:
    """How many times as long as in float32 a product takes on this processor, measured once and kept."""
    name = str(dtype).removeprefix("torch.")
    path, machine = cache_directory() / FILE, _machine()
    kept = _kept(path, machine)
    if isinstance(ratio := kept.get(name), int | float) and ratio > 0:
        return float(ratio)
    ratio = measured(dtype)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"machine": machine, "ratios": {**kept, name: round(ratio, 2)}})
    except (OSError, Failed):
        pass  # a cache that cannot be written is measured again
    return ratio


def _kept(path: Path, machine: JsonObject) -> JsonObject:
    """The ratios that were measured on this machine."""
    try:
        data = read_json(path)
    except (BadInput, Failed, OSError):
        return {}
    same = isinstance(data, dict) and data.get("machine") == machine and isinstance(data.get("ratios"), dict)
    return data["ratios"] if same else {}


def _machine() -> JsonObject:
    """What a ratio depends on."""
    return {
        "processor": _processor(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    told = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "CPU part", "flags"))]
    return " ".join(dict.fromkeys(told))[:2000] or platform.machine()


@torch.no_grad()
def measured(dtype: torch.dtype) -> float:
    """The ratio, by the time of the process: other programs do not count."""
    return _seconds(dtype) / max(_seconds(torch.float32), 1e-9)


def _seconds(dtype: torch.dtype) -> float:
    x, weight = torch.ones(ROWS, SIDE, dtype=dtype), torch.ones(SIDE, SIDE, dtype=dtype)
    x @ weight  # the first product prepares the library
    best = float("inf")
    for _ in range(TIMES):
        begun = time.process_time()
        for _ in range(4):
            x @ weight
        best = min(best, time.process_time() - begun)
    return best
