"""What happens at a hook point: observe, store, replace.

A forward pass calls a `Tap` with every named activation. The tap runs the user's hooks on it, stores it if asked, and
returns the activation that the pass continues with. Nothing is registered on the model, so nothing has to be removed
afterwards.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component, Shape, headless
from vesalius.errors import BadInput


@dataclass(frozen=True)
class HookPoint:
    """Passed to a hook function with the activation, so that one function can serve many points."""

    name: str

    def layer(self) -> int:
        """The layer in the name, `blocks.LAYER.…`."""
        match = re.match(r"blocks\.(\d+)\.", self.name)
        if not match:
            raise BadInput(f"hook point {self.name} belongs to no layer")
        return int(match[1])


HookFunction = Callable[[Tensor, HookPoint], Tensor | None]
NameFilter = str | Iterable[str] | Callable[[str], bool] | None
Hook = tuple[str | Callable[[str], bool], HookFunction]
#: From a layer and its z: `hook_result`, each head's z W_O.
Results = Callable[[int, Tensor], Tensor]
#: From a component and a cache: what the component added to the residual stream.
Written = Callable[[Component, "Cache"], Tensor]

#: Activations that cost extra, or are another one under a second name, and are therefore there only where a hook or an
#: explicit name asks for them.
ON_DEMAND = (
    "mlp.hook_in",
    "attn.hook_result",
    "mlp.hook_expert_out",
    *(f"hook_{port}_input" for port in "qkv"),
    *(f"attn.hook_{port}_heads" for port in "qkv"),
)


class Tap:
    """Runs hooks and stores activations; `Tap()` lets everything through."""

    def __init__(self, hooks: Iterable[Hook] = (), keep: Callable[[str], bool] | None = None) -> None:
        self._hooks = list(hooks)
        self._keep = keep
        self.idle = not self._hooks and keep is None
        self.stored: dict[str, Tensor] = {}

    def __call__(self, name: str, value: Tensor) -> Tensor:
        if self.idle:
            return value
        for point, function in self._hooks:
            if point == name or (callable(point) and point(name)):
                replacement = function(value, HookPoint(name))
                value = value if replacement is None else _check_shape(name, value, replacement)
        if self._keep is not None and self._keep(name):
            self.stored[name] = _alone(value)
        return value

    def needs(self, name: str) -> bool:
        """Whether an on-demand activation must be computed."""
        if self.idle:
            return False
        return any(point == name or (callable(point) and point(name)) for point, _ in self._hooks) or (
            self._keep is not None and self._keep(name)
        )


def _alone(value: Tensor) -> Tensor:
    """A part of a larger tensor as one of its own, where no gradient goes through it: as a part it would keep the whole
    in memory, such as values the product that gave queries and keys as well.
    """
    part = value.untyped_storage().nbytes() > 2 * value.nbytes
    return value.clone() if part and not value.requires_grad else value


def _check_shape(name: str, value: Tensor, replacement: Tensor) -> Tensor:
    if not isinstance(replacement, Tensor) or replacement.shape != value.shape:
        shape = tuple(replacement.shape) if isinstance(replacement, Tensor) else type(replacement).__name__
        raise BadInput(f"hook at {name} returned {shape}; expected a tensor of shape {tuple(value.shape)} or None")
    return replacement


class Cache(Mapping[str, Tensor]):
    """Activations of one run under their hook names; `hook_result` is computed from z on access."""

    def __init__(self, stored: dict[str, Tensor], shape: Shape, results: Results, written: Written) -> None:
        self._stored = stored
        self._shape = shape
        self._results = results
        self._written = written

    def __getitem__(self, name: str) -> Tensor:
        if name in self._stored:
            return self._stored[name]
        result = re.fullmatch(r"blocks\.(\d+)\.attn\.hook_result", name)
        if result and (z_name := f"blocks.{result[1]}.attn.hook_z") in self._stored:
            return self._results(int(result[1]), self._stored[z_name])
        attends = re.fullmatch(r"blocks\.(\d+)\.attn\.hook_(?:rot_)?(?:q|k|v|pattern)", name)
        if attends and (why := headless(int(attends[1]), self._shape)):
            raise BadInput(f"activation {name!r}: {why}; there are attn.hook_z and hook_attn_out")
        names = ", ".join(list(self)[:3]) or "none"
        raise BadInput(f"activation {name!r} is not in this cache; it holds names such as {names}")

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def get(self, name: str, default: object = None) -> Any:
        """The activation, or `default` where it was not stored."""
        return self._stored.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def component(self, component: Component | str) -> Float[Tensor, "batch pos d_model"]:
        """What a head or an MLP adds to the residual stream, without the shared output bias. Where attention's output
        passes a norm, a head's share of it at this run's scale.
        """
        return self._written(Component.parse(component).within(self._shape), self)


def name_filter(names: NameFilter) -> Callable[[str], bool]:
    """Turn `None` (everything that costs nothing extra), a name, names or a predicate into a predicate."""
    if names is None:
        return lambda name: not name.endswith(ON_DEMAND) and ".experts." not in name
    if callable(names):
        return names
    selection = {names} if isinstance(names, str) else set(names)
    return lambda name: name in selection
