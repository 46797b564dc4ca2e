"""What a layer of transformers is made of, found by running it: no names of modules are assumed.

1. The *mixer* is the part whose output at the last position changes when only earlier positions change: attention, or
   a linear or state-space layer. Its *output projection* is the linear map whose result it returns; what enters that
   is z.
2. The *MLPs* are the other parts that have matrices and write vectors of the model's width.
3. What a layer adds is read off by letting it run on zeros with these parts replaced, so that residual multipliers and
   norms after a part are included without being known by name.

A layer that does more than add to the residual stream is refused (`CannotWrap`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vesalius.model.hooks import Tap
from vesalius.model.huggingface import Attend, watched
from vesalius.model.mlp import HALF, NormLayer

#: Sizes of the eps of norms that follow a part are found with an input as small as this.
_SMALL, _LARGE = 1e-3, 1e3


class CannotWrap(Exception):
    """Why a module of transformers does not fit behind our hook names."""


@dataclass(frozen=True)
class Call:
    """The arguments of a layer beside the residual stream; `axes` says which axis of each counts the batch's rows."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    axes: dict[str, int] = field(default_factory=dict, repr=False)

    def mapped(self, function: Callable[[str, Tensor], Tensor]) -> "Call":
        """The same with a function of name and value applied to every tensor."""
        return Call(_mapped(self.args, function, ""), _mapped(self.kwargs, function, ""), self.axes)

    def take(self, rows: Int[Tensor, " n"] | slice, batch: int) -> "Call":
        """The arguments of chosen rows of a batch."""

        def rows_of(name: str, value: Tensor) -> Tensor:
            axis = self.axes.get(name, 0 if value.ndim > 1 and value.shape[0] == batch else None)
            if axis is None or value.shape[axis] % batch:
                return value
            own = rows if isinstance(rows, slice) else rows.to(value.device)
            parts = value.unflatten(axis, (batch, -1)).movedim(axis, 0)[own]
            return parts.movedim(0, axis).flatten(axis, axis + 1)

        return self.mapped(rows_of)

    def to(self, device: torch.device) -> "Call":
        """The same on a device."""
        return self.mapped(lambda _, value: value.to(device))


def batch_axes(one: Call, other: Call) -> dict[str, int]:
    """The axes whose size differs between calls for batches of different sizes."""
    shapes: dict[str, tuple[int, ...]] = {}
    axes: dict[str, int] = {}

    def note(name: str, value: Tensor) -> Tensor:
        shapes[name] = tuple(value.shape)
        return value

    def compare(name: str, value: Tensor) -> Tensor:
        if len(shapes.get(name, ())) == value.ndim:
            differ = [i for i, (a, b) in enumerate(zip(shapes[name], value.shape, strict=True)) if a != b]
            if differ:
                axes[name] = differ[0]
        return value

    one.mapped(note)
    other.mapped(compare)
    return axes


def _mapped(value: Any, function: Callable[[str, Tensor], Tensor], name: str) -> Any:
    if isinstance(value, Tensor):
        return function(name, value)
    if isinstance(value, dict):
        return {key: _mapped(part, function, f"{name}.{key}") for key, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_mapped(part, function, f"{name}.{i}") for i, part in enumerate(value))
    return value


@contextmanager
def acting(parts: dict[nn.Module, Callable[..., object]]) -> Iterator[None]:
    """Within this context functions run in the place of modules."""
    with ExitStack() as stack:
        for module, function in parts.items():
            before = module.__dict__.get("forward")
            module.forward = function  # type: ignore[method-assign]

            def restore(module: nn.Module = module, before: object = before) -> None:
                if before is None:
                    del module.forward
                else:
                    module.forward = before  # type: ignore[method-assign]

            stack.callback(restore)
        yield


def first(value: Any) -> Tensor:
    """The tensor that a module returns, alone or before others."""
    return value[0] if isinstance(value, tuple | list) else value


def like(form: Any, value: Tensor) -> Any:
    """A tensor in the form in which a module returns it."""
    return type(form)((value, *form[1:])) if type(form) in (tuple, list) else value


@dataclass
class _Seen:
    """One call of a part."""

    module: nn.Module
    read: Tensor | None
    form: Any


