"""The units of MLPs that a chunk of rows replaces while the MLP runs: neurons at what they put out (`hook_post`),
experts at what they add (`hook_expert_out`).
"""

import torch
from torch import Tensor

from vesalius.intervene.cuts import Walk
from vesalius.intervene.plan import UnitEdits, units_per_layer
from vesalius.intervene.tokens import Live
from vesalius.intervene.values import unit_hook
from vesalius.model.devices import Copies
from vesalius.model.hooks import HookPoint, Tap

_CLEAN = Tap()


class ReplacedUnits:
    """Edits in order of layer, so that a layer finds its own at once."""

    def __init__(self, edits: UnitEdits, walk: Walk) -> None:
        config, device = walk.model.config, walk.model.device
        self.walk = walk
        width = units_per_layer(config)
        layers = torch.arange(config.n_layers + 1) * width
        self.bounds: list[int] = torch.searchsorted(edits.place, layers).tolist()
        self.row, self.choice = Copies(edits.row.to(device)), Copies(edits.choice.to(device))
        self.number = Copies((edits.place % width).to(device))

    def tap(self, layer: int, rows: int) -> Tap:
        """What replaces this layer's units in the first `rows` rows while the MLP runs. A row that joins later has
        its layer behind it: nothing that it changes there is read.
        """
        span = slice(self.bounds[layer], self.bounds[layer + 1])
        if span.start == span.stop:
            return _CLEAN

        def replace(post: Tensor, hook: HookPoint) -> Tensor:
            row, number, choice = (part.on(post.device)[span] for part in (self.row, self.number, self.choice))
            under_way = row < rows
            return self._replaced(post, layer, row[under_way], number[under_way], choice[under_way])

        return Tap([(unit_hook(self.walk.model.config, layer), replace)])

    def _replaced(self, post: Tensor, layer: int, row: Tensor, number: Tensor, choice: Tensor) -> Tensor:
        places, where, table = self.walk.places(layer), self.walk.positions, self.walk.values.units[layer]
        if isinstance(places, Live):
            edit, unit, position = places.expand(row)
            slot = torch.zeros_like(unit)
        else:
            at = None if places.at is None else places.at.on(post.device)
            slots = torch.arange(post.shape[1], device=post.device)
            edit = torch.arange(len(row), device=post.device).repeat_interleave(len(slots))
            unit, slot = row[edit], slots.repeat(len(row))
            position = slot if at is None else at[unit, slot]
        if where is not None:
            changed = where.on(post.device)[row[edit], position]
            edit, unit, slot, position = (part[changed] for part in (edit, unit, slot, position))
        post = post.clone()
        post[unit, slot, number[edit]] = table[choice[edit], position if table.shape[1] > 1 else 0, number[edit]]
        return post
