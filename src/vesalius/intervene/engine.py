"""The scalpel: runs many interventions at once, each row as late as possible.

1. Run the prompts clean once and keep the residual stream, z and MLP outputs (`Recording`).
2. Sort the rows of the plan by the first place where they differ from the clean run.
3. Walk the layers once per chunk of rows. A row joins the walk where it first differs, starting from the recording, or
   from a row that had the same replacements so far (`tokens.branches`); rows that have joined are computed together.
4. Compute only the tokens that can differ from the clean run and reach the readout (`tokens`); keys and values of the
   others come from the recording.
5. Read off only the logits the readout asks for; in the last layer compute only the positions it asks for.
6. Heads whose pattern is set read by it instead of by their queries and keys (`patterns`).
7. Compute no MLP, and no attention, in rows that replace all that it puts out: a circuit of a few components costs a
   small part of a pass.

Edges are exact: the receiver's input is the row's residual stream plus (replacement - what the sender wrote in this
row), computed per query head, so a shared key-value head can be cut over for one of its readers alone (`cuts`). Where
attention's output passes a norm, what a head wrote is its share at the scale of the run it wrote in.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.intervene.patterns import SetPatterns
from vesalius.intervene.plan import KEEP, EdgeEdit, Plan, units_per_layer
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import Recording, Recordings, chunk_memory
from vesalius.intervene.row_edits import Cuts, Edits, ReplacedUnits
from vesalius.intervene.tokens import (
    CLEAN,
    Branches,
    Live,
    Places,
    Spans,
    TokenGrid,
    branches,
    edit_times,
    spans_to_compute,
    without_inherited,
)
from vesalius.intervene.values import Batch, Values
from vesalius.model.attention import Heads, take_positions
from vesalius.model.config import Config
from vesalius.model.devices import DeviceCopies
from vesalius.model.fused import may_fuse
from vesalius.model.hooks import Tap
from vesalius.model.positions import Layout
from vesalius.model.transformer import Block, Transformer
from vesalius.progress import Progress, checkpoint

#: Bytes of logits that a CPU computes together: memory of more than 32 MB is mapped anew whenever it is asked for.
LOGITS_MEMORY = 30 * 2**20
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

    `memory` bounds the bytes of activations held at once (default: 128 MB, on a GPU a share of what is free);
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
    spans = spans_to_compute(
        model.config, plan, values, recordings.batch, None if components else recordings.readout.at
    )
    if spans is not None:  # rows in which nothing changes that is read have the clean scores
        entry[spans.count == 0] = 3 * model.config.n_layers
        plan = replace(plan, choice=plan.choice.masked_fill((spans.count == 0)[:, None], KEEP))
    senders = len({edit.edge.sender for edit in plan.edges})
    live = None if spans is None else int(spans.count.max())
    units = plan.units is not None
    per_row = row_bytes(model, recordings.batch.tokens.shape[1], live=live, senders=senders, units=units)
    rows_at_once = max(1, chunk_memory(model, memory) // per_row)
    scores, outputs, order, done = [], [], [], 0
    n_run = recordings.n_run
    for start, n, readout, recording in recordings.chunks():
        rows = ((plan.prompt >= start) & (plan.prompt < start + n)).nonzero()[:, 0]
        rows = rows[plan.prompt[rows].argsort(stable=True)]  # rows that may share a run end up in one chunk
        rows = rows[entry[rows].argsort(stable=True)]
        for chunk in rows.split(rows_at_once) if len(rows) else ():
            chunk, begins = _branched(model.config, plan, chunk, entry, spans, alone=bool(components))
            of_chunk = None if spans is None else spans.take(chunk)
            walk = _Walk(model, recording, _select(plan, chunk, start), begins, of_chunk, values, components)
            scores.append(walk.scores(readout, cost))
            outputs.append(walk.outputs())
            order.append(chunk)
            done += len(chunk)
            checkpoint("interventions", done, len(plan))
            if progress:
                progress("interventions", done, len(plan))
    cost.rows += recordings.n_run - n_run
    in_order = torch.cat(order).argsort()
    return _in_order(scores, in_order), {
        component: _in_order([part[component] for part in outputs], in_order) for component in components
    }


class _Walk:
    """One chunk of rows on its way through the layers. Rows are sorted by entry, so those under way are always a
    prefix. Tensors hold units (`tokens`): rows with their positions, or single tokens.
    """

    def __init__(
        self,
        model: Transformer,
        recording: Recording,
        plan: Plan,
        begins: Branches,
        spans: Spans | None,
        values: Values,
        kept: Sequence[Component],
    ) -> None:
        device, entry = model.device, begins.entry
        self.model, self.recording, self.values = model, recording, values
        self.rows = _Rows(recording, plan.prompt.to(device), spans)
        self.prompt, self.everywhere, self.read = self.rows.prompt, self.rows.everywhere, self.rows.read
        self.positions = None if plan.positions is None else DeviceCopies(plan.positions.to(device))
        # Row counts by entry time: after `until[t]` rows, the next one enters later than t.
        times = torch.arange(3 * model.config.n_layers + 1)
        self.until: list[int] = torch.searchsorted(entry, times, right=True).tolist()
        self.parent = begins.parent.tolist()
        self.edits = Edits(without_inherited(model.config, plan, entry), model.config.n_heads, device)
        self.units = None if plan.units is None else ReplacedUnits(plan.units, self)
        self.cuts = Cuts(plan.edges, self) if plan.edges else None
        self.patterns = None if plan.patterns is None else SetPatterns(plan.patterns, model.config, device)
        self.kept: dict[Component, Tensor | None] = dict.fromkeys(kept)
        # Where a component is replaced at every position, and nothing inside it is, what it computes is not needed.
        self.may_skip = plan.positions is None and plan.units is None and not plan.edges
        self.attended = self.fed = 0

    def places(self, layer: int) -> Places:
        """Where a layer writes: in the last one, only at the positions of the readout."""
        return self.rows.places(last=layer == self.model.config.n_layers - 1)

    def scores(self, readout: Readout, cost: Cost) -> Tensor:
        """Walk all layers and score every row."""
        resid: Tensor | None = None
        for layer, block in enumerate(self.model.blocks):
            checkpoint()
            n, until = self.until[3 * layer - 1] if layer else 0, self.until[3 * layer]
            resid = self._join(resid, self.recording.pre[layer], n, until, self.everywhere)
            before, mid = self._attention(block, layer, resid)
            resid = self._feed_forward(block, layer, block.mlp_input(before, mid), mid)
            cost.rows += self._work(layer)
        assert resid is not None
        return self._read(self._final(resid), readout)

    def _read(self, final: Float[Tensor, "row query d_model"], readout: Readout) -> Tensor:
        """The score of every row. Where all logits are read, a CPU takes some rows at a time."""
        choose, config, at_once = self._choose(), self.model.config, len(final)
        if choose is None and final.is_cpu:
            at_once = max(1, LOGITS_MEMORY // (final.shape[1] * config.d_vocab_out * final.element_size()))
        parts = []
        for start in range(0, len(final), at_once):
            span = slice(start, start + at_once)
            chosen = None if choose is None else choose[span]
            logits = self.model.unembed(final[span], chosen, _CLEAN, mean=readout.mean)
            parts.append(readout.score(logits, self.prompt.on(logits.device)[span]))
        return torch.cat(parts)

    def outputs(self) -> dict[Component, Tensor]:
        """What the components to keep wrote in every row; rows that join after a component have its clean output."""
        return {component: self._whole(component, active) for component, active in self.kept.items()}

    def _whole(self, component: Component, active: Tensor | None) -> Tensor:
        clean = self.recording.output(self.model, component)
        places = self.places(component.layer)
        if isinstance(places, Live):
            every = clean[self.prompt.on(clean.device)]
            return every if active is None else places.put(every, active)
        return self._join(active, clean, 0 if active is None else len(active), len(self.prompt), places)

    def _final(self, resid: Tensor) -> Float[Tensor, "row query d_model"]:
        """The residual stream of every row where it is read, as the logits see it."""
        last, final = self.model.config.n_layers - 1, self.recording.final
        if self.places(last) is self.read or isinstance(self.everywhere, TokenGrid):
            resid = self._join(resid, final, self.until[-2], len(self.prompt), self.read)
        else:
            resid = self.everywhere.put(final[self.prompt.on(final.device)], resid.to(final.device))
        return resid if self.cuts is None else self.cuts.into(resid, last, "logits", None, self.read)

    def _choose(self) -> Tensor | None:
        choose = self.recording.choose
        return None if choose is None else choose[self.prompt.on(choose.device)]

    def _join(self, active: Tensor | None, clean: Tensor, n: int, until: int, places: Places) -> Tensor:
        """Append the rows from `n` on that enter now: from the row they branch off from, or from the recording, on its
        device.
        """
        if active is None:
            return places.clean(clean, 0, until)
        active = active.to(clean.device)
        if until == n:
            return active
        new = places.clean(clean, n, until)
        branched = [row for row in range(n, until) if self.parent[row] != CLEAN]
        if branched:
            origins = [self.parent[row] for row in branched]
            units, parents = (places.units_of(torch.tensor(rows)) for rows in (branched, origins))
            new[(units - places.units(n)).to(new.device)] = active[parents.to(active.device)]
        return torch.cat([active, new])

    def _attention(self, block: Block, layer: int, resid: Tensor) -> tuple[Tensor, Tensor]:
        """The residual stream before and after attention, where the layer writes."""
        n, until, places = self.until[3 * layer], self.until[3 * layer + 1], self.places(layer)
        z, nothing = self._z(block, layer, resid) if n else None, places.clean(self.recording.mid[layer], 0, 0)
        if not until:
            return nothing, nothing
        z = self._join(z, self.recording.z[layer], n, until, places)
        resid = self._join(resid, self.recording.pre[layer], n, until, self.everywhere)
        before = self._at_places(resid, layer, until)
        z = self.edits.replace_heads(z, layer, self.values, self.positions, places, until)
        if self.cuts:
            self.cuts.note_heads(block, layer, z, until)
        self.kept |= {part: z[:, :, part.head] for part in self.kept if part.layer == layer and part.head is not None}
        return before[: places.units(n)], before + block.write_heads(z, _CLEAN)

    def _z(self, block: Block, layer: int, resid: Tensor) -> Float[Tensor, "unit pos head d_head"]:
        """The z of the rows under way, where the layer writes; zeros in rows that replace that of every head."""
        n, places = self.until[3 * layer], self.places(layer)
        some = self._computed(self.edits.every_head, layer, n, self.until[3 * layer + 1])
        self.attended = self.everywhere.units(n)
        if some is None:
            return self._mixed(block, layer, resid, self.rows, n, None)
        units = self.everywhere.units_of(some).to(resid.device)
        self.attended = len(units)
        config, positions = block.attn.config, resid.shape[1] if places.at is None else places.at.value.shape[1]
        z = resid.new_zeros(places.units(n), positions, config.n_heads, config.d_value)
        if len(some):
            some_z = self._mixed(block, layer, resid[units], self.rows.take(some), len(some), some)
            z[places.units_of(some).to(z.device)] = some_z
        return z

    def _computed(
        self, replaced: Bool[Tensor, "row layer"], layer: int, n: int, until: int
    ) -> Int[Tensor, " some"] | None:
        """Which of the first `n` rows need what is replaced in others, themselves or for a row that branches off now
        (before row `until`); None: all of them.
        """
        if not self.may_skip or not bool(replaced[:n, layer].any()):
            return None
        needed = ~replaced[:, layer]
        joining = [self.parent[row] for row in needed[n:until].nonzero()[:, 0].add(n).tolist()]
        needed[[row for row in joining if row != CLEAN]] = True
        return None if bool(needed[:n].all()) else needed[:n].nonzero()[:, 0]

    def _mixed(
        self, block: Block, layer: int, resid: Tensor, rows: "_Rows", n: int, some: Int[Tensor, " some"] | None
    ) -> Float[Tensor, "unit pos head d_head"]:
        """The z of the first `n` of some rows, where the layer writes; `some` are their numbers in the chunk."""
        places = rows.places(last=layer == self.model.config.n_layers - 1)
        layout = rows.layout.on(block.device).take(slice(0, n))
        at = None if places.at is None else places.at.on(block.device)[:n]
        live = rows.everywhere if isinstance(rows.everywhere, Live) else None
        heads = block.attn.heads(block.ln1(resid, _CLEAN), at if live is None else None, _CLEAN)
        reading = resid if at is None else self._read_at(resid, layer, rows, at)
        if live is not None and at is not None:
            heads = heads._replace(q=block.attn.heads(block.ln1(reading, _CLEAN), None, _CLEAN).q)
        if self.cuts:
            heads = self.cuts.into_heads(block, layer, resid, reading, heads, n)
        if live is None:
            return self._attended(block, layer, heads, layout, at, some)
        k, v = (
            live.put(_per_query_head(clean[rows.prompt.on(clean.device)[:n]], own.shape[2]), own)
            for clean, own in zip(
                self.recording.keys_and_values(self.model, layer),
                (live.rotated(block, heads.k, layout), heads.v),
                strict=True,
            )
        )
        if at is not None:
            return self._attended(block, layer, Heads(heads.q, k, v), layout, at, some)
        queries = live.queries(n, block.device)
        z = self._attended(block, layer, Heads(live.side_by_side(heads.q, n), k, v), layout, queries, some)
        units = live.units(n)
        return z[live.row.on(z.device)[:units], live.slot.on(z.device)[:units]][:, None]

    def _attended(
        self,
        block: Block,
        layer: int,
        heads: Heads,
        layout: Layout,
        at: Int[Tensor, "row query"] | None,
        some: Int[Tensor, " some"] | None,
    ) -> Float[Tensor, "row query head d_head"]:
        """What heads read by their own patterns, or by those that are set."""
        z = block.attn.mix(heads, layout, at, _CLEAN, rotated=isinstance(self.everywhere, Live))
        if self.patterns is None:
            return z
        values = block.attn.values(heads.v, layout) if layer in self.patterns.layers else heads.v
        return self.patterns.put(z, values, layer, at, rows=some, where=self.positions)

    def _at_places(self, resid: Tensor, layer: int, n: int) -> Tensor:
        """The residual stream that enters a layer in the first `n` rows, where the layer writes."""
        at = self.places(layer).at
        return resid if at is None else self._read_at(resid, layer, self.rows, at.on(resid.device)[:n])

    def _read_at(self, resid: Tensor, layer: int, rows: "_Rows", at: Int[Tensor, "row query"]) -> Tensor:
        if isinstance(rows.everywhere, Live):
            return rows.everywhere.read(resid, self.recording.pre[layer], at)
        return take_positions(resid, at)

    def _feed_forward(self, block: Block, layer: int, inputs: Tensor, mid: Tensor) -> Tensor:
        places, until, out = self.places(layer), self.until[3 * layer + 2], None
        n = self.until[3 * layer + (not self.model.config.parallel)]
        if len(inputs):
            if self.cuts:
                inputs = self.cuts.into(inputs, layer, "mlp", None, places)
            out = self._mlp_output(block, layer, inputs, n)
        if not until:
            return mid
        out = self._join(out, self.recording.mlp[layer], n if out is not None else 0, until, places)
        mid = self._join(mid, self.recording.mid[layer], self.until[3 * layer + 1], until, places)
        out = self.edits.replace_mlp(out, layer, self.values, block.mlp_bias, self.positions, places, until)
        if self.cuts:
            self.cuts.note_mlp(block, layer, out, until)
        if (part := Component(layer)) in self.kept:
            self.kept[part] = out - block.mlp_bias
        return mid + out

    def _mlp_output(self, block: Block, layer: int, inputs: Tensor, n: int) -> Float[Tensor, "unit pos d_model"]:
        """What the MLP writes in the first `n` rows; zeros in those that replace it."""
        some = self._computed(self.edits.mlp, layer, n, self.until[3 * layer + 2])
        if some is None:
            self.fed = self.everywhere.units(n)
            return block.write_mlp(inputs, _CLEAN if self.units is None else self.units.tap(layer, n))
        self.fed, units = len(self.everywhere.units_of(some)), self.places(layer).units_of(some).to(inputs.device)
        out = torch.zeros_like(inputs)
        if len(some):
            out[units] = block.write_mlp(inputs[units], _CLEAN)
        return out

    def _work(self, layer: int) -> float:
        """Rows computed in a layer, as a share of a whole pass; of a row's tokens, those computed."""
        share, places = self.recording.attention_share, self.everywhere
        computed = share * self.attended + (1 - share) * self.fed
        self.attended = self.fed = 0
        return computed / self.model.config.n_layers / (places.width if isinstance(places, Live) else 1)


