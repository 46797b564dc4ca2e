"""One set of prompts, run once: the clean run, the counterfactual run, and what components write in both.

Every prompt has a counterfactual of the same length. All experiments of a natural laboratory start from these two runs.
The *logit lens* reads them too: with the final norm's scale fixed at its clean value the logit difference is a sum over
the outputs written into the residual stream at the answer position, and a component's term of that sum is its direct
logit attribution.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import Trial
from vesalius.components import Component, Edge
from vesalius.discovery.head_tests import Target, general_roles, masses, masses_in_place
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Cost, Plan, Recordings, Row, Values, run
from vesalius.intervene.patterns import without_keys
from vesalius.intervene.probes import HeadInputs, direct_difference, direct_sides
from vesalius.intervene.recordings import RECORDED_HOOKS, Recording
from vesalius.intervene.signed import LogitSides
from vesalius.intervene.values import contribution, values_of
from vesalius.intervene.written_tokens import mlp_input
from vesalius.model.hooks import Cache
from vesalius.model.transformer import Transformer

#: What is kept of runs beside `RECORDED_HOOKS`.
ATTENTION_HOOKS, EMBEDDING_HOOKS = (".hook_pattern", ".attn.hook_v"), ("hook_embed", "hook_pos_embed")


class _OneRun(Mapping[str, Tensor]):
    """One prompt of a cached run; learned positions are the same for all prompts."""

    def __init__(self, cache: Cache, row: int) -> None:
        self._cache, self._row = cache, row

    def __getitem__(self, name: str) -> Tensor:
        whole = self._cache[name]
        return whole[[self._row if len(whole) > 1 else 0]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cache)

    def __len__(self) -> int:
        return len(self._cache)


class Runs:
    """Prompts of a natural model with their clean and their counterfactual run; `cost` counts the forward passes."""

    def __init__(self, model: Transformer, material: Trial, cost: Cost) -> None:
        self.model, self.readout, self.cost = model, material.readout, cost
        self._signed = material.signed(model)
        self.batch: Batch = material.batch.to(model.device)
        self.source: Batch = material.counterfactual.to(model.device)
        self._prompts = material.prompts
        #: The clean run, which edited runs start from.
        self.recordings = self._recorded(self.batch, lambda: self._cache)

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def prompts(self) -> Prompts:
        """The behaviour's prompts, with their roles and answers."""
        if self._prompts is None:
            raise BadInput("claims about roles and answers need a natural model with a behaviour; load it with one")
        return self._prompts

    @property
    def first(self) -> int:
        """1 where every prompt begins with BOS, else 0."""
        return int(self.model.config.begin_with_bos(self.batch.tokens))

    @cached_property
    def values(self) -> Values:
        """The outputs of all components on the clean prompts."""
        return values_of(self.model, self._cache, self.batch)

    @cached_property
    def source_values(self) -> Values:
        """The outputs of all components on the counterfactual prompts."""
        return values_of(self.model, self._source_cache, self.source)

    def change(self, component: Component | None) -> Float[Tensor, "prompt pos d_model"]:
        """What a component (None: the embedding) adds on the counterfactual prompts, less what it adds on the clean
        ones.
        """
        return self.output_of(component, self.source_values) - self.output_of(component, self.values)

    def clean_output(self, component: Component | None) -> Float[Tensor, "prompt pos d_model"]:
        """What a component (None: the embedding) adds to the residual stream on the clean prompts."""
        return self.output_of(component, self.values)

    def pattern(self, layer: int) -> Float[Tensor, "prompt head query key"]:
        """The attention of a layer's heads on the clean prompts."""
        return self._cache[f"blocks.{layer}.attn.hook_pattern"]

    def read_values(self, layer: int) -> Float[Tensor, "prompt pos kv_head d_head"]:
        """The values that a layer's heads read on the clean prompts."""
        return self._cache[f"blocks.{layer}.attn.hook_v"]

    def source_pattern(self, layer: int) -> Float[Tensor, "prompt head query key"]:
        """The attention of a layer's heads on the counterfactual prompts."""
        return self._source_cache[f"blocks.{layer}.attn.hook_pattern"]

    def resid(self, layer: int) -> Float[Tensor, "prompt pos d_model"]:
        """The residual stream that enters a layer on the clean prompts."""
        return self._cache[f"blocks.{layer}.hook_resid_pre"]

    def mlp_input(self, layer: int, *, source: bool = False) -> Float[Tensor, "prompt pos d_model"]:
        """What a layer's MLP reads, before its norm, on the clean prompts or on the counterfactual ones."""
        return mlp_input(self.model, layer, self._source_cache if source else self._cache)

    @property
    def final_resid(self) -> Float[Tensor, "prompt d_model"]:
        """The residual stream at each prompt's answer position, before the last norm."""
        last = self.model.config.n_layers - 1
        return self._cache[f"blocks.{last}.hook_resid_post"][torch.arange(len(self)), self.prompts.position]

    def output_of(self, component: Component | None, values: Values) -> Float[Tensor, "prompt pos d_model"]:
        """What a component (None: the embedding) adds to the residual stream, without its layer's output bias."""
        return values.embed if component is None else contribution(self.model, component, values)

    def values_without(
        self, heads: Sequence[Component], query: Int[Tensor, " prompt"], key: Int[Tensor, " prompt"]
    ) -> Values:
        """What components write on the clean prompts where some heads of one layer do not read one position from
        another one. No run is needed: where they attend otherwise does not change.
        """
        rows, layer = torch.arange(len(self)), heads[0].layer
        z, pattern, values = self.values.z[layer].clone(), self.pattern(layer), self.read_values(layer)
        for head in heads:
            assert head.head is not None
            read = values[rows, key, head.head // self.model.config.queries_per_kv]
            z[rows, query, head.head] -= pattern[rows, head.head, query, key, None] * read
        layers = (*self.values.z[:layer], z, *self.values.z[layer + 1 :])
        return replace(self.values, z=layers, prompts=None)

    @property
    def answer_only(self) -> Bool[Tensor, "prompt pos"]:
        """True at each prompt's answer position."""
        return torch.zeros_like(self.prompts.mask).scatter_(1, self.prompts.position[:, None], True)

    @cached_property
    def source_recordings(self) -> Recordings:
        """The counterfactual run, which clean values are patched into."""
        return self._recorded(self.source, lambda: self._source_cache)

    def _recorded(self, batch: Batch, cache: Callable[[], Cache]) -> Recordings:
        model, readout = self.model, self._signed
        return Recordings(model, batch, readout, ran=lambda: Recording.of_run(model, batch, readout, cache()))

    # What is read of edited runs: the score, and beside it the logits of `signed` where the metric compares answers.

    @cached_property
    def clean(self) -> Float[Tensor, "*prompt"]:
        """What is read of the clean prompts."""
        return self.recordings.scores().cpu()

    def patched(
        self, sets: Sequence[Sequence[Component]], prompts: Int[Tensor, " n"], positions: Tensor | None = None
    ) -> Float[Tensor, "n set *signed"]:
        """Clean minus edited, with each set patched from the counterfactual on some prompts."""
        grid, rows = Plan.grid(self.model.config, sets, choices=prompts), prompts.repeat(len(sets))
        plan = Plan(rows, grid.choice, None if positions is None else positions[rows])
        return self._lost(run(self.recordings, plan, self.source_values, cost=self.cost), prompts)

    def along(self, paths: Sequence[Sequence[Edge]], prompts: Int[Tensor, " n"]) -> Float[Tensor, "n path *signed"]:
        """Clean minus edited, with all edges of each path carrying their senders' outputs on the counterfactual."""
        rows = [Row(prompt, edges=dict.fromkeys(edges, prompt)) for edges in paths for prompt in prompts.tolist()]
        plan = Plan.of(self.model.config, rows, width=self.batch.tokens.shape[1])
        return self._lost(run(self.recordings, plan, self.source_values, cost=self.cost), prompts)

    def restored(
        self, sets: Sequence[Sequence[Component]], prompts: Int[Tensor, " n"], positions: Tensor | None = None
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "n set *signed"]]:
        """What is read of the counterfactual prompts, and what each set's clean values gain when patched into them."""
        where = None if positions is None else positions[prompts]
        plan = Plan.grid(self.model.config, sets, choices=prompts, positions=where)
        corrupted = self.source_recordings.scores().cpu()[prompts]
        edited = run(self.source_recordings, plan, self.values, cost=self.cost).cpu()
        return corrupted, edited.unflatten(0, (-1, len(prompts))).transpose(0, 1) - corrupted[:, None]

    def _lost(self, edited: Tensor, prompts: Int[Tensor, " n"]) -> Float[Tensor, "n set *signed"]:
        return self.clean[prompts][:, None] - edited.cpu().unflatten(0, (-1, len(prompts))).transpose(0, 1)

    def run_of(self, row: int, *, source: bool = False) -> Mapping[str, Tensor]:
        """The clean run of one prompt, or its counterfactual one."""
        return _OneRun(self._source_cache if source else self._cache, row)

    @cached_property
    def _cache(self) -> Cache:
        return self._run(self.batch)

    @cached_property
    def _source_cache(self) -> Cache:
        return self._run(self.source)

    @torch.no_grad()
    def _run(self, batch: Batch) -> Cache:
        last = f"blocks.{self.model.config.n_layers - 1}.hook_resid_post"
        self.cost.rows += len(self)
        _, cache = self.model.run_with_cache(
            batch.tokens,
            mask=batch.mask,
            names=lambda name: name.endswith((*RECORDED_HOOKS, *ATTENTION_HOOKS)) or name in (last, *EMBEDDING_HOOKS),
            choose=torch.zeros(len(self), 1, dtype=torch.long, device=batch.tokens.device),
        )
        return cache


