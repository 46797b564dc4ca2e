"""Names of the parts of a transformer.

One type, `Component`, stands for an attention head, an MLP, a single neuron of an MLP or, where an MLP is made of
experts, one expert; `Edge` for a path from one head or MLP into another's input. Every notation the field writes is
parsed, and every notation is printed back without loss:

| style       | head                          | MLP                      | neuron                       |
|-------------|-------------------------------|--------------------------|------------------------------|
| `canonical` | `L1H2`                        | `L0_MLP`                 | `L3N17`                      |
| `hook`      | `blocks.1.attn.hook_result[2]`| `blocks.0.mlp.hook_post` | `blocks.3.mlp.hook_post[17]` |
| `paper`     | `L1.H2`                       | `L0.MLP`                 | `L3.N17`                     |
| `short`     | `1.2`                         | `0.mlp`                  | `3.n17`                      |
| `bench`     | `L1H2_ATTN`                   | `L0_MLP`                 | `L3N17_MLP`                  |
| `eap`       | `a1.h2`                       | `m0`                     | `m3.n17`                     |

An expert is written like a neuron, with E for N: `L3E5`, `m3.e5`, `blocks.3.mlp.hook_expert_out[5]`. Neurons and
experts are units of their MLP. Code that takes them asks for them (`within(shape, neurons=True)`); everywhere else
their names are refused.

`blocks.1.attn.hook_z[2]` names the same head: its result is its z times W_O, so replacing one replaces the other.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from vesalius.errors import BadInput

Style = Literal["canonical", "hook", "paper", "short", "bench", "eap"]
STYLES: tuple[Style, ...] = ("canonical", "hook", "paper", "short", "bench", "eap")
Port = Literal["q", "k", "v", "mlp", "logits"]

_HEAD_PATTERNS = [
    re.compile(pattern)
    for pattern in (
        r"L(\d{1,9})\.?H(\d{1,9})(?:_ATTN)?",
        r"blocks\.(\d{1,9})\.attn\.hook_(?:result|z)\[(\d{1,9})\]",
        r"(\d{1,9})\.(\d{1,9})",
        r"a(\d{1,9})\.h(\d{1,9})",
    )
]
_MLP_PATTERNS = [
    re.compile(pattern)
    for pattern in (
        r"L(\d{1,9})[_.]?MLP",
        r"blocks\.(\d{1,9})\.(?:mlp\.hook_post|hook_mlp_out)",
        r"(\d{1,9})\.mlp",
        r"m(\d{1,9})",
    )
]
#: Names of places that are no components (`vesalius.sites`): activations, latents, single positions.
_SITE = re.compile(r"L\d{1,9}(?:H\d{1,9})?(?:F\d{1,9}|\.[a-z_]+)(?:@\S+)?|L\d{1,9}(?:H\d{1,9}|_MLP)@\S+")
_NEURON_PATTERNS = [
    re.compile(pattern)
    for pattern in (
        r"L(\d{1,9})\.?N(\d{1,9})(?:_MLP)?",
        r"blocks\.(\d{1,9})\.mlp\.hook_post\[(\d{1,9})\]",
        r"(\d{1,9})\.n(\d{1,9})",
        r"m(\d{1,9})\.n(\d{1,9})",
    )
]
_EXPERT_PATTERNS = [
    re.compile(pattern)
    for pattern in (
        r"L(\d{1,9})\.?E(\d{1,9})(?:_MLP)?",
        r"blocks\.(\d{1,9})\.mlp\.hook_expert_out\[(\d{1,9})\]",
        r"(\d{1,9})\.e(\d{1,9})",
        r"m(\d{1,9})\.e(\d{1,9})",
    )
]
#: The formats of heads, MLPs, neurons and experts.
_FORMATS: dict[Style, tuple[str, str, str, str]] = {
    "canonical": ("L{layer}H{head}", "L{layer}_MLP", "L{layer}N{neuron}", "L{layer}E{expert}"),
    "hook": (
        "blocks.{layer}.attn.hook_result[{head}]",
        "blocks.{layer}.mlp.hook_post",
        "blocks.{layer}.mlp.hook_post[{neuron}]",
        "blocks.{layer}.mlp.hook_expert_out[{expert}]",
    ),
    "paper": ("L{layer}.H{head}", "L{layer}.MLP", "L{layer}.N{neuron}", "L{layer}.E{expert}"),
    "short": ("{layer}.{head}", "{layer}.mlp", "{layer}.n{neuron}", "{layer}.e{expert}"),
    "bench": ("L{layer}H{head}_ATTN", "L{layer}_MLP", "L{layer}N{neuron}_MLP", "L{layer}E{expert}_MLP"),
    "eap": ("a{layer}.h{head}", "m{layer}", "m{layer}.n{neuron}", "m{layer}.e{expert}"),
}
_EXPECTED = "a head such as L1H2, 1.2, a1.h2, blocks.1.attn.hook_result[2], an MLP such as L0_MLP, m0, a neuron: L3N17"


class Shape(Protocol):
    """What a name is checked against: anything that knows its number of layers and heads."""

    @property
    def n_layers(self) -> int: ...
    @property
    def n_heads(self) -> int: ...


def headless(layer: int, shape: Shape) -> str | None:
    """What a layer of a wrapped model says that has groups of channels in the place of heads; None of any other."""
    if layer not in getattr(shape, "mixers", ()):
        return None
    return (
        f"layer {layer} of this wrapped {getattr(shape, 'wrapped', '')} model has groups of channels in the place of "
        "heads, without queries, keys, values or patterns"
    )


class Named:
    """A place in a model whose name `str` prints and `parse` reads: a component, an edge, a site (`vesalius.sites`)."""


@dataclass(frozen=True)
class Component(Named):
    """An attention head (`head` is its number), the MLP of one layer (`head` is None), or one of that MLP's neurons or
    experts (`neuron` or `expert` is its number).
    """

    layer: int
    head: int | None = None
    neuron: int | None = None
    expert: int | None = None

    def __post_init__(self) -> None:
        if self.layer < 0 or (self.head is not None and self.head < 0):
            raise BadInput(f"component layer {self.layer}, head {self.head}: both count from 0")
        for kind, number in (("neuron", self.neuron), ("expert", self.expert)):
            if number is not None and (number < 0 or self.head is not None):
                raise BadInput(f"{kind} {number} of layer {self.layer}: {kind}s count from 0, and heads have none")
        if self.neuron is not None and self.expert is not None:
            raise BadInput(f"layer {self.layer}: one neuron of one expert is not a component; name the expert")

    @classmethod
    def parse(cls, name: str | Named) -> "Component":
        """Read a component name in any notation of this module; a `Component` passes through."""
        if isinstance(name, Component):
            return name
        text = str(name).strip()
        for pattern in _HEAD_PATTERNS:
            if match := pattern.fullmatch(text):
                return cls(int(match[1]), int(match[2]))
        for pattern in _MLP_PATTERNS:
            if match := pattern.fullmatch(text):
                return cls(int(match[1]))
        for pattern in _NEURON_PATTERNS:
            if match := pattern.fullmatch(text):
                return cls(int(match[1]), neuron=int(match[2]))
        for pattern in _EXPERT_PATTERNS:
            if match := pattern.fullmatch(text):
                return cls(int(match[1]), expert=int(match[2]))
        if _SITE.fullmatch(text):
            raise BadInput(
                f"component {text!r}: heads, MLPs and neurons are taken here; `sweep`, `what-if` and `complete` take "
                "other sites, and latents with `features`"
            )
        raise BadInput(f"component {text!r} is not a name; expected {_EXPECTED}")

    @property
    def is_head(self) -> bool:
        """True for an attention head, False for an MLP, a neuron or an expert."""
        return self.head is not None

    @property
    def is_neuron(self) -> bool:
        """True for a single neuron of an MLP."""
        return self.neuron is not None

    @property
    def is_expert(self) -> bool:
        """True for an expert of an MLP that is made of experts."""
        return self.expert is not None

    @property
    def is_unit(self) -> bool:
        """True for a part of an MLP: a neuron or an expert."""
        return self.is_neuron or self.is_expert

    def format(self, style: Style = "canonical") -> str:
        """Print the name in one of the notations of this module."""
        if style not in _FORMATS:
            raise BadInput(f"name style {style!r} does not exist; choose one of {', '.join(STYLES)}")
        head, mlp, neuron, expert = _FORMATS[style]
        form = head if self.is_head else neuron if self.is_neuron else expert if self.is_expert else mlp
        return form.format(layer=self.layer, head=self.head, neuron=self.neuron, expert=self.expert)

    def within(self, shape: Shape, *, neurons: bool = False) -> "Component":
        """Return self if the model has this component, else say what the model has. Neurons and experts pass with
        `neurons`.
        """
        if self.is_unit:
            self._require_unit(shape, neurons)
        inside = self.layer < shape.n_layers and (self.head is None or self.head < shape.n_heads)
        if not inside:
            raise BadInput(
                f"component {self} is not in this model; it has layers 0 to {shape.n_layers - 1} "
                f"with heads 0 to {shape.n_heads - 1} and an MLP each"
            )
        return self

    def _require_unit(self, shape: Shape, wanted: bool) -> None:
        kind = "a neuron" if self.is_neuron else "an expert"
        if not wanted:
            raise BadInput(f"component {self} is {kind}; heads and MLPs are needed here, such as L0H0 or L0_MLP")
        if wrapped := getattr(shape, "wrapped", None):
            raise BadInput(
                f"component {self}: neurons and experts are not taken apart in a wrapped {wrapped} model; take "
                f"L{self.layer}_MLP, or a model of the families of `vesalius models`"
            )
        width, experts = getattr(shape, "d_mlp", None), getattr(shape, "experts", None)
        if width is None:  # a circuit's own sizes, which say nothing about MLPs
            return
        of_experts = experts is not None and self.layer in experts.layers
        if of_experts and self.is_neuron:
            raise BadInput(
                f"component {self}: the MLP of layer {self.layer} is made of experts; take L{self.layer}_MLP or an "
                f"expert, L{self.layer}E0"
            )
        if self.is_expert and not of_experts:
            raise BadInput(
                f"component {self}: the MLP of layer {self.layer} is not made of experts; take L{self.layer}_MLP or a "
                f"neuron, L{self.layer}N0"
            )
        if self.neuron is not None and self.neuron >= width:
            raise BadInput(f"component {self} is not in this model; its MLPs have neurons 0 to {width - 1}")
        if self.expert is not None and experts is not None and self.expert >= experts.n_units:
            raise BadInput(f"component {self} is not in this model; its MLPs have experts 0 to {experts.n_units - 1}")

    def __str__(self) -> str:
        return self.format()

    def __lt__(self, other: "Component") -> bool:
        """Order of computation: by layer, heads, then neurons and experts, then the MLP."""
        return self._order() < other._order()

    def _order(self) -> tuple[int, int, int]:
        kind = 0 if self.is_head else 1 if self.is_unit else 2
        return (self.layer, kind, self.head or self.neuron or self.expert or 0)


@dataclass(frozen=True)
class Edge(Named):
    """The direct path from a component's output into one input of a later component, or into the logits.

    `port` says which input: a head's `q`, `k` or `v`, an MLP's `mlp`, or `logits` (then `receiver` is None).
    `sender` None is the embedding (`input` in EAP's notation).
    """

    sender: Component | None
    receiver: Component | None
    port: Port

    def __post_init__(self) -> None:
        fits = {"logits": self.receiver is None, "mlp": self.receiver is not None and not self.receiver.is_head}
        if not fits.get(self.port, self.receiver is not None and self.receiver.is_head):
            raise BadInput(f"edge into {self.receiver or 'logits'} cannot enter by {self.port!r}: heads take q, k or v")
        if (self.sender and self.sender.is_unit) or (self.receiver and self.receiver.is_unit):
            raise BadInput(
                f"edge {self.sender} -> {self.receiver}: edges run between heads and MLPs, not neurons or experts"
            )
        if self.sender and self.receiver and not _feeds(self.sender, self.receiver):
            raise BadInput(f"edge {self.sender} -> {self.receiver} runs backwards: the sender is computed later")

    @classmethod
    def parse(cls, name: "str | Edge") -> "Edge":
        """Read `a0.h1->a5.h5<q>` (or `L0H1->L5H5.q`), `m0->m3`, `input->a0.h0<v>`, `m11->logits`; component names in
        any notation.
        """
        if isinstance(name, Edge):
            return name
        match = re.fullmatch(r"(.+?)->(.+?)(?:<([qkv])>|\.([qkv]))?", str(name).strip())
        if not match:
            raise BadInput(f"edge {name!r} is not a name; expected for example a0.h1->a5.h5<q> or a0.h1->m1")
        sender, entered = None if match[1] == "input" else Component.parse(match[1]), match[3] or match[4]
        if match[2] == "logits":
            if entered:
                raise BadInput(f"edge {name!r} enters the logits: leave <{entered}> out")
            return cls(sender, None, "logits")
        receiver = Component.parse(match[2])
        port = entered or ("mlp" if not receiver.is_head else None)
        if port is None:
            raise BadInput(f"edge {name!r} enters a head: add <q>, <k> or <v>")
        return cls(sender, receiver, port)  # type: ignore[arg-type]

    def format(self, style: Style = "eap") -> str:
        """Print the edge with its components in the given notation; EAP's own by default."""
        sender = self.sender.format(style) if self.sender else "input"
        receiver = self.receiver.format(style) if self.receiver else "logits"
        return f"{sender}->{receiver}" + (f"<{self.port}>" if self.port in ("q", "k", "v") else "")

    def within(self, shape: Shape) -> "Edge":
        """Return self if the model has both ends, else say what the model has."""
        for end in (self.sender, self.receiver):
            if end is not None:
                end.within(shape)
        same_layer = self.sender is not None and self.receiver is not None and self.sender.layer == self.receiver.layer
        if same_layer and getattr(shape, "parallel", False):
            raise BadInput(
                f"edge {self} is not in this model: its blocks are parallel, MLPs do not read their own heads"
            )
        if self.receiver is not None and self.receiver.is_head and (why := headless(self.receiver.layer, shape)):
            raise BadInput(f"edge {self}: {why}: what one of them reads cannot be replaced alone; replace it whole")
        return self

    def __str__(self) -> str:
        return self.format()


def _feeds(sender: Component, receiver: Component) -> bool:
    """A head feeds the MLP of its own layer and everything in later layers; an MLP feeds later layers."""
    if sender.layer == receiver.layer:
        return sender.is_head and not receiver.is_head
    return sender.layer < receiver.layer


#: Components, edges and sites as callers name them: several, one alone, or names in one text with commas.
Names = Iterable[str | Named] | str | Named


def split_names(names: Names) -> list[str | Named]:
    """Names as a list: several, one alone, or names in one text with commas."""
    if isinstance(names, Named):
        return [names]
    if isinstance(names, str):
        return [name.strip() for name in names.split(",") if name.strip()]
    if not isinstance(names, Iterable):
        raise BadInput(f"{names!r} names no components; give names such as L1H2 and L0_MLP, or a circuit")
    several = list(names)
    if (strange := next((one for one in several if not isinstance(one, str | Named)), None)) is not None:
        raise BadInput(f"component {strange!r} is not a name; expected {_EXPECTED}")
    return several


def all_components(shape: Shape, *, heads: bool = True, mlps: bool = True) -> list[Component]:
    """Every component of a model in order of computation: heads of a layer, then its MLP."""
    return [
        Component(layer, head)
        for layer in range(shape.n_layers)
        for head in [*(range(shape.n_heads) if heads else ()), *([None] if mlps else ())]
    ]


def mlp_units(shape: Shape) -> list[Component]:
    """The units of all MLPs of a model in order of computation: experts where an MLP is made of them, else neurons."""
    experts, width = getattr(shape, "experts", None), getattr(shape, "d_mlp", 0)
    units: list[Component] = []
    for layer in range(shape.n_layers):
        if experts is not None and layer in experts.layers:
            units += [Component(layer, expert=number) for number in range(experts.n_units)]
        else:
            units += [Component(layer, neuron=number) for number in range(width)]
    return units


def parse_components(names: Iterable[str | Named], shape: Shape, *, neurons: bool = False) -> list[Component]:
    """Parse a list of names and check each against the model; an empty list is refused, and so are neurons and
    experts without `neurons`.
    """
    parsed = (name if isinstance(name, Component) else Component.parse(str(name)) for name in names)
    components = [component.within(shape, neurons=neurons) for component in parsed]
    if not components:
        raise BadInput("the list of components is empty; name at least one, such as L0H0 or L0_MLP")
    return components