class _Rows:
    """Rows of a chunk: their prompts, what they may attend to, and where they are computed."""

    def __init__(self, recording: Recording, prompt: Int[Tensor, " row"], spans: Spans | None) -> None:
        self.recording, self.prompt, self.spans = recording, DeviceCopies(prompt), spans
        self.layout = recording.layout.take(prompt)
        at = None if recording.at is None else DeviceCopies(recording.at[self.prompt.on(recording.at.device)])
        width = recording.pre[0].shape[1]
        self.everywhere = TokenGrid(self.prompt) if spans is None else Live(self.prompt, spans, width)
        self.read = TokenGrid(self.prompt, at)

    def places(self, *, last: bool) -> Places:
        """Where a layer writes: in the last one, only at the positions of the readout."""
        return self.read if last and self.read.at is not None else self.everywhere

    def take(self, rows: Int[Tensor, " some"]) -> "_Rows":
        """Some of them."""
        spans = None if self.spans is None else self.spans.take(rows)
        return _Rows(self.recording, self.prompt.value[rows.to(self.prompt.value.device)], spans)


def _per_query_head(x: Float[Tensor, "row pos kv_head d_head"], heads: int) -> Float[Tensor, "row pos head d_head"]:
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], 2)


def _entries(plan: Plan, config: Config) -> Int[Tensor, " row"]:
    """When each row first differs: 3L before attention, 3L+1 after it, 3L+2 after the MLP, 3 * n_layers at the end.
    In a parallel block the MLP's input is there before attention.
    """
    n_layers = config.n_layers
    entry = torch.where(plan.choice != KEEP, edit_times(config), 3 * n_layers).min(1).values
    if (units := plan.units) is not None:  # before the MLP, as edges into it
        when = 3 * (units.place // units_per_layer(config)) + (not config.parallel)
        entry = entry.scatter_reduce(0, units.row, when, "amin")
    if (patterns := plan.patterns) is not None:
        entry = entry.scatter_reduce(0, patterns.row, 3 * (patterns.place // config.n_heads), "amin")
    for edit in plan.edges:
        receiver = edit.edge.receiver
        when = 3 * n_layers if receiver is None else 3 * receiver.layer + (not receiver.is_head and not config.parallel)
        entry[edit.row] = min(int(entry[edit.row]), when)
    return entry


def _branched(
    config: Config, plan: Plan, rows: Int[Tensor, " n"], entry: Tensor, spans: Spans | None, *, alone: bool
) -> tuple[Int[Tensor, " n"], Branches]:
    """The rows of a chunk in the order in which they enter the walk, each from the row that it branches off from, or
    all from the clean run (`alone`).
    """
    begins = None
    if not alone:
        begins = branches(config, _select(plan, rows, 0), entry[rows], None if spans is None else spans.take(rows))
    if begins is None:
        return rows, Branches(entry[rows], torch.full_like(rows, CLEAN))
    order = begins.entry.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    parent = begins.parent[order]
    return rows[order], Branches(begins.entry[order], torch.where(parent == CLEAN, CLEAN, place[parent]))


def _select(plan: Plan, rows: Int[Tensor, " n"], first_prompt: int) -> Plan:
    """The plan of a chunk, rows and prompts renumbered from 0."""
    edges: tuple[EdgeEdit, ...] = ()
    if plan.edges:
        place = {int(row): i for i, row in enumerate(rows)}
        edges = tuple(EdgeEdit(place[e.row], e.edge, e.choice) for e in plan.edges if e.row in place)
    positions = None if plan.positions is None else plan.positions[rows]
    units = None if plan.units is None else plan.units.of_rows(rows, len(plan))
    patterns = None if plan.patterns is None else plan.patterns.of_rows(rows, len(plan))
    return Plan(plan.prompt[rows] - first_prompt, plan.choice[rows], positions, edges, units, patterns)


def row_bytes(model: Transformer, width: int, *, live: int | None = None, senders: int = 0, units: bool = False) -> int:
    """Bytes of one row under way, of which the outputs of `senders` are kept; `live` of its tokens are computed (None:
    all), and then keys and values of the others are copied. With `units` the outputs of all experts are kept apart.
    """
    config, tokens = model.config, width if live is None else live
    wide = max(config.d_mlp, config.experts.d_active if config.experts else 0)
    inner = wide * (3 if config.gated else 2)
    if units and config.experts is not None:
        inner += 2 * config.experts.n_units * config.d_model
    # The scores of every head in three copies, or one mask, and keys and values once for every query head.
    attention = width + 4 * config.n_heads * config.d_head if may_fuse(config, width) else 3 * config.n_heads * width
    computed = tokens * (config.d_model * 8 + inner + attention)
    copied = 0 if live is None else 6 * width * config.n_kv_heads * config.d_head
    return (computed + copied + width * config.d_model * senders) * model.W_E.element_size()


def _check(model: Transformer, batch: Batch, plan: Plan, values: Values) -> None:
    if not len(plan):
        raise BadInput("the list of interventions is empty; give at least one row")
    if int(plan.prompt.min()) < 0 or int(plan.prompt.max()) >= len(batch):
        raise BadInput(f"prompt {int(plan.prompt.max())} is outside the batch of {len(batch)}")
    of_units = KEEP if plan.units is None else int(plan.units.choice.max())
    highest = max(int(plan.choice.max()), of_units, *(edit.choice for edit in plan.edges), KEEP)
    if highest >= len(values):
        raise BadInput(f"choice {highest} is outside the table of {len(values)} replacement values")
    if plan.units is not None and not values.units:
        raise BadInput("the table of replacement values has none of neurons and experts; make it with neurons=True")
    width = values.embed.shape[1]
    if width not in (1, batch.tokens.shape[1]):
        raise BadInput(
            f"replacement values have {width} positions, the prompts {batch.tokens.shape[1]}; pad them alike"
        )
    if plan.patterns is not None:
        plan.patterns.check(model.config, len(plan), batch)
    if any(len(z) and z.shape[2:] != (model.config.n_heads, model.config.d_value) for z in values.z):
        raise BadInput("replacement values come from a model of another shape")


def _in_order(parts: list[Tensor], order: Int[Tensor, " row"]) -> Tensor:
    together = torch.cat(parts)
    return together[order.to(together.device)]
