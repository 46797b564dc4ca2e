"""Low-rank adapters of a transformer: to every matrix of attention and MLPs a product of two thin matrices is added.

A weight W [in, out] becomes W + 2 down up, with down [in, rank] drawn at random and up [rank, out] zero at the start,
so that a fresh adapter changes nothing. The weights of the base are never written to while it is trained.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.model import Transformer
from vesalius.model.states import read_tensors, write_tensors

#: The usual factor of the product.
SCALE = 2.0
#: The matrices of a layer that are adapted, where it has them.
ADAPTED = ("attn.qkv", "attn.output", "mlp.W_in", "mlp.W_gate", "mlp.W_out")
DOWN, UP = ".down", ".up"

Pair = tuple[Float[Tensor, "inputs rank"], Float[Tensor, "rank outputs"]]


@dataclass(frozen=True)
class Adapter:
    """The pairs of thin matrices by the name of the weight that each changes."""

    pairs: dict[str, Pair]

    @classmethod
    def fresh(cls, model: Transformer, rank: int, seed: int) -> "Adapter":
        """An adapter that changes nothing yet; its first halves follow from the seed alone, not from the device."""
        generator = torch.Generator().manual_seed(seed)
        pairs = {}
        for name, weight in adapted_weights(model).items():
            inputs, outputs = weight.shape
            if rank > min(inputs, outputs):
                raise BadInput(f"`rank` {rank}: {name} is {inputs} by {outputs}; give at most {min(inputs, outputs)}")
            down = torch.randn(inputs, rank, generator=generator) / math.sqrt(inputs)
            pairs[name] = (down.to(weight.device), torch.zeros(rank, outputs, device=weight.device))
        return cls(pairs)

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return sum(part.numel() for pair in self.pairs.values() for part in pair)

    def weights(self, model: Transformer) -> dict[str, Tensor]:
        """The weights of the model with the adapter, gradients included."""
        return {
            name: torch.addmm(model.get_parameter(name), down, up, alpha=SCALE)
            for name, (down, up) in self.pairs.items()
        }

    def merge(self, model: Transformer) -> None:
        """Write the adapter into the weights of a model, which is then the trained one."""
        with torch.no_grad():
            for name, weight in self.weights(model).items():
                model.get_parameter(name).copy_(weight)

    def tensors(self) -> dict[str, Tensor]:
        """Its matrices by name, as its file has them."""
        named = {}
        for name, (down, up) in self.pairs.items():
            named |= {name + DOWN: down, name + UP: up}
        return named

    def write(self, path: Path) -> None:
        """Write it in half the size of float32; what is measured afterwards is what the file holds."""
        halved = {name: tensor.detach().to("cpu", torch.bfloat16) for name, tensor in self.tensors().items()}
        write_tensors(path, halved)

    @classmethod
    def read(cls, path: Path, model: Transformer) -> "Adapter":
        """Read an adapter of this model; a file of other weights or sizes is refused in one line."""
        return cls.of(read_tensors(path), model, source=path)

    @classmethod
    def of(cls, tensors: dict[str, Tensor], model: Transformer, *, source: object) -> "Adapter":
        """The adapter whose `tensors` these are, on the device of the model."""
        weights, pairs = adapted_weights(model), {}
        for name, weight in weights.items():
            down, up = tensors.get(name + DOWN), tensors.get(name + UP)
            if down is None or up is None or not _is_pair(down, up, weight):
                raise BadInput(f"{source}: holds no adapter of {name} with {tuple(weight.shape)}; train it again")
            if not (bool(down.isfinite().all()) and bool(up.isfinite().all())):
                raise BadInput(f"{source}: the adapter of {name} holds NaN or infinity; train it again")
            pairs[name] = (down.to(weight.device, torch.float32), up.to(weight.device, torch.float32))
        return cls(pairs)


def _is_pair(down: Tensor, up: Tensor, weight: Tensor) -> bool:
    """Whether two matrices of one rank make a product of the size of a weight."""
    if down.ndim != 2 or up.ndim != 2 or not (down.is_floating_point() and up.is_floating_point()):
        return False
    return (down.shape[0], up.shape[1]) == tuple(weight.shape) and down.shape[1] == up.shape[0] > 0


def adapted_weights(model: Transformer) -> dict[str, Tensor]:
    """The matrices that an adapter changes, layer by layer; those of experts are left as they are."""
    parameters = dict(model.named_parameters())
    names = [f"blocks.{layer}.{part}" for layer in range(model.config.n_layers) for part in ADAPTED]
    return {name: parameters[name] for name in names if name in parameters and parameters[name].ndim == 2}