@dataclass
class LayerParts:
    """A layer taken apart. `attends` says that its mixer is attention whose queries, keys, values and pattern are
    seen; `write` is how its output enters the residual stream: a factor, or a norm.
    """

    layer: nn.Module
    call: Call
    mixer: nn.Module | None
    mixer_form: Any
    out: nn.Module | None
    width: int
    mlps: list[tuple[nn.Module, Any]]
    parallel: bool | None
    attends: bool
    n_kv_heads: int
    #: The shape of the batch of `call`.
    rows: int
    tokens: int
    factor: Tensor | None = None
    norm: tuple[Tensor, float] | None = None

    def run(
        self, x: Tensor, call: Call | None = None, *, mixed: Tensor | None = None, fed: Sequence[Tensor] | None = None
    ) -> Tensor:
        """The layer's output; with `mixed` and `fed` in the place of what its mixer and its MLPs put out."""
        call, replaced = call or self.call, {}
        if mixed is not None and self.mixer is not None:
            replaced[self.mixer] = lambda *_, **__: like(self.mixer_form, mixed)
        if fed is not None:
            for (module, form), value in zip(self.mlps, fed, strict=True):
                replaced[module] = lambda *_, form=form, value=value, **__: like(form, value)
        with acting(replaced):
            return first(self.layer(x, *call.args, **call.kwargs))

    def quiet(self, x: Tensor) -> list[Tensor]:
        """Zeros for every MLP, in the shape in which it writes."""
        return [x.new_zeros(_shape_like(first(form), x)) for _, form in self.mlps]

    def fed(self, x: Tensor) -> Tensor:
        """What the MLPs add to the residual stream that they read."""
        if not self.mlps:
            return torch.zeros_like(x)
        kept: dict[nn.Module, Tensor] = {}
        nothing = torch.zeros_like(x)
        with ExitStack() as stack:
            for module, _ in self.mlps:
                hook = module.register_forward_hook(lambda part, _, out: kept.__setitem__(part, first(out)))
                stack.callback(hook.remove)
            self.run(x, mixed=nothing)
        return self.run(nothing, mixed=nothing, fed=[kept[module] for module, _ in self.mlps])


def _shape_like(value: Tensor, x: Tensor) -> tuple[int, ...]:
    """The shape of an MLP's output for an input of another size: with the axes of positions apart or as one."""
    return tuple(x.shape) if value.ndim == 3 else (x.shape[0] * x.shape[1], x.shape[2])


def dissect(layer: nn.Module, call: Call, x: Float[Tensor, "batch pos d_model"], n_heads: int) -> LayerParts:
    """Take a layer apart by running it on an input."""
    earlier = x.clone()
    earlier[:, :-1] = earlier[:, :-1].flip(0) * 0.5 + 0.1
    children = [part for _, part in layer.named_children()]
    attended: list[tuple[Tensor, Tensor, bool]] = []

    def observe(
        attend: Attend, module: object, query: Tensor, key: Tensor, value: Tensor, mask: object, **kw: object
    ) -> Any:
        out, pattern = attend(module, query, key, value, mask, **kw)
        plain = pattern is not None and close(out.transpose(1, 2), pattern @ repeated(value, query.shape[1]))
        attended.append((query, value, plain))
        return out, pattern

    with watched(observe):
        one = _calls(children, lambda: layer(x, *call.args, **call.kwargs))
    other = _calls(children, lambda: layer(earlier, *call.args, **call.kwargs))
    mixers = [part for part in children if part in one and part in other and _mixes(one[part], other[part])]
    if len(mixers) > 1:
        raise CannotWrap("a layer mixes positions in two parts")
    mixer = mixers[0] if mixers else None
    mlps = [
        (part, one[part].form)
        for part in children
        if part in one and part is not mixer and _writes(one[part], x) and _has_matrix(part)
    ]
    out, width = (None, 0) if mixer is None else _output_projection(mixer, lambda: layer(x, *call.args, **call.kwargs))
    if mixer is not None and out is None:
        width = x.shape[2]
    query, value, plain = attended[0] if len(attended) == 1 else (None, None, False)
    kv = 0 if value is None else value.shape[1]
    attends = bool(
        plain and query is not None and query.shape[1] == n_heads and kv and not n_heads % kv and not width % n_heads
    )
    form = None if mixer is None else one[mixer].form
    kv_heads, (rows, tokens, _) = kv if attends else n_heads, x.shape
    parts = LayerParts(layer, call, mixer, form, out, width, mlps, None, attends, kv_heads, rows, tokens)
    if not close(parts.run(x, mixed=torch.zeros_like(x), fed=parts.quiet(x)), x):
        raise CannotWrap("a layer does more to the residual stream than adding to it")
    if mixer is not None:
        _find_write(parts, x)
        parts.parallel = _is_parallel(parts, x)
    return parts