def feeds(sender: Component, receiver: Component, *, parallel: bool = False) -> bool:
    """Whether the receiver reads what the sender writes; `parallel`: MLPs do not read their own layer's heads."""
    if sender.layer == receiver.layer:
        return sender.is_head and not receiver.is_head and not parallel
    return sender.layer < receiver.layer


def edges_between(sender: Component | None, receiver: Component | None) -> list[Edge]:
    """The edges of the direct path from a sender (None: the embedding) into all inputs of a receiver (None: the
    logits).
    """
    if receiver is None:
        return [Edge(sender, None, "logits")]
    if not receiver.is_head:
        return [Edge(sender, receiver, "mlp")]
    return [Edge(sender, receiver, port) for port in ("q", "k", "v")]


def direct_attribution(runs: Runs, component: Component | None, *, shuffle: bool = False) -> Float[Tensor, " prompt"]:
    """What a component (None: the embedding) adds to logit(correct) - logit(wrong), in logits; without a wrong answer
    to logit(correct) minus the mean logit. `shuffle` uses the answers of another prompt.
    """
    output = runs.clean_output(component)[torch.arange(len(runs)), runs.prompts.position]
    return logit_difference_of(runs, output, shuffle=shuffle)


def attributed_sides(runs: Runs, component: Component | None) -> LogitSides:
    """What a component (None: the embedding) adds to the logits of the right answer, of the wrong one and of the rest,
    by its direct path: the same sum, side by side.
    """
    output = runs.clean_output(component)[torch.arange(len(runs)), runs.prompts.position]
    question, final = runs.prompts.question, runs.final_resid
    return direct_sides(runs.model, output, resid=final, answers=question.answers, wrongs=question.wrongs)


