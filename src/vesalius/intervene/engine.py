"""The scalpel: runs many interventions at once, each row as late as possible.

1. Run the prompts clean once and keep the residual stream, z and MLP outputs (`Recording`).
2. Sort the rows of the plan by the first place where they differ from the clean run.
3. Walk the layers once per chunk of rows. A row joins the walk where it first differs, starting from the recording;
   rows that have joined are computed together, each with its own replacements.
4. Read off only the logits the readout asks for; in the last layer compute only the positions it asks for.

Edges are exact: the receiver's input is the row's residual stream plus (replacement - what the sender wrote in this
row), computed per query head, so a shared key-value head can be cut over for one of its readers alone. Where
attention's output passes a norm, what a head wrote is its share at the scale of the run it wrote in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.intervene.plan import KEEP, EdgeEdit, Plan
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import Recording, Recordings, activation_memory
from vesalius.intervene.values import Batch, Values
from vesalius.model.attention import Heads, take_positions
from vesalius.model.config import Config
from vesalius.model.devices import Copies
from vesalius.model.hooks import Tap
from vesalius.model.transformer import Block, Transformer
from vesalius.progress import Progress

_CLEAN = Tap()


@dataclass
class Cost:
    """Work done, in full forward passes of one prompt; a row that joined half way counts half."""

    rows: float = 0.0


def run(
    recordings: Recordings,
    plan: Plan,
    values: Values,
    *,
    memory: int | None = None,
    progress: Progress | None = None,
    cost: Cost | None = None,
) -> Tensor:
    """Score every row of a plan: the readout of each row's logits, in the order of the plan.

    `memory` bounds the bytes of activations held at once (default: 512 MB, on a GPU a share of what is free);
    `progress("interventions", done, total)` is called as rows finish; `cost` is added to.
    """
    return run_with_outputs(recordings, plan, values, (), memory=memory, progress=progress, cost=cost)[0]


@torch.no_grad()
def run_with_outputs(
    recordings: Recordings,
    plan: Plan,
    values: Values,
    components: Sequence[Component],
    *,
    memory: int | None = None,
    progress: Progress | None = None,
    cost: Cost | None = None,
) -> tuple[Tensor, dict[Component, Float[Tensor, "row pos width"]]]:
    """Scores as `run` gives them, and what the named components write in every row, in the form of `Values` (in the
    last layer at the positions of the readout).
    """
    model = recordings.model
    _check(model, recordings.batch, plan, values)
    components = [component.within(model.config) for component in components]
    cost = cost if cost is not None else Cost()
    entry = _entries(plan, model.config)
    senders = len({edit.edge.sender for edit in plan.edges})
    per_row = row_bytes(model, recordings.batch.tokens.shape[1], senders=senders)
    rows_at_once = max(1, activation_memory(model, memory) // per_row)
    scores, outputs, order, done = [], [], [], 0
    n_run = recordings.n_run
    for start, n, readout, recording in recordings.chunks():
        rows = ((plan.prompt >= start) & (plan.prompt < start + n)).nonzero()[:, 0]
        rows = rows[entry[rows].argsort(stable=True)]
        for chunk in rows.split(rows_at_once) if len(rows) else ():
            walk = _Walk(model, recording, _select(plan, chunk, start), entry[chunk], values, components)
            scores.append(walk.scores(readout, cost))
            outputs.append(walk.outputs())
            order.append(chunk)
            done += len(chunk)
            if progress:
                progress("interventions", done, len(plan))
    cost.rows += recordings.n_run - n_run
    in_order = torch.cat(order).argsort()
    return _in_order(scores, in_order), {
        component: _in_order([part[component] for part in outputs], in_order) for component in components
    }


class _Walk:
    """One chunk of rows on its way through the layers. Rows are sorted by entry, so those under way are always a
    prefix.
    """

    def __init__(
        self,
        model: Transformer,
        recording: Recording,
        plan: Plan,
        entry: Tensor,
        values: Values,
        kept: Sequence[Component],
    ) -> None:
        device = model.device
        self.model, self.recording, self.values = model, recording, values
        self.prompt = Copies(plan.prompt.to(device))
        self.layout = recording.layout.take(self.prompt.value)
        self.at = None if recording.at is None else Copies(recording.at[self.prompt.on(recording.at.device)])
        self.positions = None if plan.positions is None else Copies(plan.positions.to(device))
        # Row counts by entry time: after `until[t]` rows, the next one enters later than t.
        times = torch.arange(3 * model.config.n_layers + 1)
        self.until: list[int] = torch.searchsorted(entry, times, right=True).tolist()
        self.edits = _Edits(plan.choice, model.config.n_heads, device)
        self.cuts = _Cuts(plan.edges, self) if plan.edges else None
        self.kept: dict[Component, Tensor | None] = dict.fromkeys(kept)

    def scores(self, readout: Readout, cost: Cost) -> Tensor:
        """Walk all layers and score every row."""
        last = self.model.config.n_layers - 1
        resid: Tensor | None = None
        for layer, block in enumerate(self.model.blocks):
            at = self.at.on(block.device) if self.at is not None and layer == last else None
            resid = self._join(resid, self.recording.pre[layer], self.until[3 * layer])
            mid = self._attention(block, layer, resid, at)
            inputs = block.mlp_input(_at(resid, None if at is None else at[: len(resid)]), mid)
            resid = self._feed_forward(block, layer, inputs, mid, at)
            cost.rows += self._work(layer)
        resid = self._join(resid, self.recording.final, len(self.prompt))
        if self.cuts:
            resid = self.cuts.into(resid, last, "logits", None, narrow=self.at is not None)
        choose = self.recording.choose
        choose = None if choose is None else choose[self.prompt.on(choose.device)]
        logits = self.model.unembed(resid, choose, _CLEAN)
        return readout.score(logits, self.prompt.on(logits.device))

    def outputs(self) -> dict[Component, Tensor]:
        """What the components to keep wrote in every row; rows that join after a component have its clean output."""
        return {
            component: self._join(active, self.recording.output(self.model, component), len(self.prompt))
            for component, active in self.kept.items()
        }

    def _join(self, active: Tensor | None, clean: Tensor, until: int) -> Tensor:
        """Append the rows that enter now, taken from the recording, on its device."""
        prompt = self.prompt.on(clean.device)
        if active is None:
            return clean[prompt[:until]]
        n, active = len(active), active.to(clean.device)
        return active if until == n else torch.cat([active, clean[prompt[n:until]]])

    def _attention(self, block: Block, layer: int, resid: Tensor, at: Tensor | None) -> Tensor:
        n, until = len(resid), self.until[3 * layer + 1]
        z = None
        if n:
            here, layout = None if at is None else at[:n], self.layout.on(block.device).take(slice(0, n))
            heads = block.attn.heads(block.ln1(resid, _CLEAN), here, _CLEAN)
            if self.cuts:
                heads = self.cuts.into_heads(block, layer, resid, heads, here)
            z = block.attn.mix(heads, layout, here, _CLEAN)
        if not until:
            return self.recording.mid[layer][:0]
        z = self._join(z, self.recording.z[layer], until)
        resid = self._join(resid, self.recording.pre[layer], until)
        where = self._where(until, at, z.device)
        z = self.edits.replace_heads(z, layer, self.values, where, None if at is None else at[:until])
        if self.cuts:
            self.cuts.note_heads(block, layer, z)
        self.kept |= {part: z[:, :, part.head] for part in self.kept if part.layer == layer and part.head is not None}
        return _at(resid, None if at is None else at[:until]) + block.write_heads(z, _CLEAN)

    def _feed_forward(self, block: Block, layer: int, inputs: Tensor, mid: Tensor, at: Tensor | None) -> Tensor:
        until, out = self.until[3 * layer + 2], None
        if len(inputs):
            if self.cuts:
                inputs = self.cuts.into(inputs, layer, "mlp", None, narrow=at is not None)
            out = block.write_mlp(inputs, _CLEAN)
        if not until:
            return mid
        out = self._join(out, self.recording.mlp[layer], until)
        mid = self._join(mid, self.recording.mid[layer], until)
        here = None if at is None else at[:until]
        out = self.edits.replace_mlp(out, layer, self.values, block.mlp_bias, self._where(until, at, out.device), here)
        if self.cuts:
            self.cuts.note_mlp(block, layer, out)
        if (part := Component(layer)) in self.kept:
            self.kept[part] = out - block.mlp_bias
        return mid + out

    def _work(self, layer: int) -> float:
        """Rows computed in a layer, as a share of a whole pass."""
        share = self.recording.attention_share
        through_mlp = self.until[3 * layer + (not self.model.config.parallel)]
        computed = share * self.until[3 * layer] + (1 - share) * through_mlp
        return computed / self.model.config.n_layers

    def _where(self, until: int, at: Tensor | None, device: torch.device) -> Bool[Tensor, "row pos"] | None:
        if self.positions is None:
            return None
        return _at(self.positions.on(device)[:until], None if at is None else at[:until])


class _Edits:
    """The node replacements of a chunk, sorted by component so that a layer finds its own at once."""

    def __init__(self, choice: Int[Tensor, "row component"], n_heads: int, device: torch.device) -> None:
        self.n_heads = n_heads
        component, row = (choice.T != KEEP).nonzero(as_tuple=True)
        self.choice = Copies(choice[row, component].to(device))
        self.bounds = [0, *torch.bincount(component, minlength=choice.shape[1]).cumsum(0).tolist()]
        self.row, self.head = Copies(row.to(device)), Copies((component % (n_heads + 1)).to(device))

    def replace_heads(
        self, z: Tensor, layer: int, values: Values, where: Tensor | None, at: Tensor | None
    ) -> Float[Tensor, "row pos head d_head"]:
        """Put the chosen replacements in the place of edited heads."""
        first = layer * (self.n_heads + 1)
        span = slice(self.bounds[first], self.bounds[first + self.n_heads])
        if span.start == span.stop:
            return z
        row, head, choice = (part.on(z.device)[span] for part in (self.row, self.head, self.choice))
        new = _at_rows(values.z[layer][choice, :, head], at, row).expand(-1, z.shape[1], -1)
        if where is not None:
            new = torch.where(where[row].unsqueeze(-1), new, z[row, :, head])
        z = z.clone(memory_format=torch.contiguous_format)
        z[row, :, head] = new
        return z

    def replace_mlp(
        self, out: Tensor, layer: int, values: Values, bias: Tensor, where: Tensor | None, at: Tensor | None
    ) -> Float[Tensor, "row pos d_model"]:
        """Put the chosen replacements, plus the output bias, in the place of edited MLPs."""
        place = layer * (self.n_heads + 1) + self.n_heads
        span = slice(self.bounds[place], self.bounds[place + 1])
        if span.start == span.stop:
            return out
        row, choice = (part.on(out.device)[span] for part in (self.row, self.choice))
        new = (_at_rows(values.mlp[layer][choice], at, row) + bias).expand(-1, out.shape[1], -1)
        if where is not None:
            new = torch.where(where[row].unsqueeze(-1), new, out[row])
        return out.index_copy(0, row, new)


class _Cuts:
    """The edges of a chunk: what each sender wrote in each row, and the change each receiver's input gets."""

    def __init__(self, edges: tuple[EdgeEdit, ...], walk: _Walk) -> None:
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
        self.contributions = {sender: self._clean_output(sender, rows) for sender, rows in self.rows.items()}

    def into(self, resid: Tensor, layer: int, port: str, head: int | None, *, narrow: bool) -> Tensor:
        """The residual stream as the receiver sees it."""
        edits = [edit for edit in self.into_receiver.get((layer, port, head), []) if edit.row < len(resid)]
        if not edits:
            return resid
        resid = resid.clone()
        for edit in edits:
            resid[edit.row] += self._change(edit, narrow=narrow).to(resid.device)
        return resid

    def into_heads(self, block: Block, layer: int, resid: Tensor, heads: Heads, at: Tensor | None) -> Heads:
        """Recompute q, k or v of the heads that receive an edge, each query head apart."""
        config, parts = self.walk.model.config, {"q": heads.q, "k": heads.k, "v": heads.v}
        keys = [key for key in self.into_receiver if key[0] == layer and key[1] in parts]
        if any(key[1] in ("k", "v") for key in keys):
            parts |= {port: parts[port].repeat_interleave(config.queries_per_kv, 2) for port in ("k", "v")}
        parts = {port: x.clone() if any(key[1] == port for key in keys) else x for port, x in parts.items()}
        for _, port, head in keys:
            rows = sorted({edit.row for edit in self.into_receiver[layer, port, head] if edit.row < len(resid)})
            if not rows:
                continue
            x = block.ln1(self.into(resid, layer, port, head, narrow=False)[rows], _CLEAN)
            if port == "q" and at is not None:
                x = take_positions(x, at[rows])
            parts[port][rows, :, head] = block.attn.own(port, x[:, None], [head])[:, 0]
        return Heads(parts["q"], parts["k"], parts["v"])

    def note_heads(self, block: Block, layer: int, z: Tensor) -> None:
        """Remember what the heads of this layer wrote in the rows under way."""
        for sender, rows in self.rows.items():
            if sender is not None and sender.layer == layer and sender.head is not None:
                active = [row for row in rows if row < len(z)]
                if active:
                    self.contributions[sender][: len(active)] = block.share(z[active], sender.head)

    def note_mlp(self, block: Block, layer: int, out: Tensor) -> None:
        """Remember what the MLP of this layer wrote in the rows under way."""
        for sender, rows in self.rows.items():
            if sender is not None and sender.layer == layer and sender.head is None:
                active = [row for row in rows if row < len(out)]
                if active:
                    self.contributions[sender][: len(active)] = out[active] - block.mlp_bias

    def _clean_output(self, sender: Component | None, rows: list[int]) -> Tensor:
        recording, model = self.walk.recording, self.walk.model
        device = model.device if sender is None else model.blocks[sender.layer].device
        prompts = self.walk.prompt.on(device)[rows]
        if sender is None:
            return recording.pre[0].to(device)[prompts]
        if sender.head is None:
            return recording.output(model, sender, prompts)
        return model.blocks[sender.layer].share(recording.z[sender.layer][prompts], sender.head)

    def _change(self, edit: EdgeEdit, *, narrow: bool) -> Float[Tensor, "pos d_model"]:
        """Replacement minus what the sender wrote in the row, at the receiver's positions (`narrow`: the readout's)."""
        sender, model = edit.edge.sender, self.walk.model
        current = self.contributions[sender][self.rows[sender].index(edit.row)]
        last = sender is not None and sender.layer == model.config.n_layers - 1
        at = None if self.walk.at is None else self.walk.at.on(current.device)[edit.row]
        if at is not None and narrow and not last:
            current = current[at]
        new = self._replacement(sender, edit.choice)
        if at is not None and narrow and len(new) > 1:
            new = new[at]
        change = new - current
        if self.walk.positions is not None:
            where = self.walk.positions.on(change.device)[edit.row]
            change = change * (where[at] if at is not None and narrow else where).unsqueeze(-1)
        return change

    def _replacement(self, sender: Component | None, choice: int) -> Float[Tensor, "pos d_model"]:
        values, model = self.walk.values, self.walk.model
        if sender is None:
            return values.embed[choice]
        if sender.head is None:
            return values.mlp[sender.layer][choice]
        return model.blocks[sender.layer].share(values.z[sender.layer][choice : choice + 1], sender.head)[0]


