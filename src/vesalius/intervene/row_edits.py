"""What a chunk of rows replaces: whole components, edges and units of MLPs.

Edges: what each sender wrote in each row, and the change each receiver's input gets. Units of MLPs and whole components
come after them.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene.plan import KEEP, EdgeEdit, UnitEdits, units_per_layer
from vesalius.intervene.recordings import Recording
from vesalius.intervene.tokens import Live, Places, TokenGrid
from vesalius.intervene.values import Values, unit_hook
from vesalius.model.attention import Heads, take_positions
from vesalius.model.devices import DeviceCopies
from vesalius.model.hooks import HookPoint, Tap
from vesalius.model.transformer import Block, Transformer

_CLEAN = Tap()


class Walk(Protocol):
    """What edges need of the rows under way."""

    model: Transformer
    recording: Recording
    values: Values
    prompt: DeviceCopies
    positions: DeviceCopies | None
    everywhere: Places
    read: TokenGrid

    def places(self, layer: int) -> Places:
        """Where a layer writes."""
        ...


class Cuts:
    """The edges of a chunk. What senders wrote is kept at every position, in the last layer at the readout's."""

    def __init__(self, edges: tuple[EdgeEdit, ...], walk: Walk) -> None:
        self.walk = walk
        self.into_receiver: dict[tuple, list[EdgeEdit]] = {}
        senders: dict[Component | None, set[int]] = {}
        for edit in edges:
            receiver = edit.edge.receiver
            layer = walk.model.config.n_layers - 1 if receiver is None else receiver.layer
            head = None if receiver is None else receiver.head
            self.into_receiver.setdefault((layer, edit.edge.port, head), []).append(edit)
            senders.setdefault(edit.edge.sender, set()).add(edit.row)
        self.rows = {sender: sorted(rows) for sender, rows in senders.items()}
        self.place = {sender: {row: i for i, row in enumerate(rows)} for sender, rows in self.rows.items()}
        self.contributions = {sender: self._clean_output(sender, rows) for sender, rows in self.rows.items()}

    def into(self, resid: Tensor, layer: int, port: str, head: int | None, places: Places) -> Tensor:
        """The residual stream as the receiver sees it."""
        edits = [e for e in self.into_receiver.get((layer, port, head), []) if places.span(e.row).stop <= len(resid)]
        if not edits:
            return resid
        resid = resid.clone()
        for edit in edits:
            resid[places.span(edit.row)] += self._change(edit, places).to(resid.device)
        return resid

    def into_heads(self, block: Block, layer: int, resid: Tensor, reading: Tensor, heads: Heads, rows: int) -> Heads:
        """Recompute q, k or v of the heads that receive an edge, each query head apart; `reading` is the residual
        stream at the queries.
        """
        config, parts = self.walk.model.config, {"q": heads.q, "k": heads.k, "v": heads.v}
        keys = [key for key in self.into_receiver if key[0] == layer and key[1] in parts]
        if any(key[1] in ("k", "v") for key in keys):
            parts |= {port: parts[port].repeat_interleave(config.queries_per_kv, 2) for port in ("k", "v")}
        parts = {port: x.clone() if any(key[1] == port for key in keys) else x for port, x in parts.items()}
        for key in keys:
            _, port, head = key
            edits = [edit for edit in self.into_receiver[key] if edit.row < rows]
            if not edits:
                continue
            source, places = (reading, self.walk.places(layer)) if port == "q" else (resid, self.walk.everywhere)
            units, x = self._seen(source, edits, places)
            x = block.ln1(x, _CLEAN)
            parts[port][units, :, head] = block.attn.own(port, x[:, None], [head])[:, 0]
        return Heads(parts["q"], parts["k"], parts["v"])

    def _seen(self, resid: Tensor, edits: list[EdgeEdit], places: Places) -> tuple[Tensor, Tensor]:
        """The units of the edited rows, and what a receiver of these edges reads there."""
        parts: dict[int, Tensor] = {}
        for edit in edits:
            current = parts.get(edit.row)
            current = resid[places.span(edit.row)] if current is None else current
            parts[edit.row] = current + self._change(edit, places).to(resid.device)
        spans = [places.span(row) for row in parts]
        units = torch.cat([torch.arange(span.start, span.stop) for span in spans]).to(resid.device)
        return units, torch.cat(list(parts.values()))

    def note_heads(self, block: Block, layer: int, z: Tensor, rows: int) -> None:
        """Remember what the heads of this layer wrote in the rows under way."""
        for sender in self.rows:
            if sender is not None and sender.layer == layer and sender.head is not None:
                head = sender.head
                self._note(sender, rows, lambda units, head=head: block.share(z[units], head))

    def note_mlp(self, block: Block, layer: int, out: Tensor, rows: int) -> None:
        """Remember what the MLP of this layer wrote in the rows under way."""
        if (sender := Component(layer)) in self.rows:
            self._note(sender, rows, lambda units: out[units] - block.mlp_bias)

    def _note(self, sender: Component, rows: int, written: Callable[[Tensor], Tensor]) -> None:
        places, kept = self.walk.places(sender.layer), self.contributions[sender]
        active = torch.tensor([row for row in self.rows[sender] if row < rows], dtype=torch.long, device=kept.device)
        if not len(active):
            return
        if isinstance(places, Live):
            row, units, position = places.expand(active)
            kept[row, position] = written(units)[:, 0]
        else:
            kept[: len(active)] = written(active)

    def _clean_output(self, sender: Component | None, rows: list[int]) -> Tensor:
        recording, model = self.walk.recording, self.walk.model
        device = model.device if sender is None else model.blocks[sender.layer].device
        prompts = self.walk.prompt.on(device)[rows]
        if sender is None:
            return recording.pre[0].to(device)[prompts]
        if sender.head is None:
            return recording.output(model, sender, prompts)
        return model.blocks[sender.layer].share(recording.z[sender.layer][prompts], sender.head)

    def _change(self, edit: EdgeEdit, places: Places) -> Float[Tensor, "unit pos d_model"]:
        """Replacement minus what the sender wrote in the row, where the receiver reads."""
        sender, read = edit.edge.sender, self.walk.read.at
        current, new = self.contributions[sender][self.place[sender][edit.row]], self._replacement(sender, edit.choice)
        where = None if self.walk.positions is None else self.walk.positions.on(current.device)[edit.row]
        narrow = sender is not None and sender.layer == self.walk.model.config.n_layers - 1 and read is not None
        if narrow and read is not None:
            at = read.on(current.device)[edit.row]
            new, where = new if len(new) == 1 else new[at], None if where is None else where[at]
        change = new - current
        if where is not None:
            change = change * where.unsqueeze(-1)
        return change[None] if narrow else places.spread(change, edit.row)

    def _replacement(self, sender: Component | None, choice: int) -> Float[Tensor, "pos d_model"]:
        values, model = self.walk.values, self.walk.model
        if sender is None:
            return values.embed[choice]
        if sender.head is None:
            return values.mlp[sender.layer][choice]
        return model.blocks[sender.layer].share(values.z[sender.layer][choice : choice + 1], sender.head)[0]