def logit_difference_of(
    runs: Runs, vector: Float[Tensor, "prompt d_model"], *, shuffle: bool = False
) -> Float[Tensor, " prompt"]:
    """The logit difference of a vector in the final residual stream."""
    correct, wrong = runs.prompts.correct, runs.prompts.wrong
    if shuffle:
        correct, wrong = correct.roll(1), wrong.roll(1)
    return direct_difference(runs.model, vector, resid=runs.final_resid, correct=correct, wrong=wrong).cpu()


def moved_places(batch: Batch, bos: int | None, generator: torch.Generator) -> Int[Tensor, "prompt pos"]:
    """For each position of each prompt another one, in random order; BOS and padding stay."""
    real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask.clone()
    real &= batch.tokens != bos
    places = torch.arange(real.shape[1]).repeat(len(real), 1)
    for row, counts in zip(places, real.cpu(), strict=True):
        order = row[counts][torch.randperm(int(counts.sum()), generator=generator)]
        row[order] = order.roll(1)  # one cycle through all of them, so that none stays
    return places


# Where a head attends: token roles as sets of (query, key) pairs, and interventions on one head's attention.
#
# General roles exist in every prompt: BOS, the position itself, the previous token, earlier copies of the current token
# (*duplicate*), and the tokens right after such copies (*induction*). A behaviour adds its own, such as IO and S1, for
# the answer position as the query.
#
# *Composition*: the path from one earlier component into the head's queries or keys alone carries the counterfactual
# value; everything else stays clean. What the head then attends to needs one layer's arithmetic, no forward pass, so
# all earlier components can be tested. *Cutting* removes keys from the head's attention and scales the rest to sum to
# one.

AttentionPort = Literal["q", "k"]
PORTS: tuple[AttentionPort, ...] = ("q", "k")
PORT_WORDS = {"q": "queries", "k": "keys", "v": "values"}
#: Roles that a head attends to where it has nothing to find.
SINKS = ("BOS", "first token")
#: General roles, and the name of a head that attends to them.
NAMES = {"induction": "induction head", "duplicate": "duplicate-token head", "previous": "previous-token head"}
MEANINGS = {
    "induction": "the token after an earlier copy of the current one",
    "duplicate": "earlier copies of the current token",
    "previous": "the previous token",
    "self": "its own position",
    "BOS": "BOS",
    "first token": "the first token",
}


def require_heads(parts: Sequence[Component]) -> None:
    """Refuse MLPs where attention is asked for."""
    for part in parts:
        if not part.is_head:
            raise BadInput(f"{part} is an MLP, which has no attention; name heads such as L0H0")


def everywhere(runs: Runs) -> dict[str, Target]:
    """The general roles with every position but BOS as a query."""
    return everywhere_in(runs, runs.prompts.tokens)


