"""Runs pairs with a place exchanged, and says which answer the model then gives.

1. Run all sources once and keep, at the position of each role, the residual stream before every layer, z and MLP
   outputs; run all bases once and keep the residual stream before every layer.
2. For a place: put the source's value into the base's residual stream (or z, or MLP output) at the roles' positions,
   and continue from the first layer that differs.
3. Read the logits at the last position of the base: the answer is the largest among the pair's choices, or in the
   whole vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.alignment import EMBEDDING, OUTPUT
from vesalius.model.attention import take_positions
from vesalius.model.hooks import Hook, HookPoint, Tap
from vesalius.model.transformer import Transformer
from vesalius.progress import checkpoint

#: Numbers of activations and logits under way at once.
AT_ONCE = 6_000_000
_RESID, _Z, _MLP = "hook_resid_pre", "attn.hook_z", "hook_mlp_out"
NOTHING = -1
RESIDUAL, END = "resid", "end"


@dataclass(frozen=True)
class Place:
    """Roles, with what is exchanged there: the residual stream before a layer, or what components write. With
    `directions` (orthonormal columns) only the part of the residual stream that lies in them is exchanged.
    """

    roles: tuple[str, ...]
    layer: int | None = None
    components: tuple[Component, ...] = ()
    directions: Float[Tensor, "d_model k"] | None = None

    def __str__(self) -> str:
        what = f"{RESIDUAL}{self.layer}" if self.layer is not None else "+".join(map(str, self.components))
        subspace = "" if self.directions is None else f"/{self.directions.shape[1]}"
        return f"{what}@{'+'.join(self.roles)}{subspace}"

    @property
    def site(self) -> str:
        """The place as `vesalius.sites` names it, after the block; several components have one name each."""
        at = "@".join(self.roles)
        if self.layer is None:
            return ",".join(f"{one}@{at}" for one in self.components)
        return f"L{self.layer - 1}.resid@{at}" if self.layer else f"L0.resid_pre@{at}"

    def words(self, n_layers: int) -> str:
        """The place in words; before the first layer and after the last it is the input and the output itself."""
        at = " and ".join(self.roles)
        if self.layer is None:
            return f"{' + '.join(map(str, self.components))} at {at}"
        subspace = "" if self.directions is None else f"{self.directions.shape[1]} directions of "
        ends = {0: EMBEDDING, n_layers: OUTPUT}
        return f"{subspace}{ends.get(self.layer, f'the residual stream before layer {self.layer}')} at {at}"

    @property
    def first_layer(self) -> int:
        """The layer before or in which the run first differs."""
        return self.layer if self.layer is not None else min(component.layer for component in self.components)

    def within(self, directions: Float[Tensor, "d_model k"]) -> "Place":
        """Only these directions of it."""
        return replace(self, directions=directions)


class Placed(Protocol):
    """Tokens, and the position of each role in them."""

    @property
    def tokens(self) -> Sequence[int]:
        """The token ids."""
        ...

    @property
    def roles(self) -> Mapping[str, int]:
        """Positions by role; the last position is `END`."""
        ...


@dataclass(frozen=True)
class Sides:
    """Inputs of one length of tensor: tokens, which of them are real, and the position of each role."""

    tokens: Int[Tensor, "side pos"]
    mask: Bool[Tensor, "side pos"]
    positions: Int[Tensor, "side role"]

    @classmethod
    def of(cls, sides: Sequence[Placed], roles: Sequence[str], pad: int) -> "Sides":
        """Pad on the right."""
        width = max(len(side.tokens) for side in sides)
        lengths = torch.tensor([len(side.tokens) for side in sides])
        return cls(
            torch.tensor([[*side.tokens, *[pad] * (width - len(side.tokens))] for side in sides]),
            torch.arange(width)[None] < lengths[:, None],
            torch.tensor([[side.roles[role] for role in roles] for side in sides]),
        )


@dataclass
class Exchange:
    """Pairs that are ready to be exchanged: row i takes the source `i` into the base `base_of[i]`. `options` are the
    tokens to choose from, padded with `NOTHING` (None: all).
    """

    model: Transformer
    roles: tuple[str, ...]
    bases: Sides
    sources: Sides
    base_of: Int[Tensor, " row"]
    base_options: Int[Tensor, "base option"] | None
    options: Int[Tensor, "row option"] | None
    forwards: float = 0.0
    _resid: list[Float[Tensor, "base pos d_model"]] = field(default_factory=list, repr=False)
    _at_roles: dict[str, list[Float[Tensor, "row role ..."]]] = field(default_factory=dict, repr=False)

    @property
    def dtype(self) -> torch.dtype:
        """The number format of the residual stream."""
        return self.model.W_E.dtype

    @torch.no_grad()
    def record(self) -> tuple[Int[Tensor, " base"], Int[Tensor, " row"]]:
        """Run everything once; the answers on the bases, and on the sources."""
        whole = [self._recorded(self.bases, rows, whole=True) for rows in self._chunks(len(self.bases.tokens))]
        self._resid = [torch.cat(parts) for parts in zip(*(one[_RESID] for one, _ in whole), strict=True)]
        at_roles = [self._recorded(self.sources, rows) for rows in self._chunks(len(self.base_of))]
        for name in (_RESID, _Z, _MLP):
            self._at_roles[name] = [torch.cat(parts) for parts in zip(*(one[name] for one, _ in at_roles), strict=True)]
        self.forwards += len(self.bases.tokens) + len(self.base_of)
        answers = self._answers([last for _, last in whole], self.base_options)
        return answers, self._answers([last for _, last in at_roles], self.options)

    def _chunks(self, n: int) -> Sequence[Int[Tensor, " chunk"]]:
        config, width = self.model.config, max(self.bases.tokens.shape[1], self.sources.tokens.shape[1])
        each = width * (config.d_model + config.d_mlp) + config.d_vocab_out
        return torch.arange(n).split(max(1, AT_ONCE // each))

    def _recorded(
        self, sides: Sides, rows: Tensor, *, whole: bool = False
    ) -> tuple[dict[str, list[Tensor]], Float[Tensor, "row d_model"]]:
        """What one run has at the roles (or everywhere, the residual stream alone), and the residual stream at the end
        after the last layer.
        """
        checkpoint()
        tokens, mask, positions = sides.tokens[rows], sides.mask[rows], sides.positions[rows].to(self.model.device)
        kept: dict[str, list[Tensor]] = {_RESID: [], _Z: [], _MLP: []}
        last: list[Tensor] = []

        def keep(value: Tensor, point: HookPoint) -> None:
            name = point.name.split(".", 2)[-1]
            if name == "hook_resid_post":  # of the last layer, as if there were one more
                name, end = _RESID, positions[:, self.roles.index(END)]
                last.append(value[torch.arange(len(rows)), end.to(value.device)])
            kept[name].append(value if whole else take_positions(value, positions.to(value.device)))

        final = f"blocks.{self.model.config.n_layers - 1}.hook_resid_post"
        ends = (_RESID,) if whole else (_RESID, _Z, _MLP)
        hook: Hook = (
            lambda name: name == final or (name.startswith("blocks.") and name.split(".", 2)[-1] in ends),
            keep,
        )
        nothing = torch.zeros(len(rows), 1, dtype=torch.long)
        self.model.run_with_hooks(tokens, fwd_hooks=[hook], mask=mask, choose=nothing)
        return kept, last[0]

    def _answers(self, ends: list[Float[Tensor, "chunk d_model"]], options: Tensor | None) -> Int[Tensor, " row"]:
        """The answers of runs with these residual streams at the end."""
        answers, done = [], 0
        for resid in ends:
            some = None if options is None else options[done : done + len(resid)]
            logits = self._logits(resid[:, None], None if some is None else some.clamp(min=0))
            answers.append(_chosen(_masked(logits, some), some))
            done += len(resid)
        return torch.cat(answers)

    def _logits(self, resid: Float[Tensor, "row 1 d_model"], choose: Tensor | None) -> Float[Tensor, "row out"]:
        return self.model.unembed(resid, None if choose is None else choose.to(resid.device), Tap())[:, 0]

    def differences(self, place: Place, rows: Int[Tensor, " some"]) -> Float[Tensor, "some d_model"]:
        """Source minus base in the residual stream at a place of one role."""
        assert place.layer is not None
        column, bases = self.roles.index(place.roles[0]), self.base_of[rows]
        positions = self.bases.positions[bases][:, column]
        return self._value(place, rows, column) - self._resid[place.layer][bases, positions]

    @torch.no_grad()
    def answers(self, place: Place, rows: Int[Tensor, " some"]) -> Int[Tensor, " some"]:
        """The token that the model says in each of these rows with the place exchanged."""
        if not len(rows):  # the model answers no pair as the algorithm says: there is nothing to exchange
            return rows.clone()
        return torch.cat([_chosen(logits, options) for logits, options in self._run(place, rows)])

    @torch.no_grad()
    def margins(
        self,
        place: Place | None,
        rows: Int[Tensor, " some"],
        wanted: Int[Tensor, " some"],
        instead: Int[Tensor, " some"],
    ) -> Float[Tensor, " some"]:
        """logit(wanted) - logit(instead) in each row with the place exchanged (None: nothing)."""
        pair = torch.stack([wanted, instead], 1)
        parts = []
        for chunk in torch.arange(len(rows)).split(max(1, len(self._chunks(len(rows))[0]))):
            logits = self.patched(place, rows[chunk], choose=pair[chunk])
            parts.append((logits[:, 0] - logits[:, 1]).cpu())
        return torch.cat(parts)

    def _run(self, place: Place, rows: Tensor) -> Iterator[tuple[Tensor, Tensor | None]]:
        for chunk in rows.split(max(1, len(self._chunks(len(self.base_of))[0]))):
            options = None if self.options is None else self.options[chunk]
            logits = self.patched(place, chunk, choose=None if options is None else options.clamp(min=0))
            yield _masked(logits, options), options

    def patched(
        self, place: Place | None, rows: Int[Tensor, " some"], *, choose: Tensor | None = None
    ) -> Float[Tensor, "some out"]:
        """Logits at the end of the bases of these rows with the place exchanged, of all tokens or of chosen ones.
        Gradients reach the place's directions.
        """
        checkpoint()
        config, bases = self.model.config, self.base_of[rows]
        at = self.bases.positions[bases][:, [self.roles.index(END)]]
        if place is None:
            place = Place((END,), layer=config.n_layers, directions=torch.zeros(config.d_model, 1))
        start = place.first_layer
        self.forwards += len(rows) * (config.n_layers - start) / config.n_layers
        columns = [self.roles.index(role) for role in place.roles]
        positions = self.bases.positions[bases][:, columns]
        if start == config.n_layers:  # after the last layer: only the end is read
            resid = take_positions(self._resid[-1][bases], at.to(self._resid[-1].device))
            where = torch.arange(len(rows))
            for column, role in zip(columns, place.roles, strict=True):
                if role == END:
                    resid = _put(resid, where, torch.zeros_like(where), self._value(place, rows, column), place)
            return self._logits(resid, choose)
        resid = self._resid[start][bases].clone()
        where = torch.arange(len(rows), device=resid.device)
        if place.layer is not None:
            for slot, column in enumerate(columns):
                resid = _put(resid, where, positions[:, slot].to(resid.device), self._value(place, rows, column), place)
            hooks: list[Hook] = []
        else:
            hooks = self._hooks(place, rows, columns, positions)
        logits = self.model.run_with_hooks(
            self.bases.tokens[bases],
            fwd_hooks=hooks,
            mask=self.bases.mask[bases],
            start_layer=start,
            resid=resid,
            at=at,
            choose=choose,
        )
        return logits[:, 0]

    def _value(self, place: Place, rows: Tensor, column: int) -> Float[Tensor, "some d_model"]:
        return self._at_roles[_RESID][place.first_layer][rows, column]

    def _hooks(self, place: Place, rows: Tensor, columns: list[int], positions: Tensor) -> list[Hook]:
        """What puts the outputs of a place's components in. The last layer computes the end alone."""
        last, hooks = self.model.config.n_layers - 1, []
        for layer in sorted({component.layer for component in place.components}):
            heads = [one.head for one in place.components if one.layer == layer and one.head is not None]
            mlp = any(one.layer == layer and one.head is None for one in place.components)
            for name, parts in ((_Z, heads), (_MLP, None if not mlp else [])):
                if parts is None or (name == _Z and not parts):
                    continue

                def put(
                    value: Tensor, _: HookPoint, layer: int = layer, name: str = name, parts: list[int] = parts
                ) -> Tensor:
                    value = value.clone()
                    where = torch.arange(len(rows), device=value.device)
                    for slot, column in enumerate(columns):
                        if layer == last and self.roles[column] != END:
                            continue
                        at = torch.zeros_like(where) if layer == last else positions[:, slot].to(value.device)
                        new = self._at_roles[name][layer][rows, column].to(value.device)
                        if name == _MLP:
                            value[where, at] = new
                        else:
                            for head in parts:
                                value[where, at, head] = new[:, head]
                    return value

                hooks.append((f"blocks.{layer}.{name}", put))
        return hooks


def _put(resid: Tensor, where: Tensor, at: Tensor, new: Tensor, place: Place) -> Tensor:
    """The residual stream with the place's part of it taken from the source."""
    new = new.to(resid.device)
    if place.directions is not None:
        basis = place.directions.to(resid.device)
        old = resid[where, at]
        new = old + (new - old) @ basis @ basis.T
    return resid.index_put((where, at), new)


def _masked(logits: Tensor, options: Tensor | None) -> Tensor:
    return logits if options is None else logits.masked_fill((options == NOTHING).to(logits.device), -torch.inf)


def _chosen(logits: Tensor, options: Tensor | None) -> Int[Tensor, " row"]:
    """The token with the largest logit."""
    best = logits.argmax(1).cpu()
    return best if options is None else options[torch.arange(len(best)), best]
