"""Which tokens of a plan's rows are computed: those that can differ from the clean run and reach the readout.

In a causal model a row equals the clean run before the first position at which it gets another value. The values of a
counterfactual prompt are the clean ones as far as both prompts begin alike, and what comes after the last position that
is read reaches nothing. A change at the last position alone thus costs one token for each row, whatever the length of
the prompt: keys and values of the others come from the recording.

`TokenGrid` holds rows that are computed at every position or at those of the readout, `Live` the others, token by
token.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.intervene.plan import KEEP, Plan
from vesalius.intervene.values import Batch, Values
from vesalius.model.attention import SMALL_HEAD
from vesalius.model.config import Config
from vesalius.model.devices import DeviceCopies
from vesalius.model.positions import Layout
from vesalius.model.transformer import Block

#: Tokens are computed one by one where at most this share of them is left; the copies cost more than the rest saves.
WORTHWHILE = 0.9


@dataclass(frozen=True)
class Spans:
    """For each row the positions to compute: from `first` on, before `end`."""

    first: Int[Tensor, " row"]
    end: Int[Tensor, " row"]

    @property
    def count(self) -> Int[Tensor, " row"]:
        """The number of positions."""
        return self.end - self.first

    def take(self, rows: Int[Tensor, " n"]) -> "Spans":
        """The spans of some rows."""
        return Spans(self.first[rows], self.end[rows])


def spans_to_compute(
    config: Config, plan: Plan, values: Values, batch: Batch, at: Int[Tensor, "prompt query"] | None
) -> Spans | None:
    """The spans of a plan's rows (`at`: the positions that matter, None for all); None if all tokens are computed."""
    width = batch.tokens.shape[1]
    if not config.causal or config.wrapped or config.d_head <= SMALL_HEAD or batch.tokens.is_meta:
        return None
    end = torch.full((len(plan),), width) if at is None else at.cpu().amax(1)[plan.prompt] + 1
    places = torch.arange(width)
    changed = (places >= _begin_alike(config, plan, values, batch)[:, None]) & (places < end[:, None])
    if plan.positions is not None:
        changed &= plan.positions.cpu()
    first = torch.where(changed.any(1), changed.int().argmax(1), end)
    spans = Spans(first, end)
    return spans if int(spans.count.sum()) <= WORTHWHILE * width * len(plan) else None


def _begin_alike(config: Config, plan: Plan, values: Values, batch: Batch) -> Int[Tensor, " row"]:
    """How many positions a row's prompt shares with the prompt that its values come from; 0 if they come from no prompt
    or from several.
    """
    none, source = torch.zeros(len(plan), dtype=torch.long), values.prompts
    if source is None or source.tokens.shape[1] != batch.tokens.shape[1]:
        return none
    least = torch.where(plan.choice == KEEP, len(values), plan.choice).amin(1)
    most = plan.choice.amax(1)
    if (units := plan.units) is not None:
        least = least.scatter_reduce(0, units.row, units.choice, "amin")
        most = most.scatter_reduce(0, units.row, units.choice, "amax")
    for edit in plan.edges:
        least[edit.row] = min(int(least[edit.row]), edit.choice)
        most[edit.row] = max(int(most[edit.row]), edit.choice)
    choice = most.clamp(min=0)
    real, source_real = (real_tokens(config, part).cpu() for part in (batch, source))
    alike = (batch.tokens.cpu()[plan.prompt] == source.tokens.cpu()[choice]).long().cumprod(1).sum(1)
    one_prompt = (least == most) & (real[plan.prompt] == source_real[choice]).all(1)
    if plan.patterns is not None:  # a pattern that is set may differ from the first query on
        one_prompt[plan.patterns.row] = False
    return torch.where(one_prompt, alike, none)


def real_tokens(config: Config, batch: Batch) -> Bool[Tensor, "prompt pos"]:
    """Where a batch has tokens that are not padding."""
    if batch.mask is not None:
        return batch.mask
    return config.not_padding(batch.tokens)