def everywhere_in(runs: Runs, tokens: Int[Tensor, "prompt pos"]) -> dict[str, Target]:
    """The general roles in other tokens with the prompts' shape, such as the counterfactual prompts."""
    return general_roles(tokens, runs.prompts.mask, first=runs.first)


def at_answer(runs: Runs) -> dict[str, Target]:
    """The general roles and the behaviour's own, with the answer position as the only query."""
    prompts = runs.prompts
    is_answer = runs.answer_only[:, :, None]
    targets = {name: target & is_answer for name, target in everywhere(runs).items()}
    for role, where in prompts.roles.items():
        if bool((where == prompts.position).all()):
            continue  # the answer position itself
        target = torch.zeros_like(is_answer.expand(-1, -1, is_answer.shape[1]))
        target[torch.arange(len(runs)), prompts.position, where] = True
        targets[role] = target
    return targets


def without_role(targets: Mapping[str, Target], runs: Runs) -> Target:
    """Keys that the answer position can attend to and that have none of these roles."""
    place = torch.arange(runs.prompts.tokens.shape[1])
    visible = runs.answer_only[:, :, None] & runs.prompts.mask[:, None, :] & (place[None, :] <= place[:, None])
    return visible & ~torch.stack(list(targets.values())).any(0)


def shuffled(target: Target) -> Target:
    """Control: each prompt with the target keys of another prompt."""
    n = target.shape[1]
    return target.roll(1, 0) & torch.ones(n, n, dtype=torch.bool).tril()


def random_keys(target: Target, runs: Runs, *, seed: int) -> Target:
    """For each query a random choice of as many keys, outside the target and BOS."""
    place = torch.arange(target.shape[1])
    is_query = target.any(-1, keepdim=True)
    allowed = is_query & runs.prompts.mask[:, None, :] & (place[None, :] <= place[:, None]) & (place >= runs.first)
    return as_many_others(target, allowed, seed)


def as_many_others(target: Target, allowed: Target, seed: int) -> Target:
    """For each query a random choice of as many keys outside the target."""
    order = torch.rand(target.shape, generator=torch.Generator().manual_seed(seed))
    order = order.masked_fill(~(allowed & ~target), 2.0)
    rank = order.argsort(-1).argsort(-1)
    return (rank < target.sum(-1, keepdim=True)) & allowed & ~target


class HeadPaths:
    """The paths into one head on a set of prompts."""

    def __init__(self, runs: Runs, head: Component) -> None:
        self.runs, self.head = runs, head
        self._inputs = HeadInputs(runs.model, runs.batch, runs.resid(head.layer), head)

    def pattern_without(self, sender: Component | None, port: AttentionPort) -> Float[Tensor, "prompt 1 query key"]:
        """The head's attention when `sender`'s path into its queries or keys carries the counterfactual value."""
        return self._inputs.patterns_with(self.runs.change(sender), (port,))[port][:, None]

    def mass_lost(self, sender: Component | None, port: AttentionPort, target: Target) -> Float[Tensor, " prompt"]:
        """How much attention leaves the target without the sender's path; NaN where a prompt has no target."""
        return self.masses_lost(self.runs.change(sender), target, (port,))[port]

    def masses_lost(
        self, change: Float[Tensor, "prompt pos d_model"], target: Target, ports: Sequence[AttentionPort] = PORTS
    ) -> dict[AttentionPort, Float[Tensor, " prompt"]]:
        """The same for a change of what the head reads, into its queries and into its keys."""
        clean = masses(self.runs.pattern(self.head.layer)[:, [self.head.head]], target)[:, 0]
        patterns = self._inputs.patterns_with(change, ports)
        return {port: clean - masses(patterns[port][:, None], target)[:, 0] for port in ports}

    def masses_lost_each(
        self, changes: Float[Tensor, "change prompt pos d_model"], target: Target
    ) -> dict[AttentionPort, Float[Tensor, "change prompt"]]:
        """The same for several changes at once, left where the model is."""
        own = self.runs.pattern(self.head.layer)[:, [self.head.head]]
        target = target.to(own.device)
        clean = masses_in_place(own, target)[:, 0]
        patterns = self._inputs.patterns_with_each(changes, PORTS)
        # Changes stand where `masses` has heads: every one of them is held to the same targets.
        return {port: (clean - masses_in_place(x.transpose(0, 1), target).T) for port, x in patterns.items()}

    @torch.no_grad()
    def z_without_keys(self, target: Target) -> Float[Tensor, "prompt pos d_head"]:
        """The head's z when the target keys are removed from its attention."""
        pattern = self.runs.pattern(self.head.layer)[:, self.head.head]
        return without_keys(pattern, target, sinks=self.runs.model.config.sinks) @ self._inputs.values
