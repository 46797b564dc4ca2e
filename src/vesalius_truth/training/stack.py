"""Many small transformers trained together: a matrix of weights with a row per copy.

1. All copies share the largest shape among them. A smaller model lives in the leading corner of every weight; the rest
   is zero and stays zero, because its gradient is masked. Zero rows and columns add nothing, so a padded model computes
   what it would compute alone; only the attention scale and the missing output classes are set per copy.
2. Activations are laid out [copy, feature, position, row], rows last: with thousands of tiny rows every elementwise
   step runs along long vectors, and every linear map is one batched matmul per copy.
3. A node (head or MLP) is replaced at its own output before the bias: a head's z, an MLP's W_out times its hidden
   layer. The intervention engine replaces them at the same points.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from vesalius.model import Component, Config
from vesalius.model.states import State
from vesalius_truth.training.setting import Setting

_MASKED = -1e9  # attention score of a blocked key, logit of a missing class
_SMALL_HEAD = 10  # up to here attention is a sum of products along rows, above it a matmul per row

_DIMS = {
    "embed": ("d_model", "d_vocab"),
    "pos": ("d_model", "n_ctx"),
    "qkv": (3, "n_heads", "d_head", "d_model"),
    "b_qkv": (3, "n_heads", "d_head"),
    "out": ("d_model", "n_heads", "d_head"),
    "b_out": ("d_model",),
    "mlp_in": ("d_mlp", "d_model"),
    "b_mlp_in": ("d_mlp",),
    "mlp_out": ("d_model", "d_mlp"),
    "b_mlp_out": ("d_model",),
    "unembed": ("d_vocab_out", "d_model"),
    "b_unembed": ("d_vocab_out",),
}
_IN_LAYER = ("qkv", "b_qkv", "out", "b_out", "mlp_in", "b_mlp_in", "mlp_out", "b_mlp_out")


@dataclass(frozen=True)
class Copy:
    """One model of a stack: its setting, the seed of its initial weights and its learning rate."""

    setting: int
    seed: int
    learning_rate: float


class Nodes(NamedTuple):
    """The outputs of all heads and MLPs, one tensor per layer."""

    z: tuple[Float[Tensor, "copy head d_head pos row"], ...]
    mlp: tuple[Float[Tensor, "copy d_model pos row"], ...]


class Patch(NamedTuple):
    """Replacements for the last rows of a run: where `mask` is true a node takes the value given here."""

    mask: Bool[Tensor, "copy node pos row"]
    values: Nodes


class Stack:
    """The weights of many copies and the run that they share."""

    def __init__(self, settings: Sequence[Setting], copies: Sequence[Copy], *, device: torch.device) -> None:
        self.settings, self.copies, self.device = tuple(settings), tuple(copies), device
        self.configs = [settings[copy.setting].config for copy in copies]
        self.shape = _largest(self.configs)
        self.names = _names(self.shape.n_layers)
        self.sizes = [_dims(name, self.shape) for name in self.names]
        self.lengths = [math.prod(size) for size in self.sizes]
        self.task = torch.tensor([copy.setting for copy in copies], device=device)
        ones = ({name: torch.ones(_dims(name, one)) for name in _names(one.n_layers)} for one in self.configs)
        self.mask = torch.stack(list(map(self._pack, ones))).to(device)
        self.weights = torch.stack([self._pack(self._initial(copy)) for copy in copies]).to(device)
        self.weights.requires_grad_()
        self.scale = torch.tensor([config.d_head**-0.5 for config in self.configs], device=device)
        self.numerical = torch.tensor([settings[copy.setting].program.numerical for copy in copies], device=device)
        self.any_numerical, self.all_numerical = bool(self.numerical.any()), bool(self.numerical.all())
        n_out = torch.tensor([config.d_vocab_out for config in self.configs])
        missing = torch.arange(self.shape.d_vocab_out) >= n_out[:, None]
        self.missing_outputs = (missing * _MASKED).to(device)
        self.attention_bias = torch.stack([_attention_bias(config, self.shape.n_ctx) for config in self.configs]).to(
            device
        )

    def __len__(self) -> int:
        return len(self.copies)

    @property
    def n_nodes(self) -> int:
        """Heads and MLPs of the shared shape."""
        return self.shape.n_layers * (self.shape.n_heads + 1)

    def largest_activation(self, rows: int) -> int:
        """Size of one MLP's hidden layer when every copy runs so many rows."""
        return len(self) * rows * self.shape.n_ctx * self.shape.d_mlp

    def node(self, component: Component) -> int:
        """Index of a component among the nodes of the shared shape."""
        within = self.shape.n_heads if component.head is None else component.head
        return component.layer * (self.shape.n_heads + 1) + within

    def run(
        self,
        weights: Float[Tensor, "copy parameter"],
        tokens: Int[Tensor, "copy pos row"],
        real: Bool[Tensor, "copy pos row"],
        patch: Patch | None = None,
    ) -> tuple[Float[Tensor, "copy out pos row"], Nodes]:
        """Logits of every row and the outputs of the nodes (before replacement, without biases)."""
        w = self._views(weights)
        score_bias = torch.where(real[:, None, None], 0.0, _MASKED) + self.attention_bias[:, None, :, :, None]
        x = self._embed(w, tokens)
        heads, mlps = [], []
        for layer in range(self.shape.n_layers):
            z = self._attend(w, layer, x, score_bias)
            heads.append(z)
            joined = self._patched(z, patch, layer).flatten(1, 2)
            x = x + _linear(w[f"{layer}.out"].flatten(2), w[f"{layer}.b_out"], joined)
            hidden = F.gelu(_linear(w[f"{layer}.mlp_in"], w[f"{layer}.b_mlp_in"], x))
            mlp = (w[f"{layer}.mlp_out"] @ hidden.flatten(2)).unflatten(2, x.shape[2:])
            mlps.append(mlp)
            x = x + self._patched(mlp, patch, layer) + w[f"{layer}.b_mlp_out"][:, :, None, None]
        logits = _linear(w["unembed"], w["b_unembed"] + self.missing_outputs, x)
        return logits, Nodes(tuple(heads), tuple(mlps))

    @torch.no_grad()
    def export(self, copy: int) -> State:
        """One copy's weights at its own size, in TransformerLens' names and shapes."""
        config = self.configs[copy]
        padded = self._views(self.weights[copy : copy + 1])
        w = {name: padded[name][0][_corner(name, config)].cpu() for name in _names(config.n_layers)}
        state = {"embed.W_E": w["embed"].T, "pos_embed.W_pos": w["pos"].T}
        for layer in range(config.n_layers):
            attn, mlp = f"blocks.{layer}.attn.", f"blocks.{layer}.mlp."
            for i, letter in enumerate("QKV"):
                state[f"{attn}W_{letter}"] = w[f"{layer}.qkv"][i].transpose(1, 2)
                state[f"{attn}b_{letter}"] = w[f"{layer}.b_qkv"][i]
            state[f"{attn}W_O"], state[f"{attn}b_O"] = w[f"{layer}.out"].permute(1, 2, 0), w[f"{layer}.b_out"]
            state[f"{mlp}W_in"], state[f"{mlp}b_in"] = w[f"{layer}.mlp_in"].T, w[f"{layer}.b_mlp_in"]
            state[f"{mlp}W_out"], state[f"{mlp}b_out"] = w[f"{layer}.mlp_out"].T, w[f"{layer}.b_mlp_out"]
        state |= {"unembed.W_U": w["unembed"].T, "unembed.b_U": w["b_unembed"]}
        return {name: value.clone(memory_format=torch.contiguous_format) for name, value in state.items()}

    def _initial(self, copy: Copy) -> dict[str, Tensor]:
        """The initial weights of a copy: its setting's, or random ones."""
        setting = self.settings[copy.setting]
        if setting.start is None:
            return initial_weights(setting.config, copy.seed)
        return _from_state(setting.start, setting.config.n_layers)

    def _views(self, weights: Float[Tensor, "copy parameter"]) -> dict[str, Tensor]:
        parts = weights.split(self.lengths, 1)
        return {name: parts[i].view(len(weights), *self.sizes[i]) for i, name in enumerate(self.names)}

    def _pack(self, weights: dict[str, Tensor]) -> Float[Tensor, " parameter"]:
        """A model's weights in the leading corners of the shared shape, as one row."""
        parts = []
        for name, size in zip(self.names, self.sizes, strict=True):
            padded = torch.zeros(size)
            if name in weights:
                padded[tuple(slice(0, n) for n in weights[name].shape)] = weights[name]
            parts.append(padded.flatten())
        return torch.cat(parts)

    def _embed(
        self, w: dict[str, Tensor], tokens: Int[Tensor, "copy pos row"]
    ) -> Float[Tensor, "copy d_model pos row"]:
        """A matmul with one-hot tokens: unlike a gather, its gradient is the same in every run."""
        ids = torch.arange(self.shape.d_vocab, device=tokens.device, dtype=tokens.dtype)[:, None, None]
        one_hot = (tokens[:, None] == ids).to(w["embed"].dtype)
        return (w["embed"] @ one_hot.flatten(2)).unflatten(2, tokens.shape[1:]) + w["pos"][..., None]

    def _attend(self, w: dict[str, Tensor], layer: int, x: Tensor, score_bias: Tensor) -> Tensor:
        weight, bias = w[f"{layer}.qkv"], w[f"{layer}.b_qkv"]
        qkv = _linear(weight.flatten(1, 3), bias.flatten(1), x).unflatten(1, weight.shape[1:4])
        q, k, v = qkv.unbind(1)
        q = q * self.scale[:, None, None, None, None]
        mix = _mix_along_rows if q.shape[2] <= _SMALL_HEAD else _mix_by_matmul
        return mix(q, k, v, score_bias)

    def _patched(self, value: Tensor, patch: Patch | None, layer: int) -> Tensor:
        """The outputs of a layer's heads or MLP with the patch applied."""
        if patch is None:
            return value
        first, n_heads = layer * (self.shape.n_heads + 1), self.shape.n_heads
        if value.ndim == 4:
            mask, new = patch.mask[:, first + n_heads, None], patch.values.mlp[layer]
        else:
            mask, new = patch.mask[:, first : first + n_heads, None], patch.values.z[layer]
        untouched = value.shape[-1] - mask.shape[-1]
        tail = torch.where(mask, new, value[..., untouched:])
        return torch.cat([value[..., :untouched], tail], -1) if untouched else tail


