"""Replace any site: residual streams, queries, keys, values, patterns, inner activations, components and edges.

The engine (`engine.py`) replaces what components write, and edges, at the least cost. Here a row of a batch is one
prompt under one set of sites, run with hooks from the first layer that the set changes, on top of the clean run that
is kept: for a place that the engine knows the values are the same, and so is the score.

What takes the place of an activation is zero, its mean over the real tokens of the prompts, or its value on the
counterfactual prompt, position by position. Components and edges take the values of the ablation's own table. An edge
is replaced in its receiver's input alone: replacement minus what the sender wrote in that row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.components import Component, Edge, Shape
from vesalius.errors import BadInput
from vesalius.intervene.ablations import Ablation, Mean, Replacement, Zero
from vesalius.intervene.engine import Cost
from vesalius.intervene.features import Latents, dictionary_of, latents_at
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import Recording, Recordings, chunk_memory
from vesalius.intervene.tokens import real_tokens
from vesalius.intervene.values import Batch, contribution, unit_hook
from vesalius.model.attention import take_positions
from vesalius.model.hooks import Hook, HookPoint, Tap
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, checkpoint
from vesalius.sites import Activation, Feature, Site

#: Prompts whose activations are taken in one run.
AT_ONCE = 32
Where = Bool[Tensor, "prompt pos"]
#: Clean activations that a row of hooks keeps beside the residual stream, in widths of it.
HELD = 12


@dataclass(frozen=True)
class PlacedSite:
    """A site with the positions of each prompt that it stands for (None: all of them). With `added` the value stays,
    and this vector is added to it.
    """

    site: Site
    where: Where | None = None
    added: Tensor | None = None

    def __str__(self) -> str:
        return str(self.site)


PlacedSet = tuple[PlacedSite, ...]


@dataclass
class SiteValues:
    """What takes the place of sites on some prompts: the ablation's table for components and edges, and of each hook
    what it holds on the source (None: zeros).
    """

    table: Replacement
    activations: dict[str, Float[Tensor, "source pos *rest"] | None] = field(default_factory=dict)
    latents: dict[Feature, Float[Tensor, "source pos *d_model"]] = field(default_factory=dict)

    @classmethod
    @torch.no_grad()
    def make(
        cls,
        model: Transformer,
        ablation: Ablation,
        batch: Batch,
        sets: Sequence[PlacedSet],
        *,
        counterfactual: Batch | None = None,
        reference: Batch | None = None,
    ) -> "SiteValues":
        """The values for sets of sites; `reference` are the prompts that means are taken over (None: the prompts)."""
        sites = [one.site for members in sets for one in members if one.added is None]
        for site in sites:
            require_kind(site, ablation)
        table = ablation.table(
            model,
            batch,
            counterfactual=counterfactual,
            reference=reference,
            neurons=any(site.is_unit for site in sites),
        )
        hooks = sorted({site.place.hook for site in sites if isinstance(site.place, Activation)})
        latents = list(dict.fromkeys(site.place for site in sites if isinstance(site.place, Feature)))
        dictionaries = [dictionary_of(latent) for latent in latents]
        reads = sorted({hook for one in dictionaries for hook in (one.read_hook, one.write_hook)})
        if isinstance(ablation, Zero):
            return cls(table, dict.fromkeys(hooks))
        source = counterfactual if ablation.from_counterfactual else reference or batch
        assert source is not None
        source, mean = source.to(model.device), isinstance(ablation, Mean)
        read = {name: x for name, x in _kept(model, source, reads, mean=False).items() if x is not None}
        values = latents_at(latents, read, real_tokens(model.config, source), mean=mean)
        return cls(table, _kept(model, source, hooks, mean=mean), values)


def require_kind(site: Site, ablation: Ablation) -> None:
    """Refuse an ablation that means nothing at a site."""
    if not isinstance(site.place, Activation | Feature):
        return
    if not (isinstance(ablation, Zero | Mean) or ablation.from_counterfactual):
        raise BadInput(f"kind {ablation.name!r} has no value for {site}; take zero, mean or resample")
    if isinstance(ablation, Mean) and isinstance(site.place, Activation) and site.place.kind == "pattern":
        raise BadInput(
            f"kind 'mean' has no value for {site}: a pattern's columns are other tokens in every prompt; take resample "
            "or zero"
        )


def _kept(model: Transformer, source: Batch, hooks: Sequence[str], *, mean: bool) -> dict[str, Tensor | None]:
    """What the source prompts hold at hooks, of every prompt or as one mean over their real tokens."""
    parts: dict[str, list[Tensor]] = {hook: [] for hook in hooks}
    for start in range(0, len(source) if hooks else 0, AT_ONCE):
        some = source.take(slice(start, start + AT_ONCE))
        first = torch.zeros(len(some), 1, dtype=torch.long, device=model.device)
        _, cache = model.run_with_cache(some.tokens, mask=some.mask, names=hooks, choose=first)
        for hook in hooks:
            parts[hook].append(cache[hook])
    whole: dict[str, Tensor | None] = {hook: torch.cat(part) for hook, part in parts.items()}
    if not mean:
        return whole
    real = model.config.not_padding(source.tokens) if source.mask is None else source.mask
    return {
        hook: value[real.to(value.device)].mean(0)[None, None] for hook, value in whole.items() if value is not None
    }


@torch.no_grad()
def site_columns(
    recordings: Recordings,
    values: SiteValues,
    sets: Sequence[PlacedSet],
    *,
    memory: int | None = None,
    cost: Cost | None = None,
    progress: Progress | None = None,
    block: int = 512,
) -> Iterator[tuple[list[int], Float[Tensor, "prompt set *signed"]]]:
    """Edited scores of every prompt under each set, some sets at a time as they are ready: those that begin in the same
    layer are run together.
    """
    model, n = recordings.model, len(recordings.batch)
    cost = Cost() if cost is None else cost
    per_row = HELD * model.config.d_model * recordings.batch.tokens.shape[1] * model.W_E.element_size()
    rows = min(block, max(1, chunk_memory(model, memory) // per_row))
    at_once, begins = max(1, rows // n), [min(one.site.layer for one in members) for members in sets]
    done = 0
    for layer in sorted(set(begins)):
        of_layer = [i for i, begin in enumerate(begins) if begin == layer]
        for start in range(0, len(of_layer), at_once):
            part = of_layer[start : start + at_once]
            yield part, _scores(recordings, values, [sets[i] for i in part], layer, cost)
            done += len(part)
            checkpoint("interventions", done, len(sets))
            if progress:
                progress("ablation", done, len(sets))


def site_scores(recordings: Recordings, values: SiteValues, sites: PlacedSet, *, cost: Cost | None = None) -> Tensor:
    """What the readout gives for every prompt with these sites replaced together."""
    ((_, scores),) = site_columns(recordings, values, [sites], cost=cost, block=len(recordings.batch))
    return scores[:, 0]


def _scores(
    recordings: Recordings, values: SiteValues, sets: Sequence[PlacedSet], layer: int, cost: Cost
) -> Float[Tensor, "prompt set *read"]:
    """The readings of all prompts under sets that begin in the same layer."""
    parts, n_run = [], recordings.n_run
    for start, n, readout, recording in recordings.chunks():
        run = _SiteRun(recordings.model, recording, values, range(start, start + n), layer)
        parts.append(run.scores(sets, readout))
        cost.rows += len(sets) * n * (1 - layer / recordings.model.config.n_layers)
    cost.rows += recordings.n_run - n_run
    return torch.cat(parts).cpu()


class _SiteRun:
    """Some prompts under sets of sites, row by row: all prompts of the first set, then of the second."""

    def __init__(
        self, model: Transformer, recording: Recording, values: SiteValues, prompts: range, layer: int
    ) -> None:
        self.model, self.recording, self.values = model, recording, values
        self.prompts, self.layer = prompts, layer
        self.choices = values.table.choices[prompts.start : prompts.stop]
        self.hooks: list[Hook] = []
        #: What the senders of edges wrote in the rows of each edge.
        self.written: dict[tuple[int, Component | None], Tensor] = {}
        self.into_logits: list[tuple[slice, int, PlacedSite]] = []

    def scores(self, sets: Sequence[PlacedSet], readout: Readout) -> Float[Tensor, "prompt set *read"]:
        """Run the rows from the first layer, and read them off."""
        n, model = len(self.prompts), self.model
        rows = torch.arange(n).repeat(len(sets))
        edges = [(i, one) for i, members in enumerate(sets) for one in _cut_once(members)]
        for i, members in enumerate(sets):
            for one in members:
                if not isinstance(one.site.place, Edge | Feature):
                    self._replace(slice(i * n, (i + 1) * n), one)
            self._replace_latents(slice(i * n, (i + 1) * n), members)
        for i, one in edges:  # after what replaces components, so that senders are seen as they are in the row
            self._cut(slice(i * n, (i + 1) * n), i, one)
        seen: set[str] = set()
        tap, layout = Tap([_noticed(hook, seen) for hook in self.hooks]), self.recording.layout
        stream = self.recording.pre[self.layer]
        stream = stream[rows.to(stream.device)]
        for block in model.blocks[self.layer :]:
            checkpoint()
            stream = block(stream, layout.take(rows.to(stream.device)).on(block.device), tap)
        if missed := next((name for name, _ in self.hooks if name not in seen), None):
            raise BadInput(
                f"hook point {missed} is not seen in this model, so nothing is replaced there; name the layer's "
                "stream, a head or its MLP instead"
            )
        for where, i, one in self.into_logits:
            stream = stream.clone()
            stream[where] += self._change(i, one, stream[where])
        at, choose = self.recording.at, self.recording.choose
        if at is not None:
            stream = take_positions(stream, at.to(stream.device)[rows.to(stream.device)])
        chosen = None if choose is None else choose[rows.to(choose.device)]
        logits = model.unembed(stream, chosen, Tap(), mean=readout.mean)
        return readout.score(logits, rows.to(logits.device)).unflatten(0, (len(sets), n)).transpose(0, 1)

    def _replace(self, rows: slice, one: PlacedSite) -> None:
        """Hook up the replacement of an activation or a component in some rows."""
        place, config = one.site.place, self.model.config
        assert not isinstance(place, Edge | Feature)
        if isinstance(place, Activation):
            hook, source = place.hook, self.values.activations.get(place.hook)
            source = source if source is None or len(source) == 1 else source[self.prompts.start : self.prompts.stop]
            axis, index = (1, place.head) if place.kind == "pattern" else (2, place.head)
        elif place.is_unit:
            hook, axis = unit_hook(config, place.layer), 2
            index = place.expert if place.neuron is None else place.neuron
            source = self._of_table(self.values.table.values.units[place.layer])
        elif place.is_head:
            hook, axis, index = f"blocks.{place.layer}.attn.hook_z", 2, place.head
            source = self._of_table(self.values.table.values.z[place.layer])
        else:
            hook, axis, index = f"blocks.{place.layer}.hook_mlp_out", 2, None
            source = self._of_table(self.values.table.values.mlp[place.layer])
            source = source + self.model.blocks[place.layer].mlp_bias

        def replaced(value: Tensor, _: HookPoint) -> Tensor:
            value = value.clone()
            view = value[rows] if index is None else value[rows].select(axis, index)
            new = torch.zeros_like(view) if source is None else source.to(view)
            new = new if index is None or source is None else new.select(axis, index)
            new = new if one.added is None else view + one.added.to(view)
            mask = self._mask(one, view, place)
            view.copy_(new.expand_as(view) if mask is None else torch.where(mask, new, view))
            return value

        self.hooks.append((hook, replaced))

    def _replace_latents(self, rows: slice, members: PlacedSet) -> None:
        """Hook up the latents of a set: those of one dictionary together."""
        prompts = slice(self.prompts.start, self.prompts.stop)
        by_layer: dict[int, dict[Feature, Where | None]] = {}
        for one in members:
            if isinstance(place := one.site.place, Feature):
                others = by_layer.setdefault(place.layer, {})
                before = others.get(place, one.where)
                together = None if one.where is None or before is None else one.where | before
                others[place] = together
        for places in by_layer.values():
            dictionary, like = dictionary_of(next(iter(places))), self.recording.pre[0]
            masks = {one: None if where is None else where[prompts] for one, where in places.items()}
            latents = [one for one in places if one.index is not None]
            new = [self._latent(one, like.new_zeros(1, 1)) for one in latents]
            rest = next((one for one in places if one.index is None), None)
            shape = torch.broadcast_shapes((1, 1), *(value.shape for value in new))
            edit = Latents(
                dictionary,
                torch.tensor([one.index for one in latents], dtype=torch.long),
                [masks[one] for one in latents],
                torch.stack([value.expand(shape) for value in new], -1) if new else like.new_zeros(1, 1, 0),
                None if rest is None else self._latent(rest, like.new_zeros(1, 1, 1)),
                None if rest is None else masks[rest],
            )
            self.hooks += edit.hooks(rows)

    def _latent(self, place: Feature, zero: Tensor) -> Tensor:
        """What takes the place of a latent or an error on these prompts."""
        value = self.values.latents.get(place, zero)
        return value if len(value) == 1 else value[self.prompts.start : self.prompts.stop]

    def _of_table(self, table: Tensor) -> Tensor:
        return table[self.choices.to(table.device)]

    def _mask(self, one: PlacedSite, view: Tensor, place: Component | Activation) -> Tensor | None:
        """Where positions are replaced, in the shape of what is replaced; a pattern's positions are its queries."""
        if one.where is None:
            return None
        where = one.where[self.prompts.start : self.prompts.stop].to(view.device)
        if isinstance(place, Activation) and place.kind == "pattern":
            return where[:, :, None] if view.ndim == 3 else where[:, None, :, None]
        return where.view(*where.shape, *(1,) * (view.ndim - 2))

    def _cut(self, rows: slice, i: int, one: PlacedSite) -> None:
        """Hook up an edge: note what its sender writes, and exchange it in its receiver's input."""
        edge = one.site.place
        assert isinstance(edge, Edge)
        if edge.sender is None:
            self.written[i, None] = self.recording.pre[0]
        else:
            self.hooks.append(self._noting(rows, i, edge.sender))
        if edge.receiver is None:
            self.into_logits.append((rows, i, one))
            return
        layer, head = edge.receiver.layer, edge.receiver.head
        name = "hook_mlp_in" if head is None else f"hook_{edge.port}_input"

        def exchanged(value: Tensor, _: HookPoint) -> Tensor:
            value = value.clone()
            view = value[rows] if head is None else value[rows].select(2, head)
            view += self._change(i, one, view)
            return value

        self.hooks.append((f"blocks.{layer}.{name}", exchanged))

    def _noting(self, rows: slice, i: int, sender: Component) -> Hook:
        block = self.model.blocks[sender.layer]

        def note(value: Tensor, _: HookPoint) -> None:
            own = value[rows] - block.mlp_bias if sender.head is None else block.share(value[rows], sender.head)
            self.written[i, sender] = own

        return f"blocks.{sender.layer}.{'hook_mlp_out' if sender.head is None else 'attn.hook_z'}", note

    def _change(self, i: int, one: PlacedSite, like: Tensor) -> Tensor:
        """What an edge adds to its receiver's input: the sender's replacement less what it wrote, where it is cut."""
        edge, table = one.site.place, self.values.table.values
        assert isinstance(edge, Edge)
        if edge.sender is None:
            new = self._of_table(table.embed)
        else:
            new = self._of_table(contribution(self.model, edge.sender, table))
        change = new.to(like) - self.written[i, edge.sender].to(like)
        mask = None if one.where is None else one.where[self.prompts.start : self.prompts.stop].to(like.device)
        return change if mask is None else change * mask[..., None]