def _calls(modules: Sequence[nn.Module], run: Callable[[], object]) -> dict[nn.Module, _Seen]:
    seen: dict[nn.Module, _Seen] = {}

    def note(module: nn.Module, args: tuple, kwargs: dict, out: object) -> None:
        read = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        # Copies: some layers add to what a part returned in its place.
        seen[module] = _Seen(module, None if read is None else read.clone(), like(out, first(out).clone()))

    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_hook(note, with_kwargs=True).remove)
        run()
    return seen


def _mixes(one: _Seen, other: _Seen) -> bool:
    """Whether the output at the last position changes although the input there does not."""
    a, b = first(one.form), first(other.form)
    if one.read is None or other.read is None or one.read.ndim != 3 or not isinstance(a, Tensor) or a.ndim != 3:
        return False
    return torch.equal(one.read[:, -1], other.read[:, -1]) and not torch.equal(a[:, -1], b[:, -1])


def _writes(seen: _Seen, x: Tensor) -> bool:
    out = first(seen.form)
    return isinstance(out, Tensor) and out.shape[-1] == x.shape[-1] and out.numel() == x.numel()


def _has_matrix(part: nn.Module) -> bool:
    return any(weight.ndim > 1 for weight in part.parameters())


def _output_projection(mixer: nn.Module, run: Callable[[], object]) -> tuple[nn.Module | None, int]:
    """The linear map whose result the mixer returns, and how many numbers enter it."""
    leaves = [part for part in mixer.modules() if getattr(part, "weight", None) is not None and part.weight.ndim == 2]
    seen = _calls([mixer, *leaves], run)
    result = first(seen[mixer].form)
    for leaf in leaves:
        if leaf in seen and leaf is not mixer:
            out, read = first(seen[leaf].form), seen[leaf].read
            if read is not None and out.numel() == result.numel() and torch.equal(out.reshape(result.shape), result):
                return leaf, read.shape[-1]
    return None, 0


def _find_write(parts: LayerParts, x: Tensor) -> None:
    """How the mixer's output is added: times a factor, or through an RMSNorm."""

    def written(value: Tensor) -> Tensor:
        return parts.run(torch.zeros_like(x), mixed=value, fed=parts.quiet(x))

    ones = torch.ones_like(x)
    if close(written(2 * x), 2 * written(x)):
        factor = written(ones)[0, 0]
        if not close(written(x), x * factor):
            raise CannotWrap("what attention writes is not added to the residual stream by a factor or a norm")
        parts.factor = None if torch.equal(factor, torch.ones_like(factor)) else factor
        return
    gain = written(_LARGE * ones)[0, 0].float()
    small = written(_SMALL * ones)[0, 0].float()
    place = int(gain.abs().argmax())
    eps = max(float((gain[place] * _SMALL / small[place]) ** 2 - _SMALL**2), 1e-12)
    norm = post_norm(gain, eps, "")
    if not close(written(x), norm(x, Tap())):
        raise CannotWrap("the norm after attention is not an RMSNorm")
    parts.norm = gain, eps


def post_norm(gain: Tensor, eps: float, prefix: str) -> NormLayer:
    """The norm that follows what attention writes."""
    norm = NormLayer("rms", len(gain), eps, prefix).to(gain.device)
    norm.w = nn.Parameter(gain.detach().clone(), requires_grad=False)
    return norm


def _is_parallel(parts: LayerParts, x: Tensor) -> bool | None:
    """Whether the MLPs read what attention read; None where there are none."""
    if not parts.mlps:
        return None
    module = parts.mlps[0][0]
    one, other = (
        _calls([module], lambda mixed=mixed: parts.run(x, mixed=mixed))[module] for mixed in (torch.zeros_like(x), x)
    )
    assert one.read is not None
    assert other.read is not None
    return torch.equal(one.read, other.read)


def repeated(x: Float[Tensor, "batch kv pos d"], heads: int) -> Float[Tensor, "batch head pos d"]:
    """Keys or values once for every query head."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def close(one: Tensor, other: Tensor) -> bool:
    """Whether two results are the same up to rounding."""
    if one.shape != other.shape:
        return False
    size = float(other.detach().float().abs().max()) or 1.0
    far = float((one.detach().float() - other.detach().float()).abs().max())
    return far <= (5e-2 if one.dtype in HALF else 1e-4) * size
