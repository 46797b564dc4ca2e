"""Attention patterns that are set: head by head and row by row, and what such a head then reads.

A head whose pattern is set in a row writes `pattern @ values`: the values are those of the row's own run, whatever was
replaced before, or given ones (`read`). What queries and keys say there has no effect. A head that the same row
replaces as a whole writes its replacement all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.intervene.recordings import Recordings, attention_share
from vesalius.intervene.values import Batch
from vesalius.model.attention import take_positions
from vesalius.model.config import Config
from vesalius.model.devices import DeviceCopies
from vesalius.model.transformer import Transformer

#: The choice of a head that reads the values of its own run.
OWN = -1
#: How far the weights of a query may be from 1 in sum.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class PatternEdits:
    """Edit i gives the head at `place[i]` (layer x heads + head) the pattern `table[choice[i]]` in row `row[i]`, and
    has it read the values `read[values[i]]` (`OWN`: those of the run).
    """

    row: Int[Tensor, " edit"]
    place: Int[Tensor, " edit"]
    choice: Int[Tensor, " edit"]
    table: Float[Tensor, "pattern query key"]
    values: Int[Tensor, " edit"]
    read: Float[Tensor, "vectors pos d_head"] | None = None

    @classmethod
    def of(
        cls,
        config: Config,
        rows: Sequence[Mapping[Component, int]],
        table: Float[Tensor, "pattern query key"],
        *,
        read: Float[Tensor, "vectors pos d_head"] | None = None,
        values: Sequence[Mapping[Component, int]] | None = None,
    ) -> "PatternEdits":
        """The edits of rows: each maps heads to patterns of the table, and in `values` to vectors of `read`."""
        edits = []
        for row, heads in enumerate(rows):
            for name, choice in heads.items():
                head = Component.parse(name).within(config)
                if head.head is None:
                    raise BadInput(f"{head} is an MLP and has no attention pattern; name a head")
                vectors = OWN if values is None else values[row].get(head, OWN)
                edits.append((row, head.layer * config.n_heads + head.head, choice, vectors))
        row, place, choice, vectors = torch.tensor(edits, dtype=torch.long).view(-1, 4).T
        return cls(row, place, choice, table, vectors, read)

    def of_rows(self, rows: Int[Tensor, " n"], total: int) -> "PatternEdits":
        """The edits of some of `total` rows, rows renumbered from 0."""
        renumbered = torch.full((total,), -1)
        renumbered[rows] = torch.arange(len(rows))
        row = renumbered[self.row]
        kept = row >= 0
        return PatternEdits(row[kept], self.place[kept], self.choice[kept], self.table, self.values[kept], self.read)

    def check(self, config: Config, rows: int, batch: Batch) -> None:
        """Refuse rows, heads and choices that do not exist, and patterns that are no distributions over what a query
        can see.
        """
        width = batch.tokens.shape[1]
        if tuple(self.table.shape[1:]) != (width, width):
            shape = "x".join(map(str, self.table.shape[1:]))
            raise BadInput(f"attention patterns are {shape}, the prompts have {width} tokens; give {width}x{width}")
        for what, index, limit in (
            ("row", self.row, rows),
            ("head", self.place, config.n_layers * config.n_heads),
            ("pattern", self.choice, len(self.table)),
            ("table of values", self.values, 0 if self.read is None else len(self.read)),
        ):
            if len(index) and int(index.max()) >= limit:
                raise BadInput(f"{what} {int(index.max())} of the attention patterns is outside of {limit}")
        table = self.table.float()
        beyond = table.sum(-1) - 1  # a sink takes what the keys do not get
        off = beyond > _ROUNDING if config.sinks else beyond.abs() > _ROUNDING
        if not bool(table.isfinite().all()) or bool((table < 0).any()) or bool(off.any()):
            total = "sum to more than 1" if config.sinks else "do not sum to 1"
            raise BadInput(f"an attention pattern has weights that are negative or {total}; normalise queries")
        padded_left = batch.mask is not None and not bool(batch.mask[:, 0].all())  # queries there see nothing
        if config.causal and not padded_left and bool((table.triu(1) > _ROUNDING).any()):
            raise BadInput("an attention pattern looks ahead, which this model cannot; give weights to earlier tokens")


def without_keys(
    pattern: Float[Tensor, "prompt query key"], keys: Bool[Tensor, "prompt query key"], *, sinks: bool
) -> Float[Tensor, "prompt query key"]:
    """A pattern whose head cannot see some keys: the others, and the sink of a head with `sinks`, take their share."""
    remaining = pattern.masked_fill(keys.to(pattern.device), 0.0)
    left = remaining.sum(-1, keepdim=True)
    if sinks:
        left = left + (1 - pattern.sum(-1, keepdim=True))
    return remaining / left.clamp(min=1e-9)


class SetPatterns:
    """The pattern edits of a chunk of rows, by layer."""

    def __init__(self, edits: PatternEdits, config: Config, device: torch.device) -> None:
        self.n_heads, self.table = config.n_heads, DeviceCopies(edits.table.to(device))
        self.read = None if edits.read is None else DeviceCopies(edits.read.to(device))
        layer = edits.place // config.n_heads
        self.layers = {int(one): (layer == one).nonzero()[:, 0] for one in layer.unique()}
        self.edits = edits

    def put(
        self,
        z: Float[Tensor, "row query head d_head"],
        v: Float[Tensor, "row key kv_head d_head"],
        layer: int,
        at: Int[Tensor, "row query"] | None,
        *,
        rows: Int[Tensor, " row"] | None = None,
        where: DeviceCopies | None = None,
    ) -> Float[Tensor, "row query head d_head"]:
        """Let the edited heads of a layer write what their patterns select. The tensors hold the first rows of the
        chunk, or these `rows`; `at` are the queries of each row (None: all), `where` marks those that are edited.
        """
        mine = self.layers.get(layer)
        if mine is None:
            return z
        row = self.edits.row[mine]
        slot = row
        if rows is not None:
            slot = torch.full((int(max(rows.max(), row.max())) + 1,), -1)
            slot[rows.cpu()] = torch.arange(len(rows))
            slot = slot[row]
        under_way = (slot >= 0) & (slot < len(z))
        mine, row, slot = mine[under_way], row[under_way].to(z.device), slot[under_way].to(z.device)
        if not len(mine):
            return z
        head, choice, vectors = (
            part[mine].to(z.device) for part in (self.edits.place % self.n_heads, self.edits.choice, self.edits.values)
        )
        pattern, queries = self.table.on(z.device)[choice], None if at is None else at[slot]
        if queries is not None:
            pattern = take_positions(pattern, queries)
        values = v[slot, :, head // (self.n_heads // v.shape[2])]
        if self.read is not None:
            given = self.read.on(z.device)[vectors.clamp(min=0)].to(values.dtype)
            values = torch.where((vectors == OWN)[:, None, None], values, given)
        new = (pattern.to(values.dtype) @ values).to(z.dtype)
        if where is not None:
            edited = where.on(z.device)[row]
            edited = edited if queries is None else take_positions(edited, queries)
            new = torch.where(edited[..., None], new, z[slot, :, head])
        z = z.clone(memory_format=torch.contiguous_format)
        z[slot, :, head] = new
        return z


def patterns_of_runs(
    runs: Recordings, heads: Sequence[Component]
) -> tuple[dict[Component, Float[Tensor, "prompt query key"]], float]:
    """The attention patterns of heads in clean runs that were made, and the passes of one prompt that this takes."""
    model, n = runs.model, len(runs.batch)
    if model.config.wrapped:
        return own_patterns(model, runs.batch, heads), n
    before, found = runs.n_run, runs.patterns(heads)
    layers = len({head.layer for head in heads}) / model.config.n_layers
    return found, runs.n_run - before + attention_share(model.blocks[0]) * layers * n


@torch.no_grad()
def own_patterns(
    model: Transformer, batch: Batch, heads: Sequence[Component]
) -> dict[Component, Float[Tensor, "prompt query key"]]:
    """The attention patterns of heads in the clean run of prompts."""
    layers = sorted({head.layer for head in heads})
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in layers]
    _, cache = model.run_with_cache(
        batch.tokens.to(model.device),
        mask=None if batch.mask is None else batch.mask.to(model.device),
        names=names,
        choose=torch.zeros(len(batch), 1, dtype=torch.long, device=model.device),
    )
    return {head: cache[f"blocks.{head.layer}.attn.hook_pattern"][:, head.head].cpu() for head in heads}