# The units of MLPs that a chunk of rows replaces while the MLP runs: neurons at what they put out (`hook_post`),
# experts at what they add (`hook_expert_out`).


class ReplacedUnits:
    """Edits in order of layer, so that a layer finds its own at once."""

    def __init__(self, edits: UnitEdits, walk: Walk) -> None:
        config, device = walk.model.config, walk.model.device
        self.walk = walk
        width = units_per_layer(config)
        layers = torch.arange(config.n_layers + 1) * width
        self.bounds: list[int] = torch.searchsorted(edits.place, layers).tolist()
        self.row, self.choice = DeviceCopies(edits.row.to(device)), DeviceCopies(edits.choice.to(device))
        self.number = DeviceCopies((edits.place % width).to(device))

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


# Whole components.


class Edits:
    """The node replacements of a chunk, sorted by component so that a layer finds its own at once. `every_head` and
    `mlp` say which rows replace all heads, and the MLP, of a layer.
    """

    def __init__(self, choice: Int[Tensor, "row component"], n_heads: int, device: torch.device) -> None:
        self.n_heads = n_heads
        replaced = (choice != KEEP).unflatten(1, (-1, n_heads + 1))
        self.every_head: Bool[Tensor, "row layer"] = replaced[..., :n_heads].all(2)
        self.mlp: Bool[Tensor, "row layer"] = replaced[..., n_heads]
        component, row = (choice.T != KEEP).nonzero(as_tuple=True)
        self.choice = DeviceCopies(choice[row, component].to(device))
        self.bounds = [0, *torch.bincount(component, minlength=choice.shape[1]).cumsum(0).tolist()]
        self.row, self.head = DeviceCopies(row.to(device)), DeviceCopies((component % (n_heads + 1)).to(device))

    def replace_heads(
        self, z: Tensor, layer: int, values: Values, where: DeviceCopies | None, places: Places, rows: int
    ) -> Float[Tensor, "unit pos head d_head"]:
        """Put the chosen replacements in the place of edited heads."""
        first = layer * (self.n_heads + 1)
        span = slice(self.bounds[first], self.bounds[first + self.n_heads])
        if span.start == span.stop:
            return z
        row, head, choice = (part.on(z.device)[span] for part in (self.row, self.head, self.choice))
        table = values.z[layer]
        if isinstance(places, Live):
            edit, unit, position = _edited_units(places, row, where)
            new = table[choice[edit], position if table.shape[1] > 1 else 0, head[edit]]
            z = z.clone(memory_format=torch.contiguous_format)
            z[unit, 0, head[edit]] = new
            return z
        at = _positions_read(places, rows, z.device)
        new = _at_rows(table[choice, :, head], at, row).expand(-1, z.shape[1], -1)
        if where is not None:
            new = torch.where(_at(where.on(z.device)[:rows], at)[row].unsqueeze(-1), new, z[row, :, head])
        z = z.clone(memory_format=torch.contiguous_format)
        z[row, :, head] = new
        return z

    def replace_mlp(
        self,
        out: Tensor,
        layer: int,
        values: Values,
        bias: Tensor,
        where: DeviceCopies | None,
        places: Places,
        rows: int,
    ) -> Float[Tensor, "unit pos d_model"]:
        """Put the chosen replacements, plus the output bias, in the place of edited MLPs."""
        place = layer * (self.n_heads + 1) + self.n_heads
        span = slice(self.bounds[place], self.bounds[place + 1])
        if span.start == span.stop:
            return out
        row, choice = (part.on(out.device)[span] for part in (self.row, self.choice))
        table = values.mlp[layer]
        if isinstance(places, Live):
            edit, unit, position = _edited_units(places, row, where)
            new = table[choice[edit], position if table.shape[1] > 1 else 0] + bias
            return out.index_copy(0, unit, new[:, None])
        at = _positions_read(places, rows, out.device)
        new = (_at_rows(table[choice], at, row) + bias).expand(-1, out.shape[1], -1)
        if where is not None:
            new = torch.where(_at(where.on(out.device)[:rows], at)[row].unsqueeze(-1), new, out[row])
        return out.index_copy(0, row, new)


def _edited_units(places: Live, row: Tensor, where: DeviceCopies | None) -> tuple[Tensor, Tensor, Tensor]:
    """Which edit, unit and position each changed token of the edited rows has."""
    edit, unit, position = places.expand(row)
    if where is None:
        return edit, unit, position
    changed = where.on(row.device)[row[edit], position]
    return edit[changed], unit[changed], position[changed]


def _positions_read(places: TokenGrid, rows: int, device: torch.device) -> Int[Tensor, "row query"] | None:
    return None if places.at is None else places.at.on(device)[:rows]


def _at(x: Tensor, at: Tensor | None) -> Tensor:
    return x if at is None else take_positions(x, at)


def _at_rows(new: Tensor, at: Tensor | None, row: Tensor) -> Tensor:
    """Values at the readout's positions, unless they serve every position."""
    return new if at is None or new.shape[1] == 1 else take_positions(new, at[row])