def _entries(plan: Plan, config: Config) -> Int[Tensor, " row"]:
    """When each row first differs: 3L before attention, 3L+1 after it, 3L+2 after the MLP, 3 * n_layers at the end.
    In a parallel block the MLP's input is there before attention.
    """
    n_layers, n_heads = config.n_layers, config.n_heads
    component = torch.arange(plan.choice.shape[1])
    times = 3 * (component // (n_heads + 1)) + 1 + (component % (n_heads + 1) == n_heads).long()
    entry = torch.where(plan.choice != KEEP, times, 3 * n_layers).min(1).values
    for edit in plan.edges:
        receiver = edit.edge.receiver
        when = 3 * n_layers if receiver is None else 3 * receiver.layer + (not receiver.is_head and not config.parallel)
        entry[edit.row] = min(int(entry[edit.row]), when)
    return entry


def _select(plan: Plan, rows: Int[Tensor, " n"], first_prompt: int) -> Plan:
    """The plan of a chunk, rows and prompts renumbered from 0."""
    edges: tuple[EdgeEdit, ...] = ()
    if plan.edges:
        place = {int(row): i for i, row in enumerate(rows)}
        edges = tuple(EdgeEdit(place[e.row], e.edge, e.choice) for e in plan.edges if e.row in place)
    positions = None if plan.positions is None else plan.positions[rows]
    return Plan(plan.prompt[rows] - first_prompt, plan.choice[rows], positions, edges)


def row_bytes(model: Transformer, width: int, *, senders: int = 0) -> int:
    """Bytes of one row under way, of which the outputs of `senders` are kept."""
    config = model.config
    wide = max(config.d_mlp, config.experts.d_expert * config.experts.n_active if config.experts else 0)
    inner = wide * (3 if config.gated else 2)
    return width * (config.d_model * (8 + senders) + inner + 3 * config.n_heads * width) * model.W_E.element_size()


def _check(model: Transformer, batch: Batch, plan: Plan, values: Values) -> None:
    if not len(plan):
        raise BadInput("the list of interventions is empty; give at least one row")
    if int(plan.prompt.min()) < 0 or int(plan.prompt.max()) >= len(batch):
        raise BadInput(f"prompt {int(plan.prompt.max())} is outside the batch of {len(batch)}")
    highest = max(int(plan.choice.max()), *(edit.choice for edit in plan.edges), KEEP)
    if highest >= len(values):
        raise BadInput(f"choice {highest} is outside the table of {len(values)} replacement values")
    width = values.embed.shape[1]
    if width not in (1, batch.tokens.shape[1]):
        raise BadInput(
            f"replacement values have {width} positions, the prompts {batch.tokens.shape[1]}; pad them alike"
        )
    if any(len(z) and z.shape[2:] != (model.config.n_heads, model.config.d_head) for z in values.z):
        raise BadInput("replacement values come from a model of another shape")


def _in_order(parts: list[Tensor], order: Int[Tensor, " row"]) -> Tensor:
    together = torch.cat(parts)
    return together[order.to(together.device)]


def _at(x: Tensor, at: Tensor | None) -> Tensor:
    return x if at is None else take_positions(x, at)


def _at_rows(new: Tensor, at: Tensor | None, row: Tensor) -> Tensor:
    """Values at the readout's positions, unless they serve every position."""
    return new if at is None or new.shape[1] == 1 else take_positions(new, at[row])
