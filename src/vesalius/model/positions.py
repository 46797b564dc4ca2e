"""Where tokens stand: positions, which tokens may attend to which, the rotation of queries and keys, and ALiBi."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.model.config import Config, Reach, Rotary
from vesalius.model.mlp import HALF, gpu_kernels, widened

#: Cosines and sines of the angles, `[rows, pos, 1, d_rotary]`.
Rotation = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Layout:
    """Positions of the tokens of a batch and which pairs may attend. `rows` of 1 serve every row of the batch.

    `limited` holds the pairs of layers that do not see all of them, `rotations` each rotation in use, `query_scale`
    what queries are multiplied by where they grow with their position, `alibi` what a key's position adds to its score
    and a query's takes from it; `plain` says that every token sees itself and all before it.
    """

    attend: Bool[Tensor, "rows 1 query key"]
    positions: Int[Tensor, "rows pos"]
    limited: Mapping[Reach, Bool[Tensor, "rows 1 query key"]] = field(default_factory=dict)
    rotations: Mapping[Rotary, Rotation] = field(default_factory=dict)
    plain: bool = False
    query_scale: Float[Tensor, "rows pos 1 1"] | None = None
    alibi: Float[Tensor, "rows pos 1 head"] | None = None
    _copies: dict[torch.device, "Layout"] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def make(
        cls,
        config: Config,
        positions: Int[Tensor, "rows pos"],
        attend: Bool[Tensor, "rows 1 query key"],
        like: Tensor,
        *,
        plain: bool = False,
    ) -> "Layout":
        """The layout of a model's layers; `like` gives the number format of rotations."""
        n, layers, scale = attend.shape[-1], range(config.n_layers), None
        reaches = {reach for layer in layers if (reach := config.reach_of(layer)).limits(n)}
        limited = {reach: attend & _within(reach, positions, n) for reach in reaches}
        rotaries = {rotary for layer in layers if (rotary := config.rotary_of(layer)) is not None}
        rotations = {rotary: rotation(positions, rotary, config.d_head, like.dtype) for rotary in rotaries}
        if (rule := config.query_scale) is not None:
            steps = ((positions + rule.first) // rule.every).to(widened(like).dtype)
            scale = (1 + rule.strength * steps.log1p()).to(like.dtype)[:, :, None, None]
        alibi = None if config.alibi is None else alibi_scores(config, positions, widened(like).dtype)
        return cls(attend, positions, limited, rotations, plain, scale, alibi)

    def take(self, rows: Int[Tensor, " n"] | slice) -> "Layout":
        """The layout of chosen rows (a shared layout is its own selection)."""
        if self.attend.shape[0] == 1:
            return self
        return self._each(lambda table: table[rows])

    def on(self, device: torch.device) -> "Layout":
        """The same layout on another device; the copy is kept."""
        if self.attend.device == device:
            return self
        if device not in self._copies:
            self._copies[device] = self._each(lambda table: table.to(device))
        return self._copies[device]

    def _each(self, taken: Callable[[Tensor], Tensor]) -> "Layout":
        """The layout of what is taken from every table."""
        return Layout(
            taken(self.attend),
            taken(self.positions),
            {reach: taken(attend) for reach, attend in self.limited.items()},
            {rotary: (taken(cos), taken(sin)) for rotary, (cos, sin) in self.rotations.items()},
            self.plain,
            None if self.query_scale is None else taken(self.query_scale),
            None if self.alibi is None else taken(self.alibi),
        )

    def seen(self, reach: Reach) -> Bool[Tensor, "rows 1 query key"]:
        """Which pairs may attend in a layer that sees as far as this."""
        return self.limited.get(reach, self.attend)


def _within(reach: Reach, positions: Int[Tensor, "rows pos"], n: int) -> Bool[Tensor, "*rows query key"]:
    """Which pairs of tokens are near enough."""
    steps, near = torch.arange(n, device=positions.device), torch.ones((), dtype=torch.bool, device=positions.device)
    if reach.window is not None:
        near = near & ((steps[:, None] - steps[None]).abs() < reach.window)
    if reach.chunk is not None:
        chunk = positions // reach.chunk
        near = near & (chunk[:, None, :, None] == chunk[:, None, None, :])
    return near


def rotation(positions: Int[Tensor, "rows pos"], rotary: Rotary, d_head: int, dtype: torch.dtype) -> Rotation:
    """Cosines and sines at these positions. Scalings that depend on the length take each row's own."""
    lengths = positions.amax(1) + 1
    frequencies = inverse_frequencies(rotary, rotary.d_rotary or d_head, lengths)
    angles = positions[..., None].float() * frequencies[:, None]
    angles = torch.cat([angles, angles], -1)[:, :, None]
    return (angles.cos() * rotary.attention_factor).to(dtype), (angles.sin() * rotary.attention_factor).to(dtype)


def rotate(
    x: Float[Tensor, "batch pos head d_head"], cos: Tensor, sin: Tensor
) -> Float[Tensor, "batch pos head d_head"]:
    """Rotate each pair (i, i + d_rotary/2) by its angle; what lies beyond the rotated part stays as it is."""
    d_rotary = cos.shape[-1]
    if d_rotary < x.shape[-1]:
        return torch.cat([rotate(x[..., :d_rotary], cos, sin), x[..., d_rotary:]], -1)
    if x.ndim == 4 and d_rotary & (d_rotary - 1) == 0 and (kernels := gpu_kernels(x)) is not None:
        return kernels.rotated(x, cos, sin)
    first, second = x.chunk(2, -1)
    rotated, half = x * cos, d_rotary // 2
    if x.dtype in HALF:  # every product is rounded, as in the reference models
        rotated[..., :half] -= second * sin[..., :half]
        rotated[..., half:] += first * sin[..., half:]
        return rotated
    rotated[..., :half].addcmul_(second, sin[..., :half], value=-1)
    rotated[..., half:].addcmul_(first, sin[..., half:])
    return rotated


def inverse_frequencies(rotary: Rotary, d: int, lengths: Int[Tensor, " rows"]) -> Float[Tensor, "rows half"]:
    """Radians per position of each pair, for prompts of these lengths (one row where the length does not matter)."""
    steps = torch.arange(0, d, 2, device=lengths.device, dtype=torch.float32) / d
    if rotary.scaling == "longrope":
        short, long = (torch.tensor(f, device=lengths.device) for f in (rotary.short_factors, rotary.long_factors))
        factors = torch.where((lengths > rotary.original_n_ctx)[:, None], long, short)
        return 1.0 / (factors * rotary.base**steps)
    if rotary.scaling == "dynamic":
        stretch = lengths.clamp(min=rotary.original_n_ctx).float() / rotary.original_n_ctx
        base = rotary.base * (rotary.factor * stretch - (rotary.factor - 1)) ** (d / (d - 2))
        return 1.0 / base[:, None] ** steps
    return _fixed_frequencies(rotary, d, steps)[None]


def _fixed_frequencies(rotary: Rotary, d: int, steps: Float[Tensor, " half"]) -> Float[Tensor, " half"]:
    frequencies = 1.0 / rotary.base**steps
    if rotary.scaling == "linear":
        return frequencies / rotary.factor
    if rotary.scaling == "llama3":
        # Long wavelengths are stretched by `factor`, short ones kept, those between blended.
        wavelength = 2 * math.pi / frequencies
        low, high = rotary.low_freq_factor, rotary.high_freq_factor
        blend = ((rotary.original_n_ctx / wavelength - low) / (high - low)).clamp(0, 1)
        return (1 - blend) * frequencies / rotary.factor + blend * frequencies
    if rotary.scaling == "yarn":
        low, high = (_pair_with_turns(turns, d, rotary) for turns in (rotary.beta_fast, rotary.beta_slow))
        low, high = (math.floor(low), math.ceil(high)) if rotary.truncate else (low, high)
        low, high = max(low, 0), min(high, d - 1)
        pairs = torch.arange(d // 2, device=steps.device, dtype=torch.float32)
        stretched = ((pairs - low) / (high - low if high != low else 0.001)).clamp(0, 1)
        return frequencies / rotary.factor * stretched + frequencies * (1 - stretched)
    return frequencies


def _pair_with_turns(turns: float, d: int, rotary: Rotary) -> float:
    """The pair that turns this often over the original context."""
    return d * math.log(rotary.original_n_ctx / (turns * 2 * math.pi)) / (2 * math.log(rotary.base))


def alibi_slopes(n_heads: int) -> Float[Tensor, " head"]:
    """What each head takes from a score for every token of distance: 2 ** (-8 i / n) for head i of n, counted from 1,
    where n is a power of two. Of other numbers of heads the first n, the largest such power, have these, and the others
    the first, third and so on of the slopes of 2n heads.
    """
    n = 2 ** (n_heads.bit_length() - 1)
    exponents = [8 * i / n for i in range(1, n + 1)] + [4 * i / n for i in range(1, 2 * (n_heads - n), 2)]
    return torch.tensor([2.0**-exponent for exponent in exponents])


def alibi_scores(
    config: Config, positions: Int[Tensor, "rows pos"], dtype: torch.dtype
) -> Float[Tensor, "rows pos 1 head"]:
    """Each head's slope times each position."""
    assert config.alibi is not None
    slopes = alibi_slopes(config.n_heads).to(positions.device)
    slopes = slopes.bfloat16() if config.alibi.rounded else slopes.to(dtype)
    scores = (positions[:, :, None, None] * slopes).to(dtype)
    return scores / config.divisor if config.alibi.scaled else scores
