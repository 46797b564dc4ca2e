"""Which row of a batch gets which intervention.

A `Plan` is a list of rows; each row runs one prompt with a set of components replaced and a set of edges cut over,
all at once. `choice` holds, for every row and component, the row of the `Values` table that replaces it, or -1 to
leave it alone: a mask and a selection in one tensor.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.components import Component, Edge, all_components
from vesalius.errors import BadInput
from vesalius.model.config import Config

KEEP = -1


def component_index(component: Component, config: Config) -> int:
    """Place of a component in order of computation: heads of layer 0, its MLP, heads of layer 1, ..."""
    return component.layer * (config.n_heads + 1) + (config.n_heads if component.head is None else component.head)


@dataclass(frozen=True)
class Row:
    """One run of one prompt: components and edges with the choice (row of the values table) that replaces each."""

    prompt: int
    edits: Mapping[str | Component, int] = field(default_factory=dict)
    edges: Mapping[str | Edge, int] = field(default_factory=dict)
    positions: Sequence[int] | None = None


@dataclass(frozen=True)
class EdgeEdit:
    """One edge of one row carries the sender's replacement value `choice` instead of what the sender wrote."""

    row: int
    edge: Edge
    choice: int


@dataclass(frozen=True)
class Plan:
    """Rows to run: prompt of each row, choices per component, optional positions, edges."""

    prompt: Int[Tensor, " row"]
    choice: Int[Tensor, "row component"]
    positions: Bool[Tensor, "row pos"] | None = None
    edges: tuple[EdgeEdit, ...] = ()

    def __len__(self) -> int:
        return len(self.prompt)

    @classmethod
    def of(cls, config: Config, rows: Iterable[Row], *, width: int) -> "Plan":
        """A plan from explicit rows; `width` is the number of positions of the prompts."""
        rows = list(rows)
        if not rows:
            raise BadInput("the list of interventions is empty; give at least one row")
        choice = torch.full((len(rows), config.n_layers * (config.n_heads + 1)), KEEP)
        edges = []
        for i, row in enumerate(rows):
            for name, k in row.edits.items():
                choice[i, component_index(Component.parse(name).within(config), config)] = k
            edges += [EdgeEdit(i, Edge.parse(name).within(config), k) for name, k in row.edges.items()]
        where = None
        if any(row.positions is not None for row in rows):
            where = torch.stack([_position_mask(row.positions, width) for row in rows])
        return cls(torch.tensor([row.prompt for row in rows]), choice, where, tuple(edges))

    @classmethod
    def grid(
        cls,
        config: Config,
        sets: Sequence[Iterable[Component]],
        *,
        choices: Int[Tensor, " prompt"],
        positions: Bool[Tensor, "prompt pos"] | None = None,
    ) -> "Plan":
        """Every set of components on every prompt, prompts fastest; prompt p uses replacement `choices[p]`."""
        if not len(sets) or not len(choices):
            raise BadInput("a sweep needs at least one set of components and one prompt")
        place_of = {component: place for place, component in enumerate(all_components(config))}
        try:
            places = [(i, place_of[component]) for i, members in enumerate(sets) for component in members]
        except KeyError as error:
            raise BadInput(f"component {error.args[0]} is not in this model") from None
        replaced = torch.zeros(len(sets), config.n_layers * (config.n_heads + 1), dtype=torch.bool)
        replaced[tuple(torch.tensor(places).T)] = True
        n = len(choices)
        choice = torch.where(replaced[:, None], choices.cpu()[None, :, None], KEEP).flatten(0, 1)
        where = None if positions is None else positions.cpu().repeat(len(sets), 1)
        return cls(torch.arange(n).repeat(len(sets)), choice, where)

    @classmethod
    def each(
        cls,
        config: Config,
        prompts: Int[Tensor, " row"],
        component: Component,
        *,
        positions: Bool[Tensor, "row pos"] | None = None,
    ) -> "Plan":
        """One component replaced in every row, in row i by replacement i."""
        choice = torch.full((len(prompts), config.n_layers * (config.n_heads + 1)), KEEP)
        choice[:, component_index(component.within(config), config)] = torch.arange(len(prompts))
        return cls(prompts, choice, positions)


def _position_mask(positions: Sequence[int] | None, width: int) -> Bool[Tensor, " pos"]:
    if positions is None:
        return torch.ones(width, dtype=torch.bool)
    outside = [p for p in positions if not -width <= p < width]
    if outside or not len(positions):
        raise BadInput(f"positions {list(positions)} do not fit prompts of {width} tokens")
    mask = torch.zeros(width, dtype=torch.bool)
    mask[list(positions)] = True
    return mask