def _from_state(state: State, n_layers: int) -> dict[str, Tensor]:
    """Weights in TransformerLens' names as `export` gives them, under the stack's own names and shapes."""
    weights = {"embed": state["embed.W_E"].T, "pos": state["pos_embed.W_pos"].T}
    for layer in range(n_layers):
        attn, mlp = f"blocks.{layer}.attn.", f"blocks.{layer}.mlp."
        weights[f"{layer}.qkv"] = torch.stack([state[f"{attn}W_{letter}"].transpose(1, 2) for letter in "QKV"])
        weights[f"{layer}.b_qkv"] = torch.stack([state[f"{attn}b_{letter}"] for letter in "QKV"])
        weights[f"{layer}.out"], weights[f"{layer}.b_out"] = state[f"{attn}W_O"].permute(2, 0, 1), state[f"{attn}b_O"]
        weights[f"{layer}.mlp_in"], weights[f"{layer}.b_mlp_in"] = state[f"{mlp}W_in"].T, state[f"{mlp}b_in"]
        weights[f"{layer}.mlp_out"], weights[f"{layer}.b_mlp_out"] = state[f"{mlp}W_out"].T, state[f"{mlp}b_out"]
    return weights | {"unembed": state["unembed.W_U"].T, "b_unembed": state["unembed.b_U"]}