class TokenGrid:
    """Rows computed at the same number of positions: all (`at` None), or those of the readout. A unit is a row."""

    def __init__(self, prompt: DeviceCopies, at: DeviceCopies | None = None) -> None:
        self.prompt, self.at = prompt, at

    def units(self, rows: int) -> int:
        """The units of the first rows."""
        return rows

    def clean(self, recorded: Tensor, start: int, stop: int) -> Tensor:
        """The recorded values of the units from row `start` to before row `stop`."""
        return recorded[self.prompt.on(recorded.device)[start:stop]]

    def span(self, row: int) -> slice:
        """The units of a row."""
        return slice(row, row + 1)

    def units_of(self, rows: Int[Tensor, " some"]) -> Int[Tensor, " unit"]:
        """The units of some rows, in order."""
        return rows

    def spread(self, change: Tensor, row: int) -> Tensor:
        """A row's values at every position, as its units have them."""
        return (change if self.at is None else change[self.at.on(change.device)[row]])[None]


class Live:
    """Rows computed at spans of their own. A unit is one token, rows of a chunk one after the other."""

    at = None

    def __init__(self, prompt: DeviceCopies, spans: Spans, width: int) -> None:
        device, count = prompt.value.device, spans.count
        self.prompt, self.width = prompt, width
        self.bounds: list[int] = [0, *count.cumsum(0).tolist()]
        # How many units the largest of the first rows has: read off here, so that no layer waits for a device.
        self._most: list[int] = [1, *count.clamp(min=1).cummax(0).values.tolist()]
        row = torch.arange(len(count)).repeat_interleave(count)
        slot = torch.arange(len(row)) - torch.tensor(self.bounds[:-1])[row]
        position = spans.first[row] + slot
        self.row, self.slot, self.position = (DeviceCopies(x.to(device)) for x in (row, slot, position))
        self.count, self.start = DeviceCopies(count.to(device)), DeviceCopies(torch.tensor(self.bounds[:-1]).to(device))
        self.first, self.end = DeviceCopies(spans.first.to(device)), DeviceCopies(spans.end.to(device))

    def units(self, rows: int) -> int:
        """The units of the first rows."""
        return self.bounds[rows]

    def clean(self, recorded: Tensor, start: int, stop: int) -> Tensor:
        """The recorded values of the units from row `start` to before row `stop`."""
        units, device = slice(self.bounds[start], self.bounds[stop]), recorded.device
        prompt = self.prompt.on(device)[self.row.on(device)[units]]
        return recorded[prompt, self.position.on(device)[units]][:, None]

    def span(self, row: int) -> slice:
        """The units of a row."""
        return slice(self.bounds[row], self.bounds[row + 1])

    def units_of(self, rows: Int[Tensor, " some"]) -> Int[Tensor, " unit"]:
        """The units of some rows, in order."""
        return self.expand(rows)[1]

    def spread(self, change: Tensor, row: int) -> Tensor:
        """A row's values at every position, as its units have them."""
        return change[self.position.on(change.device)[self.span(row)]][:, None]

    def expand(self, row: Int[Tensor, " edit"]) -> tuple[Tensor, Tensor, Tensor]:
        """The units of edited rows: which edit each belongs to, the unit, and its position."""
        device = row.device
        count = self.count.on(device)[row]
        edit = torch.arange(len(row), device=device).repeat_interleave(count)
        before = count.cumsum(0) - count
        unit = torch.arange(len(edit), device=device) - before[edit] + self.start.on(device)[row][edit]
        return edit, unit, self.position.on(device)[unit]

    def queries(self, rows: int, device: torch.device) -> Int[Tensor, "row slot"]:
        """The positions of the first rows side by side; shorter rows repeat one."""
        slots = torch.arange(self._most[rows], device=device)
        return (self.first.on(device)[:rows, None] + slots).clamp(max=self.width - 1)

    def side_by_side(self, x: Tensor, rows: int) -> Tensor:
        """The units of the first rows as rows of positions, as `queries` numbers them; the rest is zero."""
        wide = x.new_zeros(rows, self._most[rows], *x.shape[2:])
        return self.put(wide, x, self.slot)

    def put(self, wide: Tensor, x: Tensor, places: DeviceCopies | None = None) -> Tensor:
        """Write units into rows at `places` (default: their positions), in place."""
        n, device = len(x), x.device
        wide[self.row.on(device)[:n], (places or self.position).on(device)[:n]] = x[:, 0]
        return wide

    def rotated(self, block: Block, k: Tensor, layout: Layout) -> Tensor:
        """The keys of the first units at their positions; `layout` is that of their rows."""
        units, device = slice(0, len(k)), k.device
        return block.attn.keys_at(k, layout, self.row.on(device)[units], self.position.on(device)[units])

    def read(self, x: Tensor, recorded: Tensor, at: Int[Tensor, "row query"]) -> Tensor:
        """The first rows at the positions `at`: from their units, or recorded where a row has none there."""
        rows, device = len(at), x.device
        first, start = self.first.on(device)[:rows, None], self.start.on(device)[:rows, None]
        computed = (at >= first) & (at < self.end.on(device)[:rows, None])
        values = recorded[self.prompt.on(device)[:rows, None], at]
        if not len(x):
            return values
        units = torch.where(computed, start + at - first, 0)
        return torch.where(computed.unsqueeze(-1), x[units, 0], values)


