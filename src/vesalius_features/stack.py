"""Transcoders of several layers, trained together: every weight has a row for each layer.

A transcoder reads what enters an MLP and says what leaves it as a sum of `k` directions (Dunefsky et al. 2024):
`latents = topk(x W_enc + b_enc)`, `y = latents W_dec + b_dec`. What follows the literature, at a modest size:

1. Inputs and outputs are scaled to a mean square of one for each number, so that one learning rate serves all layers.
2. The k largest latents are active and no penalty is needed (Gao et al. 2024). As circuit-tracer's topk does, a
   negative one stays negative.
3. Directions that are written have length 1: after each step they are brought back to it, and a step's part along
   them is taken out.
4. Latents that were not active for a while learn what the others miss, with a small weight (auxiliary loss).

The loss is the share of variance that is missed. Everything that is drawn is drawn for each layer by itself, so that a
layer learns the same whichever others are in its stack.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from vesalius.errors import BadInput

#: Weight of the auxiliary loss, the share of a batch's tokens that it is computed on, and the steps after which a
#: latent that was never active takes part.
AUXILIARY, AUXILIARY_SHARE, DEAD_AFTER = 1 / 32, 8, 64
#: Shares of the steps in which the learning rate rises, and falls.
RISING, FALLING = 0.05, 0.3
#: The learning rate at so many latents; it falls with the root of their number.
RATE, RATE_AT = 8e-4, 1_024
#: Tensors of one number for each latent and token that a step holds at its peak, and copies of the weights (gradients
#: and Adam's moments among them).
HELD, COPIES = 10, 5
WEIGHTS = ("W_enc", "b_enc", "W_dec", "b_dec")


def drawn_by(seed: int, number: int) -> torch.Generator:
    """The generator of one of the draws of a training; any seed is taken."""
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % (1 << 63))


def rate_at(step: int, steps: int, highest: float) -> float:
    """The learning rate of a step: it rises from near 0, stays, and falls to near 0."""
    rising, falling = max(1, round(RISING * steps)), max(1, round(FALLING * steps))
    return highest * min(1.0, (step + 1) / rising, (steps - step) / falling)


def highest_rate(latents: int) -> float:
    """The highest learning rate, where none is given."""
    return RATE * (RATE_AT / latents) ** 0.5


def stack_bytes(layers: int, d: int, latents: int, batch: int) -> int:
    """Bytes that training so many layers together takes at its peak, activations of the model left out."""
    return 4 * layers * (COPIES * 2 * d * latents + HELD * batch * latents + 6 * batch * d)


@dataclass
class Stack:
    """The weights of some layers in training, with what scales each layer's activations."""

    layers: tuple[int, ...]
    k: int
    W_enc: Float[Tensor, "layer d latent"]
    b_enc: Float[Tensor, "layer latent"]
    W_dec: Float[Tensor, "layer latent d"]
    b_dec: Float[Tensor, "layer d"]
    scale_in: Float[Tensor, " layer"]
    scale_out: Float[Tensor, " layer"]
    mean_out: Float[Tensor, "layer d"]
    #: Steps since each latent was active.
    idle: Int[Tensor, "layer latent"]

    @classmethod
    def start(
        cls,
        layers: Sequence[int],
        read: Float[Tensor, "layer token d"],
        written: Float[Tensor, "layer token d"],
        *,
        latents: int,
        k: int,
        seed: int,
    ) -> "Stack":
        """Random directions, and the scales of the activations that are given."""
        device, (n_layers, _, d) = read.device, read.shape
        mean_out = written.mean(1)
        scale_in = read.pow(2).mean((1, 2)).clamp(min=1e-12).rsqrt()
        scale_out = (written - mean_out[:, None]).pow(2).mean((1, 2)).clamp(min=1e-12).rsqrt()
        drawn = []
        for layer in layers:
            generator = drawn_by(seed, layer)
            drawn.append([torch.randn(d, latents, generator=generator), torch.randn(latents, d, generator=generator)])
        W_enc = F.normalize(torch.stack([one for one, _ in drawn]), dim=1).to(device)
        W_dec = F.normalize(torch.stack([one for _, one in drawn]), dim=2).to(device)
        middle = read.mean(1) * scale_in[:, None]
        b_enc = -torch.einsum("ld,ldm->lm", middle, W_enc)
        idle = torch.zeros(n_layers, latents, dtype=torch.long, device=device)
        b_dec = torch.zeros(n_layers, d, device=device)
        return cls(tuple(layers), k, W_enc, b_enc, W_dec, b_dec, scale_in, scale_out, mean_out, idle)

    @property
    def weights(self) -> list[Tensor]:
        """What is learnt."""
        return [getattr(self, name) for name in WEIGHTS]

    def scaled(
        self, read: Float[Tensor, "layer token d"], written: Float[Tensor, "layer token d"]
    ) -> tuple[Float[Tensor, "layer token d"], Float[Tensor, "layer token d"]]:
        """Activations at the size that is trained at."""
        y = (written - self.mean_out[:, None]) * self.scale_out[:, None, None]
        return read * self.scale_in[:, None, None], y

    def loss(
        self, x: Float[Tensor, "layer token d"], y: Float[Tensor, "layer token d"]
    ) -> tuple[Float[Tensor, ""], Int[Tensor, "layer token active"]]:
        """The share of variance that is missed, summed over layers, and which latents were active."""
        pre = torch.baddbmm(self.b_enc[:, None], x, self.W_enc)
        latents, active = _largest(pre, self.k)
        missed = y - torch.baddbmm(self.b_dec[:, None], latents, self.W_dec)
        total = missed.pow(2).mean((1, 2)).sum()
        dead = self.idle > DEAD_AFTER
        if bool(dead.any()):
            total = total + AUXILIARY * self._auxiliary(pre, missed.detach(), dead)
        return total, active

    def _auxiliary(
        self,
        pre: Float[Tensor, "layer token latent"],
        missed: Float[Tensor, "layer token d"],
        dead: Bool[Tensor, "layer latent"],
    ) -> Float[Tensor, ""]:
        """What the largest dead latents miss of what the others miss, as a share of it, on some of the tokens."""
        some = slice(0, max(1, pre.shape[1] // AUXILIARY_SHARE))
        most = min(int(dead.sum(1).max()), max(self.k, pre.shape[2] // 8, missed.shape[2] // 2), pre.shape[2])
        only = pre[:, some].masked_fill(~dead[:, None], float("-inf"))
        values, places = only.topk(most, dim=-1, sorted=False)
        latents = torch.zeros_like(only).scatter(-1, places, values.masked_fill(values.isinf(), 0.0))
        error = missed[:, some]
        left = (error - torch.bmm(latents, self.W_dec)).pow(2).mean((1, 2))
        share = left / error.pow(2).mean((1, 2)).clamp(min=1e-12)
        return (share * dead.any(1)).sum()

    @torch.no_grad()
    def note_active(self, active: Int[Tensor, "layer token active"]) -> None:
        """Count the steps since each latent was active."""
        self.idle += 1
        self.idle.scatter_(1, active.flatten(1), 0)

    @torch.no_grad()
    def remove_growth(self) -> None:
        """Take out of the gradient what would only change the length of a direction."""
        assert self.W_dec.grad is not None
        along = (self.W_dec.grad * self.W_dec).sum(-1, keepdim=True)
        self.W_dec.grad.addcmul_(self.W_dec, along, value=-1.0)

    @torch.no_grad()
    def unit_length(self) -> None:
        """Bring the directions back to length 1."""
        self.W_dec.div_(self.W_dec.norm(dim=-1, keepdim=True).clamp(min=1e-12))

    @torch.no_grad()
    def unscaled(self, i: int) -> dict[str, Tensor]:
        """The weights of the i-th layer for activations as the model has them; directions keep length 1."""
        grown = 1 / self.scale_out[i]
        return {
            "W_enc": self.W_enc[i] * self.scale_in[i] * grown,
            "b_enc": self.b_enc[i] * grown,
            "W_dec": self.W_dec[i],
            "b_dec": self.b_dec[i] * grown + self.mean_out[i],
        }


def _largest(
    pre: Float[Tensor, "layer token latent"], k: int
) -> tuple[Float[Tensor, "layer token latent"], Int[Tensor, "layer token active"]]:
    """The k largest, all others zero, and where they are."""
    values, places = pre.topk(k, dim=-1, sorted=False)
    return torch.zeros_like(pre).scatter(-1, places, values), places


class Trainer:
    """Adam on a stack, step by step; its state is tensors, so that training continues after an interruption."""

    def __init__(self, stack: Stack, *, steps: int, rate: float) -> None:
        self.stack, self.steps, self.rate, self.step = stack, steps, rate, 0
        for weight in stack.weights:
            weight.requires_grad_()
        self.adam = torch.optim.Adam(stack.weights, lr=rate, betas=(0.9, 0.999))
        self.losses: list[float] = []

    def take(self, read: Float[Tensor, "layer token d"], written: Float[Tensor, "layer token d"]) -> Tensor:
        """One step on some tokens; returns the share of variance missed, mean over layers."""
        x, y = self.stack.scaled(read, written)
        for group in self.adam.param_groups:
            group["lr"] = rate_at(self.step, self.steps, self.rate)
        self.adam.zero_grad(set_to_none=True)
        loss, active = self.stack.loss(x, y)
        loss.backward()
        self.stack.remove_growth()
        self.adam.step()
        self.stack.unit_length()
        self.stack.note_active(active)
        self.step += 1
        return loss.detach() / len(self.stack.layers)

    def require_finite(self) -> None:
        """Refuse to go on with weights that are numbers no more."""
        if not all(bool(weight.isfinite().all()) for weight in self.stack.weights):
            raise BadInput(
                f"learning_rate={self.rate:g} is too high: the weights are no numbers any more after step {self.step}; "
                "give a smaller one, and another `out`"
            )

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on."""
        stack = self.stack
        kept = {name: getattr(stack, name).detach() for name in (*WEIGHTS, *_SCALES)}
        for name, weight in zip(WEIGHTS, stack.weights, strict=True):
            for moment in ("exp_avg", "exp_avg_sq"):
                kept[f"{name}.{moment}"] = self.adam.state[weight][moment]
        return {**kept, "layers": torch.tensor(stack.layers), "step": torch.tensor(self.step)}

    @classmethod
    def resume(cls, state: dict[str, Tensor], *, k: int, steps: int, rate: float, device: torch.device) -> "Trainer":
        """A trainer where another one was left."""
        held = {name: state[name].to(device) for name in (*WEIGHTS, *_SCALES)}
        trainer = cls(Stack(layers=tuple(state["layers"].tolist()), k=k, **held), steps=steps, rate=rate)
        trainer.step = int(state["step"])
        for name, weight in zip(WEIGHTS, trainer.stack.weights, strict=True):
            moments = {moment: state[f"{name}.{moment}"].to(device) for moment in ("exp_avg", "exp_avg_sq")}
            trainer.adam.state[weight] = {"step": torch.tensor(float(trainer.step)), **moments}
        return trainer


_SCALES = ("scale_in", "scale_out", "mean_out", "idle")


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Matrix products with inputs of ten bits on GPUs: enough for gradients; figures are measured without."""
    before = torch.get_float32_matmul_precision()
    if device.type != "cpu":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
