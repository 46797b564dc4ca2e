"""Which row of a batch gets which intervention.

A `Plan` is a list of rows; each row runs one prompt with a set of components replaced and a set of edges cut over,
all at once. `choice` holds, for every row and component, the row of the `Values` table that replaces it, or -1 to
leave it alone: a mask and a selection in one tensor. Units of MLPs (neurons, experts) are listed one by one
(`UnitEdits`), because a model has many and a row replaces few of them, or replaces them in few rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.components import Component, Edge, all_components
from vesalius.errors import BadInput
from vesalius.intervene.patterns import PatternEdits
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
class UnitEdits:
    """Units of MLPs replaced in rows: edit i replaces the unit at `place[i]` (`unit_place`) in `row[i]` by `choice[i]`.
    In order of place.
    """

    row: Int[Tensor, " edit"]
    place: Int[Tensor, " edit"]
    choice: Int[Tensor, " edit"]

    @classmethod
    def sorted(cls, row: Tensor, place: Tensor, choice: Tensor) -> "UnitEdits | None":
        """The edits in order of place; None if there are none."""
        order = place.argsort(stable=True)
        return cls(row[order], place[order], choice[order]) if len(order) else None

    def of_rows(self, rows: Int[Tensor, " n"], total: int) -> "UnitEdits | None":
        """The edits of some of `total` rows, rows renumbered from 0."""
        renumbered = torch.full((total,), -1)
        renumbered[rows] = torch.arange(len(rows))
        row = renumbered[self.row]
        kept = row >= 0
        return UnitEdits(row[kept], self.place[kept], self.choice[kept]) if bool(kept.any()) else None


def units_per_layer(config: Config) -> int:
    """How many places of units a layer has: one for each neuron or expert of the MLP that has most."""
    return max(config.d_mlp, 0 if config.experts is None else config.experts.n_units)


def require_units(config: Config) -> None:
    """Refuse neurons and experts of a model whose MLPs are one whole each."""
    if config.wrapped:
        raise BadInput(
            f"neurons and experts are not taken apart in a wrapped {config.wrapped} model; name heads and MLPs, or use "
            "a model of the families of `vesalius models`"
        )


def unit_place(unit: Component, config: Config) -> int:
    """Place of a neuron or an expert in order of computation."""
    require_units(config)
    number = unit.expert if unit.neuron is None else unit.neuron
    assert number is not None
    return unit.layer * units_per_layer(config) + number


@dataclass(frozen=True)
class Plan:
    """Rows to run: prompt of each row, choices per component, optional positions, edges, units of MLPs, and attention
    patterns of heads.
    """

    prompt: Int[Tensor, " row"]
    choice: Int[Tensor, "row component"]
    positions: Bool[Tensor, "row pos"] | None = None
    edges: tuple[EdgeEdit, ...] = ()
    units: UnitEdits | None = None
    patterns: PatternEdits | None = None

    def __len__(self) -> int:
        return len(self.prompt)

    @classmethod
    def of(cls, config: Config, rows: Iterable[Row], *, width: int) -> "Plan":
        """A plan from explicit rows; `width` is the number of positions of the prompts."""
        rows = list(rows)
        if not rows:
            raise BadInput("the list of interventions is empty; give at least one row")
        choice = torch.full((len(rows), config.n_layers * (config.n_heads + 1)), KEEP)
        edges, units = [], []
        for i, row in enumerate(rows):
            for name, k in row.edits.items():
                part = Component.parse(name).within(config, neurons=True)
                if part.is_unit:
                    units.append((i, unit_place(part, config), k))
                else:
                    choice[i, component_index(part, config)] = k
            edges += [EdgeEdit(i, Edge.parse(name).within(config), k) for name, k in row.edges.items()]
        where = None
        if any(row.positions is not None for row in rows):
            where = torch.stack([_position_mask(row.positions, width) for row in rows])
        edits = UnitEdits.sorted(*torch.tensor(units, dtype=torch.long).view(-1, 3).T)
        return cls(torch.tensor([row.prompt for row in rows]), choice, where, tuple(edges), edits)

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
        replaced_parts = [(i, component) for i, members in enumerate(sets) for component in members]
        units = [
            (i, unit_place(part.within(config, neurons=True), config)) for i, part in replaced_parts if part.is_unit
        ]
        try:
            places = [(i, place_of[component]) for i, component in replaced_parts if not component.is_unit]
        except KeyError as error:
            raise BadInput(f"component {error.args[0]} is not in this model") from None
        replaced = torch.zeros(len(sets), config.n_layers * (config.n_heads + 1), dtype=torch.bool)
        replaced[tuple(torch.tensor(places, dtype=torch.long).view(-1, 2).T)] = True
        n = len(choices)
        of_set, place = torch.tensor(units, dtype=torch.long).view(-1, 2).T
        row = (of_set[:, None] * n + torch.arange(n)).flatten()
        edits = UnitEdits.sorted(row, place.repeat_interleave(n), choices.cpu().repeat(len(place)))
        choice = torch.where(replaced[:, None], choices.cpu()[None, :, None], KEEP).flatten(0, 1)
        where = None if positions is None else positions.cpu().repeat(len(sets), 1)
        return cls(torch.arange(n).repeat(len(sets)), choice, where, units=edits)

    @classmethod
    def without_units(
        cls,
        config: Config,
        places: Int[Tensor, " unit"],
        *,
        choices: Int[Tensor, " prompt"],
        positions: Bool[Tensor, "prompt pos"] | None = None,
    ) -> "Plan":
        """The units at these places replaced together on every prompt; prompt p uses replacement `choices[p]`."""
        n = len(choices)
        row, choice = (part.repeat_interleave(len(places)) for part in (torch.arange(n), choices.cpu()))
        keep = torch.full((n, config.n_layers * (config.n_heads + 1)), KEEP)
        where = None if positions is None else positions.cpu()
        return cls(torch.arange(n), keep, where, units=UnitEdits.sorted(row, places.repeat(n), choice))

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
