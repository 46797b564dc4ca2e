"""A pool of prompts of one behaviour, run once, and the experiments that start from that run.

Every prompt has a counterfactual of the same length. Replacing a component means patching in its value on the
counterfactual, position by position; an effect is the clean logit difference minus the patched one, so a positive
effect means the component helped. Two pools are drawn from disjoint splits of names, templates and token ids: one to
select components, one for the evidence.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import trial
from vesalius.components import Component, Edge
from vesalius.intervene import Batch, Cost, Plan, Readout, Recordings, Row, Values, component_values, run
from vesalius.intervene.recordings import RECORDED_HOOKS, Recording
from vesalius.intervene.values import contribution, values_of
from vesalius.model.hooks import Cache
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.statistics import above_zero, mean_apart_from_zero


class Pool:
    """Prompts of a natural model's behaviour with their clean run; `cost` counts the forward passes."""

    def __init__(self, model: Transformer, prompts: Prompts, readout: Readout, *, seed: int) -> None:
        self.model, self.prompts, self.readout, self.seed = model, prompts, readout, seed
        self.batch: Batch = prompts.batch.to(model.device)
        self.source: Batch = prompts.counterfactual_batch.to(model.device)
        self.cost = Cost()
        #: The clean run, which edited runs start from.
        self.recordings = Recordings(
            model, self.batch, readout, ran=lambda: Recording.of_run(model, self.batch, readout, self._cache)
        )

    @classmethod
    def draw(cls, specimen: Specimen, n: int, *, seed: int, split: str) -> "Pool":
        """`n` prompts of the behaviour that a natural specimen was loaded for."""
        material = trial(specimen, n, seed=seed, split=split, centred=True)
        assert material.prompts is not None
        return cls(specimen.model, material.prompts, material.readout, seed=seed)

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def first(self) -> int:
        """1 where every prompt begins with BOS, else 0."""
        return int(bool((self.prompts.tokens[:, 0] == self.model.config.bos_token).all()))

    @cached_property
    def clean(self) -> Float[Tensor, " prompt"]:
        """The score of each clean prompt: the behaviour's metric, by default the logit difference."""
        return self.recordings.scores().cpu()

    @cached_property
    def scale(self) -> float:
        """The mean clean score, by which effects are divided to give shares; NaN where its interval does not lie above
        0: the model does not perform the behaviour, and shares are not defined.
        """
        return above_zero(mean_apart_from_zero(self.clean))

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

    @property
    def final_resid(self) -> Float[Tensor, "prompt d_model"]:
        """The residual stream at each prompt's answer position, before the last norm."""
        last = self.model.config.n_layers - 1
        return self._cache[f"blocks.{last}.hook_resid_post"][torch.arange(len(self)), self.prompts.position]

    def output_of(self, component: Component | None, values: Values) -> Float[Tensor, "prompt pos d_model"]:
        """What a component (None: the embedding) adds to the residual stream, without its layer's output bias."""
        return values.embed if component is None else contribution(self.model, component, values)

    def effects(
        self,
        sets: Sequence[Sequence[Component]],
        *,
        prompts: Int[Tensor, " chosen"] | None = None,
        positions: Bool[Tensor, "prompt pos"] | None = None,
    ) -> Float[Tensor, "chosen set"]:
        """Effect of replacing each set on each prompt (default: all prompts, everywhere)."""
        index = torch.arange(len(self)) if prompts is None else prompts
        grid = Plan.grid(self.model.config, sets, choices=index)
        rows = index.repeat(len(sets))
        where = None if positions is None else positions[rows]
        scores = run(self.recordings, Plan(rows, grid.choice, where), self.source_values, cost=self.cost)
        return self.clean[index][:, None] - scores.cpu().view(len(sets), len(index)).T

    def path_effects(
        self, paths: Sequence[Sequence[Edge]], *, prompts: Int[Tensor, " chosen"] | None = None
    ) -> Float[Tensor, "chosen path"]:
        """Effect of patching all edges of a path at once with their senders' outputs on the counterfactual."""
        index = list(range(len(self))) if prompts is None else prompts.tolist()
        rows = [Row(prompt, edges=dict.fromkeys(edges, prompt)) for edges in paths for prompt in index]
        plan = Plan.of(self.model.config, rows, width=self.batch.tokens.shape[1])
        scores = run(self.recordings, plan, self.source_values, cost=self.cost)
        return self.clean[index][:, None] - scores.cpu().view(len(paths), len(index)).T

    def head_effects(
        self,
        head: Component,
        z: Sequence[Float[Tensor, "prompt pos d_head"]],
        *,
        positions: Bool[Tensor, "prompt pos"] | None = None,
        n: int | None = None,
    ) -> Tensor:
        """Effect of patching other values of z into a head on the first `n` prompts (default: all), one column for
        each; [prompt, value].
        """
        n = len(self) if n is None else n
        rows = torch.arange(n).repeat(len(z))
        where = None if positions is None else positions[:n].repeat(len(z), 1)
        plan = Plan.each(self.model.config, rows, head, positions=where)
        values = component_values(self.model, head, torch.cat([one[:n] for one in z]))
        scores = run(self.recordings, plan, values, cost=self.cost)
        return self.clean[:n, None] - scores.cpu().view(len(z), n).T

    def restored(
        self,
        sets: Sequence[Sequence[Component]],
        *,
        positions: Bool[Tensor, "prompt pos"] | None = None,
        n: int | None = None,
    ) -> Float[Tensor, "prompt set"]:
        """What patching the clean values of each set into the counterfactual run restores on the first `n` prompts
        (default: all), as a share of the mean difference between the clean and the counterfactual score.
        """
        index = torch.arange(len(self) if n is None else min(n, len(self)))
        corrupted = self._source_recordings.scores().cpu()[index]
        where = None if positions is None else positions[index]
        plan = Plan.grid(self.model.config, sets, choices=index, positions=where)
        scores = run(self._source_recordings, plan, self.values, cost=self.cost).cpu().view(len(sets), len(index)).T
        return (scores - corrupted[:, None]) / mean_apart_from_zero(self.clean[index] - corrupted)

    @property
    def answer_only(self) -> Bool[Tensor, "prompt pos"]:
        """True at each prompt's answer position."""
        return torch.zeros_like(self.prompts.mask).scatter_(1, self.prompts.position[:, None], True)

    @cached_property
    def _source_recordings(self) -> Recordings:
        model, source, readout = self.model, self.source, self.readout
        return Recordings(
            model, source, readout, ran=lambda: Recording.of_run(model, source, readout, self._source_cache)
        )

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
            names=lambda name: name.endswith((*RECORDED_HOOKS, ".hook_pattern", ".attn.hook_v")) or name == last,
            choose=torch.zeros(len(self), 1, dtype=torch.long, device=batch.tokens.device),
        )
        return cache