def _noticed(hook: Hook, seen: set[str]) -> Hook:
    """A hook that notes that its point was there: an edit that never ran would read as one without effect."""
    name, function = hook

    def noticed(value: Tensor, point: HookPoint) -> Tensor | None:
        seen.add(point.name)
        return function(value, point)

    return name, noticed


def _cut_once(members: PlacedSet) -> list[PlacedSite]:
    """The edges of a set, each once, at every position that one of its names has: what cutting adds would add up."""
    edges: dict[Edge, PlacedSite] = {}
    for one in members:
        if isinstance(place := one.site.place, Edge):
            other = edges.get(place, one).where
            edges[place] = replace(one, where=None if one.where is None or other is None else one.where | other)
    return list(edges.values())


def in_layers(sites: Sequence[Site], shape: Shape) -> float:
    """Passes of all prompts that replacing each site alone takes, the clean run included."""
    return 1.0 + sum(1 - site.layer / shape.n_layers for site in sites)


#: Which positions of the prompts a site's own positions are.
Positions = Callable[[Sequence[str | int]], Where | None]


def placed_sets(sets: Sequence[Sequence[Site]], positions: Positions, allowed: Where | None = None) -> list[PlacedSet]:
    """Sets of sites with the positions of each; nothing is replaced outside what is `allowed`."""
    known: dict[tuple[str | int, ...], Where | None] = {}

    def where(at: tuple[str | int, ...]) -> Where | None:
        if at not in known:
            marked = positions(at) if at else None
            known[at] = marked if allowed is None else allowed if marked is None else marked & allowed
        return known[at]

    return [tuple(PlacedSite(site, where(site.at)) for site in members) for members in sets]