Places = TokenGrid | Live


# Rows that are alike for a while: a row with the replacements A, B and C equals the one with A and B alone until C.
#
# Sets of components that are tried one after another (a group with and without each member, pairs) begin alike. Each
# row then joins the walk where it first differs from another row of its prompt, in the state that the other has there.

CLEAN = -1


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
    inside = plan.edges or plan.units is not None or plan.patterns is not None
    if inside or config.parallel or config.d_head <= SMALL_HEAD or not several:
        return None
    rows, same = _as_table(plan, spans)
    # As bytes of unsigned numbers, most significant first, rows that begin alike come to lie next to each other.
    words = rows.numpy().astype(">u4")
    order = sorted(range(len(plan)), key=[word.tobytes() for word in words].__getitem__)
    differs = rows[order][1:] != rows[order][:-1]
    first = torch.where(differs.any(1), differs.int().argmax(1), differs.shape[1]) - same
    # Rows that are alike to the end branch off before the last MLP, where the same replacements follow.
    times = [*edit_times(config).tolist(), 3 * config.n_layers - 1]
    enters, parent = entry.tolist(), [CLEAN] * len(plan)
    for (before, row), difference in zip(pairwise(order), first.tolist(), strict=True):
        if difference < 0:
            continue
        leaves, other = times[difference], before
        while other != CLEAN and enters[other] >= leaves:
            other = parent[other]
        if other != CLEAN:
            enters[row], parent[row] = leaves, other
    return Branches(torch.tensor(enters), torch.tensor(parent))


def without_inherited(config: Config, plan: Plan, entry: Int[Tensor, " row"]) -> Int[Tensor, "row component"]:
    """The choices that rows still have to make: those before they enter were made by the row they branch off from."""
    return plan.choice.masked_fill(edit_times(config)[None] < entry[:, None], KEEP)


def _as_table(plan: Plan, spans: Spans | None) -> tuple[Int[Tensor, "row column"], int]:
    """What every row is, as numbers of at least 0: first the columns that rows which branch off from each other have in
    common, of which the number is given, then its replacements in the order in which they are made.
    """
    common = [plan.prompt[:, None]]
    if spans is not None:
        common += [spans.first[:, None], spans.end[:, None]]
    if plan.positions is not None:
        common.append(plan.positions.cpu().long())
    return torch.cat([*common, plan.choice - KEEP], 1), sum(part.shape[1] for part in common)
