"""The layers of a wrapped model: transformers' mixer and MLPs behind the calls that our own layers answer.

What a head reads is the residual stream with the head's number behind it (-1: whatever head reads it), in the place of
queries, keys and values: a projection may be anything (norms, gates, latents), so a head that is to read something of
its own gets a run of the layer of its own. That is exact and slow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from vesalius.errors import BadInput
from vesalius.model.attention import Attention, HeadPort, Heads, take_positions
from vesalius.model.config import Config, Reach, Rotary
from vesalius.model.hooks import Tap
from vesalius.model.huggingface import Attend, watched
from vesalius.model.mlp import NormLayer
from vesalius.model.positions import Layout
from vesalius.model.transformer import Block
from vesalius.model.wrapped_parts import Call, LayerParts, acting, close, first, post_norm, repeated

_QUIET = Tap()


class _Mixed(Exception):
    """Ends a layer's run where its mixer's output projection would run."""

    def __init__(self, z: Tensor) -> None:
        self.z = z


@dataclass(frozen=True)
class WrappedLayout(Layout):
    """Beside positions, the arguments that transformers gives each layer, and what enters the first."""

    calls: tuple[Call, ...] = ()
    embedded: Float[Tensor, "rows pos d_model"] | None = None

    def take(self, rows: Int[Tensor, " n"] | slice) -> "WrappedLayout":
        """The layout of chosen rows."""
        assert self.embedded is not None
        batch, shared = len(self.embedded), len(self.attend) == 1
        own = rows if isinstance(rows, slice) else rows.to(self.embedded.device)
        return WrappedLayout(
            self.attend if shared else self.attend[own],
            self.positions if shared else self.positions[own],
            calls=tuple(call.take(own, batch) for call in self.calls),
            embedded=self.embedded[own],
        )

    def on(self, device: torch.device) -> "WrappedLayout":
        """The same layout: a wrapped model is on one device."""
        return self


class WrappedAttention(Attention):
    """A layer's mixer with its output projection as a matrix."""

    def __init__(self, config: Config, layer: int, parts: LayerParts) -> None:
        nn.Module.__init__(self)
        self.config, self.prefix, self.layer = config, f"blocks.{layer}.attn.", layer
        self.reach, self.qk_norm = Reach(), config.qk_norm
        self.sinks: nn.Parameter | None = None
        self.rotary: Rotary | None = None
        self.divisor, self.parts = 1.0, parts
        self.module = parts.mixer if parts.mixer is not None else nn.Identity()

    @property
    def groups(self) -> int:
        """How many numbers of the mixer's z each head has."""
        return -(-self.parts.width // self.config.n_heads)

    @property
    def output(self) -> Float[Tensor, "wide d_model"]:  # type: ignore[override]
        """From all heads' z to what is added to the residual stream, or to what the norm before that reads."""
        config, parts = self.config, self.parts
        wide = config.n_heads * config.d_head
        if parts.mixer is None:
            return self._like().new_zeros(wide, config.d_model)
        if parts.out is None:
            matrix = torch.eye(parts.width, dtype=self._like().dtype, device=self._like().device)
        else:
            weight = cast("Tensor", parts.out.weight)
            matrix = weight.T if isinstance(parts.out, nn.Linear) else weight
        if parts.factor is not None:
            matrix = matrix * parts.factor
        if parts.width == wide:
            return matrix
        matrix = F.pad(matrix, (0, 0, 0, self.groups * config.n_heads - parts.width))
        return F.pad(matrix.view(config.n_heads, self.groups, -1), (0, 0, 0, config.d_head - self.groups)).flatten(0, 1)

    @property
    def b_O(self) -> Float[Tensor, " d_model"]:  # type: ignore[override]
        """The output projection's bias."""
        bias = getattr(self.parts.out, "bias", None)
        if bias is None:
            return self._like().new_zeros(self.config.d_model)
        return bias if self.parts.factor is None else bias * self.parts.factor

    def _like(self) -> Tensor:
        return next(self.parts.layer.parameters())

    def _none(self) -> NoReturn:
        raise BadInput(
            f"layer {self.layer} of a wrapped {self.config.wrapped} model has no weights of queries, keys and values "
            "apart; what needs them works for the families of `vesalius models` alone"
        )

    linear = property(lambda self: False, doc="Whether queries, keys and values are linear in their input.")
    query = key = value = property(_none, doc="Not known of a wrapped model.")
    W_Q = W_K = W_V = b_Q = b_K = b_V = property(_none, doc="Not known of a wrapped model.")

    def heads(self, x: Float[Tensor, "batch pos d_model"], at: Int[Tensor, "batch query"] | None, tap: Tap) -> Heads:
        """What all heads read, in the place of queries, keys and values."""
        shared = F.pad(x, (0, 1), value=-1.0).unsqueeze(2)
        q = shared if at is None else take_positions(shared, at)
        kv = shared.expand(-1, -1, self.config.n_kv_heads, -1)
        return Heads(q.expand(-1, -1, self.config.n_heads, -1), kv, kv)

    def apart(self, x: Float[Tensor, "batch pos d_model"], tap: Tap) -> Heads:
        """What each query head reads, each by itself."""
        every = range(self.config.n_heads)
        inputs = x.unsqueeze(1).expand(-1, len(every), -1, -1)
        return Heads(*(self.own(port, inputs, every).transpose(1, 2) for port in ("q", "k", "v")))

    def own(
        self, port: HeadPort, x: Float[Tensor, "*batch head row d_model"], query_heads: Any, *, tap: Tap = _QUIET
    ) -> Float[Tensor, "*batch head row d_read"]:
        """What query heads read, each with an input of its own."""
        number = torch.tensor(list(query_heads), dtype=x.dtype, device=x.device).view(-1, 1, 1)
        return torch.cat([x, number.expand(*x.shape[:-1], 1)], -1)

    def mix(
        self,
        heads: Heads,
        layout: Layout,
        at: Int[Tensor, "batch query"] | None,
        tap: Tap,
        *,
        which: Sequence[int] | None = None,
        rotated: bool = False,
    ) -> Float[Tensor, "batch query head d_head"]:
        """z of every column of heads: of all of them from one run where all read the same. Which heads they are is read
        off their numbers, not `which`.
        """
        assert isinstance(layout, WrappedLayout)
        assert not rotated, "keys stay inside a wrapped module"
        columns = heads.q.shape[2]
        k, v = (repeated(x.transpose(1, 2), columns).transpose(1, 2) for x in heads[1:])
        if not self._apart(Heads(heads.q, k, v)):
            z = self._run(k[:, :, 0, :-1], layout.calls[self.layer], tap)
        else:
            z = self._mix_apart(Heads(heads.q, k, v), layout, at, tap)
        return tap(self.prefix + "hook_z", z if at is None else take_positions(z, at))

    def _apart(self, heads: Heads) -> bool:
        if all(x.stride(2) == 0 for x in heads):
            return bool(heads.q[0, 0, 0, -1] >= 0)
        return any(bool((x[..., -1] >= 0).any()) for x in heads)

    def _mix_apart(self, heads: Heads, layout: WrappedLayout, at: Tensor | None, tap: Tap) -> Tensor:
        """One run for every column, side by side as rows: keys and values from what the head reads there."""
        if not self.parts.attends:
            raise BadInput(
                f"layer {self.layer} of this wrapped {self.config.wrapped} model is no attention of separate heads: "
                "what one of them reads cannot be replaced alone; replace whole heads or MLPs there (method sweep)"
            )
        columns, batch = heads.q.shape[2], len(heads.k)
        numbers = torch.stack([x[..., -1].amax((0, 1)) for x in heads]).amax(0).long().tolist()
        own = [number if number >= 0 else place for place, number in enumerate(numbers)]
        q, k, v = (x[..., :-1].transpose(0, 2).transpose(1, 2).flatten(0, 1) for x in heads)  # [column * batch, pos, d]
        if at is not None:
            q = k.scatter(1, at.repeat(columns, 1)[..., None].expand_as(q), q)
        call = layout.calls[self.layer].take(torch.arange(batch, device=q.device).repeat(columns), batch)
        read = {port: self._projected(port, x, call) for port, x in (("k", k), ("v", v))}
        patterns: list[Tensor] = []
        z = self._run(q, call, _QUIET, read, patterns).unflatten(0, (columns, batch))
        chosen = torch.stack([z[place, :, :, head] for place, head in enumerate(own)], 2)
        name = self.prefix + "hook_pattern"
        if patterns and tap.needs(name):
            by_column = patterns[0].unflatten(0, (columns, batch))
            pattern = torch.stack([by_column[place, :, head] for place, head in enumerate(own)], 1)
            if tap(name, pattern) is not pattern:
                raise BadInput(f"{name} cannot be replaced where heads read inputs of their own in a wrapped model")
        return chosen

    def values(
        self, v: Float[Tensor, "batch key kv_head d_read"], layout: Layout
    ) -> Float[Tensor, "batch key head d_head"]:
        """The values of what heads read: of all of them from one run where all read the same. Refused where a gate
        stands between what a pattern mixes and what is written.
        """
        assert isinstance(layout, WrappedLayout)
        if not self.parts.attends or self.gated:
            raise BadInput(
                f"layer {self.layer} of this wrapped {self.config.wrapped} model does not write its values by its "
                "patterns alone, so that no pattern can be set there; replace its heads"
            )
        n_heads, numbers, call = self.config.n_heads, v[0, 0, :, -1].long().tolist(), layout.calls[self.layer]

        def read(column: int) -> Float[Tensor, "batch key head d"]:
            return repeated(self._projected("v", v[:, :, column, :-1], call), n_heads).transpose(1, 2)

        apart = any(number >= 0 for number in numbers)
        own = [read(place)[:, :, number if number >= 0 else place] for place, number in enumerate(numbers) if apart]
        values = torch.stack(own, 2) if apart else read(0)
        return F.pad(values, (0, self.config.d_head - values.shape[-1]))

    @cached_property
    @torch.no_grad()
    def gated(self) -> bool:
        """Whether what enters the output projection is not the mean of the values by the pattern, but passes a gate."""
        like, patterns, n_heads = self._like(), list[Tensor](), self.config.n_heads
        x = torch.randn(
            self.parts.rows, self.parts.tokens, self.config.d_model, generator=torch.Generator().manual_seed(0)
        )
        x = x.to(like)
        z = self._run(x, self.parts.call, _QUIET, patterns=patterns)[..., : self.groups]
        values = repeated(self._projected("v", x, self.parts.call), n_heads)
        mixed = (patterns[0].to(values.dtype) @ values).transpose(1, 2)
        return z.shape != mixed.shape or not close(z, mixed)

    def moved(self, x: Float[Tensor, "batch pos d_model"], layout: Layout, head: int) -> Tensor:
        """The values that a head moves."""
        assert isinstance(layout, WrappedLayout)
        values = repeated(self._projected("v", x, layout.calls[self.layer]), self.config.n_heads)
        return values[:, head]

    def read_values(self, x: Float[Tensor, "n d_model"]) -> Float[Tensor, "n head d_head"]:
        """The values that every head takes from residual streams, with their bias; only of attention."""
        if not self.parts.attends:
            self._none()
        n, width = len(x), self.parts.tokens
        rows = F.pad(x.to(self._like()), (0, 0, 0, -n % width)).unflatten(0, (-1, width))
        first_row = torch.zeros(len(rows), dtype=torch.long, device=x.device)
        values = self._projected("v", rows, self.parts.call.take(first_row, self.parts.rows))
        values = repeated(values, self.config.n_heads).transpose(1, 2).flatten(0, 1)[:n]
        return F.pad(values, (0, self.config.d_head - values.shape[-1])).to(x.dtype)

    def _projected(self, port: str, x: Tensor, call: Call) -> Float[Tensor, "batch kv pos d"]:
        """The keys or values that attention gets from an input."""
        kept: list[Tensor] = []

        def observe(
            attend: Attend, module: object, query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object
        ) -> Any:
            kept.append(key if port == "k" else value)
            raise _Mixed(value)

        try:
            with watched(observe):
                self.parts.run(x, call)
        except _Mixed:
            return kept[0]
        raise BadInput(f"layer {self.layer} of this wrapped model runs no attention")

    def _run(
        self,
        x: Float[Tensor, "batch pos d_model"],
        call: Call,
        tap: Tap,
        read: dict[str, Tensor] | None = None,
        patterns: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch pos head d_head"]:
        """z of a run of the layer, which ends there; keys and values may come from elsewhere (`read`)."""
        parts = self.parts
        if parts.mixer is None:
            return x.new_zeros(*x.shape[:2], self.config.n_heads, self.config.d_head)

        def observe(
            attend: Attend, module: object, query: Tensor, key: Tensor, value: Tensor, mask: object, **kw: object
        ) -> Any:
            if read is not None:
                key, value = read["k"], read["v"]
            if not tap.idle and parts.attends:
                query = self._tapped(tap, "hook_rot_q", query)
                key, value = self._tapped(tap, "hook_rot_k", key), self._tapped(tap, "hook_v", value)
            out, pattern = attend(module, query, key, value, mask, **kw)
            if pattern is None or not parts.attends:
                return out, pattern
            if patterns is not None:
                patterns.append(pattern)
            replaced = tap(self.prefix + "hook_pattern", pattern)
            if replaced is not pattern:
                out = (replaced.to(value.dtype) @ repeated(value, query.shape[1])).transpose(1, 2)
            return out, replaced

        def stop(z: Tensor, *_: object, **__: object) -> Any:
            raise _Mixed(z)

        try:
            with acting({} if parts.out is None else {parts.out: stop}), watched(observe):
                if parts.out is None:
                    kept: list[Tensor] = []
                    hook = parts.mixer.register_forward_hook(lambda _, __, out: kept.append(first(out)))
                    try:
                        parts.run(x, call)
                    finally:
                        hook.remove()
                    return self._split(kept[0])
                parts.run(x, call)
        except _Mixed as done:
            return self._split(done.z.reshape(*x.shape[:2], -1))
        raise BadInput(f"layer {self.layer} of this wrapped model did not run its output projection")

    def _split(self, z: Float[Tensor, "batch pos wide"]) -> Float[Tensor, "batch pos head d_head"]:
        heads = F.pad(z, (0, self.groups * self.config.n_heads - z.shape[2])).unflatten(2, (self.config.n_heads, -1))
        return F.pad(heads, (0, self.config.d_head - self.groups))

    def _tapped(self, tap: Tap, name: str, x: Float[Tensor, "batch head pos d"]) -> Float[Tensor, "batch head pos d"]:
        return tap(self.prefix + name, x.transpose(1, 2)).transpose(1, 2)


class WrappedMlp(nn.Module):
    """All that a layer does beside its mixer, with the norms around it."""

    def __init__(self, parts: LayerParts) -> None:
        super().__init__()
        self.parts = parts
        self.modules_of_layer = nn.ModuleList(module for module, _ in parts.mlps)

    def forward(self, x: Float[Tensor, "batch pos d_model"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        return self.parts.fed(x)


class WrappedBlock(Block):
    """One layer of transformers between our residual streams."""

    def __init__(self, config: Config, layer: int, parts: LayerParts) -> None:
        nn.Module.__init__(self)
        self.prefix, self.parallel, d = f"blocks.{layer}.", config.parallel, config.d_model
        self.ln1, self.ln2, self.ln2_post = (
            NormLayer("none", d, config.norm_eps, f"{self.prefix}{name}") for name in ("ln1", "ln2", "ln2_post")
        )
        after = f"{self.prefix}ln1_post"
        self.ln1_post = post_norm(*parts.norm, after) if parts.norm else NormLayer("none", d, config.norm_eps, after)
        self.attn = WrappedAttention(config, layer, parts)
        self.mlp = cast("Any", WrappedMlp(parts))

    @property
    def device(self) -> torch.device:
        """Where this layer's weights are."""
        return self.attn.b_O.device

    @property
    def mlp_bias(self) -> Float[Tensor, " d_model"]:
        """A wrapped MLP's output is one whole: none of it is kept apart as a bias."""
        return self.attn.b_O.new_zeros(self.attn.config.d_model)
