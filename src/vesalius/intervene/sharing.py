"""Rows that are alike for a while: a row with the replacements A, B and C equals the one with A and B alone until C.

Sets of components that are tried one after another (a group with and without each member, pairs) begin alike. Each row
then joins the walk where it first differs from another row of its prompt, in the state that the other has there.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.intervene.plan import KEEP, Plan
from vesalius.intervene.tokens import Spans
from vesalius.model.attention import SMALL_HEAD
from vesalius.model.config import Config

CLEAN = -1
#: When a replacement is made, the component and the choice.
Edit = tuple[int, int, int]


class Branches(NamedTuple):
    """When each row enters the walk, and the row that it equals until then (`CLEAN`: the clean run)."""

    entry: Int[Tensor, " row"]
    parent: Int[Tensor, " row"]


def edit_times(config: Config) -> Int[Tensor, " component"]:
    """When components are replaced: 3L+1 for heads of layer L, 3L+2 for its MLP."""
    component = torch.arange(config.n_layers * (config.n_heads + 1))
    return 3 * (component // (config.n_heads + 1)) + 1 + (component % (config.n_heads + 1) == config.n_heads).long()


def branches(config: Config, plan: Plan, entry: Int[Tensor, " row"], spans: Spans | None) -> Branches | None:
    """Where the rows of a chunk branch off from each other; None where no row has two replacements or it is not worth
    the search. `entry` says where each first differs from the clean run.
    """
    several = bool(((plan.choice != KEEP).sum(1) > 1).any())
    if plan.edges or plan.units is not None or config.parallel or config.d_head <= SMALL_HEAD or not several:
        return None
    edits, last = _edits(config, plan), 3 * config.n_layers - 1
    same = [_must_agree(plan, spans, row) for row in range(len(plan))]
    enters, parent = entry.tolist(), [CLEAN] * len(plan)
    order = sorted(range(len(plan)), key=lambda row: (same[row], edits[row]))
    for before, row in pairwise(order):
        if same[before] != same[row]:
            continue
        # Rows that are alike to the end branch off before the last MLP, where the same replacements follow.
        leaves, other = min(_first_difference(edits[before], edits[row]), last), before
        while other != CLEAN and enters[other] >= leaves:
            other = parent[other]
        if other != CLEAN:
            enters[row], parent[row] = leaves, other
    return Branches(torch.tensor(enters), torch.tensor(parent))


def without_inherited(config: Config, plan: Plan, entry: Int[Tensor, " row"]) -> Int[Tensor, "row component"]:
    """The choices that rows still have to make: those before they enter were made by the row they branch off from."""
    return plan.choice.masked_fill(edit_times(config)[None] < entry[:, None], KEEP)


def _edits(config: Config, plan: Plan) -> list[list[Edit]]:
    """The replacements of each row in the order in which they are made."""
    times, edits = edit_times(config), [[] for _ in range(len(plan))]
    rows, components = (plan.choice != KEEP).nonzero(as_tuple=True)
    made = zip(times[components].tolist(), components.tolist(), plan.choice[rows, components].tolist(), strict=True)
    for row, edit in zip(rows.tolist(), made, strict=True):
        edits[row].append(edit)
    return [sorted(one) for one in edits]


def _must_agree(plan: Plan, spans: Spans | None, row: int) -> tuple:
    """What rows that branch off from each other have in common."""
    where = b"" if plan.positions is None else plan.positions[row].cpu().numpy().tobytes()
    span = () if spans is None else (int(spans.first[row]), int(spans.end[row]))
    return int(plan.prompt[row]), span, where


def _first_difference(one: list[Edit], other: list[Edit]) -> int:
    """The time of the first replacement that only one of two rows makes; a large number if there is none."""
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return min((rest[length][0] for rest in (one, other) if len(rest) > length), default=2**30)