def initial_weights(config: Config, seed: int) -> dict[str, Tensor]:
    """Random weights of a model at its own size: embeddings 0.5, positions 0.3, matrices 1/sqrt(inputs), what is added
    to the residual stream further divided by sqrt(2 * layers), biases zero."""
    generator = torch.Generator().manual_seed(seed)
    deviation = {
        "embed": 0.5,
        "pos": 0.3,
        "qkv": config.d_model**-0.5,
        "out": (config.n_heads * config.d_head * 2 * config.n_layers) ** -0.5,
        "mlp_in": config.d_model**-0.5,
        "mlp_out": (config.d_mlp * 2 * config.n_layers) ** -0.5,
        "unembed": config.d_model**-0.5,
    }
    return {
        name: torch.randn(_dims(name, config), generator=generator) * deviation.get(name.split(".")[-1], 0.0)
        for name in _names(config.n_layers)
    }


def _linear(weight: Tensor, bias: Tensor, x: Float[Tensor, "copy feature pos row"]) -> Tensor:
    return torch.baddbmm(bias[:, :, None], weight, x.flatten(2)).unflatten(2, x.shape[2:])


def _mix_along_rows(q: Tensor, k: Tensor, v: Tensor, score_bias: Tensor) -> Float[Tensor, "copy head d_head pos row"]:
    scores = score_bias
    for d in range(q.shape[2]):
        scores = torch.addcmul(scores, q[:, :, d, :, None], k[:, :, d, None])
    pattern = scores.softmax(3)
    return torch.stack([(pattern * v[:, :, d, None]).sum(3) for d in range(v.shape[2])], 2)


def _mix_by_matmul(q: Tensor, k: Tensor, v: Tensor, score_bias: Tensor) -> Float[Tensor, "copy head d_head pos row"]:
    q, k, v = (x.permute(0, 1, 4, 3, 2) for x in (q, k, v))  # [copy, head, row, pos, d_head]
    pattern = (q @ k.transpose(3, 4) + score_bias.permute(0, 1, 4, 2, 3)).softmax(-1)
    return (pattern @ v).permute(0, 1, 4, 3, 2)


def _attention_bias(config: Config, width: int) -> Float[Tensor, "query key"]:
    attend = torch.ones(width, width, dtype=torch.bool)
    attend = attend.tril() if config.causal else attend
    return torch.where(attend, 0.0, _MASKED)


def _largest(configs: Sequence[Config]) -> Config:
    fields = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "d_vocab", "d_vocab_out", "n_ctx")
    return Config(**{name: max(getattr(config, name) for config in configs) for name in fields})


def _names(n_layers: int) -> list[str]:
    inner = [f"{layer}.{name}" for layer in range(n_layers) for name in _IN_LAYER]
    return ["embed", "pos", *inner, "unembed", "b_unembed"]


def _dims(name: str, config: Config) -> tuple[int, ...]:
    dims = _DIMS[name.split(".")[-1]]
    return tuple(dim if isinstance(dim, int) else getattr(config, dim) for dim in dims)


def _corner(name: str, config: Config) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in _dims(name, config))
