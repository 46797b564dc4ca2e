"""Names of every place in a model where something can be replaced, and of the positions where it is.

A `Site` is a place and the positions at which it is replaced. The place is a component (`vesalius.components`), an
edge, or an `Activation`: a stream of a layer, or what one of its heads has.

| name                              | place                                                            |
|-----------------------------------|------------------------------------------------------------------|
| `L3.resid_pre`                    | residual stream before block 3                                   |
| `L3.resid_mid`                    | the same between attention and MLP; parallel blocks have none    |
| `L3.resid` (also `L3.resid_post`) | residual stream after block 3                                    |
| `L3.attn_out`, `L3.mlp_out`       | what attention, the MLP adds to it, biases included              |
| `L3H1.q`, `L3H1.k`, `L3H1.v`      | query, key, value of a head, before rotation                     |
| `L3H1.z`, `L3H1.pattern`          | its mixed values (the same as `L3H1`), its attention             |
| `L3.q`, `L3.pattern`, ...         | those of all heads of the layer                                  |
| `L3.mlp_pre`, `L3.mlp_post`       | the MLP's neurons before and after the activation function       |
| `L3H1`, `L3_MLP`, `L3N17`, `L3E5` | components: a head, an MLP without its bias, a neuron, an expert |
| `L3F4711`                         | a latent of the layer's sparse dictionary (`model.dictionaries`) |
| `L3.error`                        | what that dictionary misses of what it writes                    |
| `L0H1->L5H3.k`, `L0H1->logits`    | an edge                                                          |

Names of TransformerLens (`blocks.3.attn.hook_q[1]`, `blocks.3.hook_resid_pre`) are read as well. Positions follow
after `@`, each with its own: a number from 0, a number below 0 from the end of the prompt (-1: its last token), or a
role of the behaviour's prompts: `L12.resid@S2`, `L2.mlp_post@-1`, `L3H1@S1@S2`. Of a pattern they are those of queries.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from vesalius.components import Component, Edge, Named, Names, Shape, headless, split_names
from vesalius.errors import BadInput, choices, quoted

#: The activations of a layer, and the end of the hook's name.
STREAMS = {
    "resid_pre": "hook_resid_pre",
    "resid_mid": "hook_resid_mid",
    "resid": "hook_resid_post",
    "attn_out": "hook_attn_out",
    "mlp_out": "hook_mlp_out",
    "mlp_pre": "mlp.hook_pre",
    "mlp_post": "mlp.hook_post",
}
#: The activations that each head has.
OF_HEADS = {
    "q": "attn.hook_q_heads",
    "k": "attn.hook_k_heads",
    "v": "attn.hook_v_heads",
    "z": "attn.hook_z",
    "pattern": "attn.hook_pattern",
}
KINDS = (*STREAMS, *OF_HEADS)
#: Those inside modules of transformers that are run as a whole.
NOT_IN_WRAPPED = ("q", "k", "v", "mlp_pre", "mlp_post")
#: Other names of the same, those of TransformerLens among them.
_ALSO = {
    "resid_post": "resid",
    **{hook.removeprefix("mlp.").removeprefix("attn.").removeprefix("hook_"): kind for kind, hook in STREAMS.items()},
    "pre": "mlp_pre",
    "post": "mlp_post",
    **{kind: kind for kind in KINDS},
}
#: Words that people write for what heads have.
_WORDS = {"query": "q", "key": "k", "value": "v", "attention": "pattern"}
_EXPECTED = (
    "expected a head such as L1H2, an MLP: L0_MLP, a neuron: L3N17, an activation: L12.resid, L3H1.q, L2.mlp_post, "
    "an edge: L0H1->L5H3.k, or a latent: L12F4711, with positions after @"
)
_ACTIVATION = re.compile(r"L(\d{1,9})(?:\.?H(\d{1,9}))?\.([A-Za-z_]+)")
_FEATURE = re.compile(r"L(\d{1,9})(?:F(\d{1,9})|\.error)")
_HOOK = re.compile(r"blocks\.(\d{1,9})\.(?:attn\.|mlp\.)?hook_([a-z_]+)(?:\[(\d{1,9})\])?")
_NUMBER = re.compile(r"-?\d{1,9}")
_WRITTEN_OTHERWISE = re.compile(
    r"\W*[lL]?(?:ayers?|locks?)?[._ ]?(\d{1,9})(?:[._ ]?[hH](?:eads?)?[._ ]?(\d{1,9}))?\W*(.*)"
)


@dataclass(frozen=True)
class Activation(Named):
    """An activation of a layer (`kind` is one of `KINDS`); of one head where `head` is given."""

    layer: int
    kind: str
    head: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"activation {self.kind!r} does not exist; choose one of {choices(KINDS)}")
        if self.head is not None and self.kind not in OF_HEADS:
            raise BadInput(
                f"site L{self.layer}H{self.head}.{self.kind}: heads have {choices(OF_HEADS)}; take "
                f"L{self.layer}.{self.kind}"
            )

    @property
    def hook(self) -> str:
        """The hook point at which it is replaced."""
        return f"blocks.{self.layer}.{(STREAMS | OF_HEADS)[self.kind]}"

    def within(self, shape: Shape) -> "Activation":
        """Return self if the model has this activation, else say what the model has."""
        if why := self.missing(shape):
            raise BadInput(f"site {self}{why}")
        return self

    def missing(self, shape: Shape) -> str | None:
        """Why a model does not have this activation, and what it has instead; None where it does."""
        if self.layer >= shape.n_layers or (self.head or 0) >= shape.n_heads:
            return f" is not in this model; it has layers 0 to {shape.n_layers - 1} with heads 0 to {shape.n_heads - 1}"
        if self.kind == "resid_mid" and getattr(shape, "parallel", False):
            return (
                ": blocks of this model are parallel, so nothing lies between attention and MLP; take "
                f"L{self.layer}.resid_pre or L{self.layer}.resid"
            )
        wrapped = getattr(shape, "wrapped", None)
        if self.kind in OF_HEADS and self.kind != "z" and (why := headless(self.layer, shape)):
            return f": {why}; take L{self.layer}H0, L{self.layer}.attn_out or L{self.layer}.resid"
        if wrapped and self.kind in NOT_IN_WRAPPED:
            return (
                f": {self.kind} is not seen in a wrapped {wrapped} model; take a stream (L{self.layer}.resid, "
                f"L{self.layer}.mlp_out), a head (L{self.layer}H0) or an edge (L0_MLP->L1H0.q)"
            )
        experts = getattr(shape, "experts", None)
        if self.kind in ("mlp_pre", "mlp_post") and experts is not None and self.layer in experts.layers:
            return (
                f": the MLP of layer {self.layer} is made of experts; take L{self.layer}.mlp_out or an expert, "
                f"L{self.layer}E0"
            )
        return None

    def __str__(self) -> str:
        return f"L{self.layer}{'' if self.head is None else f'H{self.head}'}.{self.kind}"


@dataclass(frozen=True)
class Feature(Named):
    """A latent of a layer's sparse dictionary, or (`index` None) what the dictionary misses, with the `dictionary` that
    is bound to it where one has been loaded.
    """

    layer: int
    index: int | None
    dictionary: Any = field(default=None, compare=False, repr=False)

    def within(self, shape: Shape) -> "Feature":
        """Return self if the model has the layer."""
        if self.layer >= shape.n_layers:
            raise BadInput(f"site {self} is not in this model; it has layers 0 to {shape.n_layers - 1}")
        return self

    def __str__(self) -> str:
        return f"L{self.layer}.error" if self.index is None else f"L{self.layer}F{self.index}"


@dataclass(frozen=True)
class Site(Named):
    """A place and the positions at which it is replaced; without positions at all of them."""

    place: Component | Edge | Activation | Feature
    at: tuple[str | int, ...] = ()

    @classmethod
    def parse(cls, name: "str | Named") -> "Site":
        """Read a name of this module; what cannot be read gets one line with the nearest right name."""
        if isinstance(name, Site):
            return name
        if isinstance(name, Component | Edge | Activation | Feature):
            return cls(name)
        place, *at = str(name).strip().split("@")
        if not all(at):
            raise BadInput(f"site {quoted(name, 60)}: nothing follows an @; expected a position, such as @end or @3")
        return cls(_place(place.strip()), tuple(int(one) if _NUMBER.fullmatch(one) else one for one in at))

    @property
    def layer(self) -> int:
        """The first layer that replacing it changes."""
        if isinstance(self.place, Edge):
            return 0 if self.place.sender is None else self.place.sender.layer
        return self.place.layer

    @property
    def is_unit(self) -> bool:
        """True for a part of an MLP: a neuron or an expert."""
        return isinstance(self.place, Component) and self.place.is_unit

    def within(self, shape: Shape) -> "Site":
        """Return self if the model has this place, else say what the model has."""
        if isinstance(self.place, Component):
            self.place.within(shape, neurons=True)
        else:
            self.place.within(shape)
        return self

    def placed(self, *at: str | int) -> "Site":
        """The same place at these positions."""
        return replace(self, at=at)

    def __str__(self) -> str:
        place = self.place
        name = re.sub(r"<([qkv])>$", r".\1", place.format("canonical")) if isinstance(place, Edge) else str(place)
        return "@".join([name, *map(str, self.at)])


def _place(text: str) -> Component | Edge | Activation | Feature:
    if "->" in text:
        return Edge.parse(text)
    if match := _FEATURE.fullmatch(text):
        return Feature(int(match[1]), None if match[2] is None else int(match[2]))
    if (match := _ACTIVATION.fullmatch(text)) and match[3] in _ALSO:
        return Activation(int(match[1]), _ALSO[match[3]], None if match[2] is None else int(match[2]))
    try:
        return Component.parse(text)
    except BadInput:
        pass
    if (match := _HOOK.fullmatch(text)) and match[2] in _ALSO:
        return Activation(int(match[1]), _ALSO[match[2]], None if match[3] is None else int(match[3]))
    near = _nearest(text)
    raise BadInput(
        f"component {quoted(text, 60)} is not a name{f'; did you mean {near}?' if near else ''}; {_EXPECTED}"
    )


def _nearest(text: str) -> str | None:
    """The right name that a wrong one is nearest to: the numbers as they are, the words corrected."""
    numbers = _WRITTEN_OTHERWISE.fullmatch(text)
    if numbers is None:
        return None
    layer, head, word = numbers[1], numbers[2], numbers[3].strip("._ ").lower()
    if not word:
        return f"L{layer}" + (f"H{head}" if head else ".resid")
    known = (dict.fromkeys(OF_HEADS) if head else dict.fromkeys((*_ALSO, "mlp"))) | dict.fromkeys(_WORDS)
    near = get_close_matches(word, known, 1, 0.5)
    if not near:
        return None
    if near[0] == "mlp":
        return f"L{layer}_MLP"
    return f"L{layer}{f'H{head}' if head else ''}.{(_ALSO | _WORDS)[near[0]]}"


def parse_sites(names: Names, shape: Shape) -> list[Site]:
    """Parse names and check each against the model; one that is given twice counts once, an empty list is refused."""
    sites = list(dict.fromkeys(Site.parse(name).within(shape) for name in split_names(names)))
    if not sites:
        raise BadInput("the list of components is empty; name at least one, such as L0H0, L0_MLP or L3.resid")
    return sites


def only_components(sites: Iterable[Site]) -> bool:
    """Whether all are components at every position."""
    return all(isinstance(one.place, Component) and not one.at for one in sites)


def sites_of(kinds: str | Sequence[str], shape: Shape) -> list[Site]:
    """All sites of some kinds, `resid,q`: layer by layer, of kinds that heads have head by head, without layers that
    have none of the kind; refused where no layer has. A single name, such as `L3H1.q`, stands for itself.
    """
    names = [str(one) for one in split_names(kinds)]
    if not names:
        raise BadInput(f"`sites` is empty; name kinds of activations: {choices(KINDS)}")
    return list(dict.fromkeys(site for name in names for site in _all_of(name, shape)))


def _all_of(kind: str, shape: Shape) -> list[Site]:
    if kind not in _ALSO:
        if re.search(r"\d", kind):
            return [Site.parse(kind).within(shape)]
        near = get_close_matches(kind, _ALSO, 1, 0.5)
        meant = f"; did you mean {_ALSO[near[0]]}?" if near else ""
        raise BadInput(f"`sites` {quoted(kind, 40)} does not exist{meant}; choose of {choices(KINDS)}")
    own = _ALSO[kind]
    heads = range(shape.n_heads) if own in OF_HEADS else (None,)
    every = [Activation(layer, own, head) for layer in range(shape.n_layers) for head in heads]
    there = [one for one in every if one.missing(shape) is None]
    return [Site(one) for one in there or [every[0].within(shape)]]
