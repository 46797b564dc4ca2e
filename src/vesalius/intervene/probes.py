"""Looks inside a run that the engine's plans do not have: attention edited by hooks, one head taken apart, and the
logit lens.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene.readout import Readout
from vesalius.intervene.signed import LogitSides
from vesalius.intervene.values import Batch
from vesalius.model.attention import HeadPort, Heads, take_positions
from vesalius.model.hooks import Hook, HookPoint, Tap
from vesalius.model.mlp import widened
from vesalius.model.positions import Layout
from vesalius.model.transformer import Transformer


@torch.no_grad()
def hooked_scores(model: Transformer, batch: Batch, readout: Readout, hooks: Sequence[Hook]) -> Tensor:
    """The readout of every prompt in a run with hooks, which see all positions; only the readout's are unembedded."""
    kept: list[Tensor] = []
    keep: Hook = (f"blocks.{model.config.n_layers - 1}.hook_resid_post", lambda value, _: kept.append(value))
    one_logit = torch.zeros(len(batch), 1, dtype=torch.long, device=model.device)
    model.run_with_hooks(batch.tokens, mask=batch.mask, choose=one_logit, fwd_hooks=[*hooks, keep])
    resid = kept[0] if readout.at is None else take_positions(kept[0], readout.at.to(kept[0].device))
    logits = model.unembed(resid, readout.choose, Tap(), mean=readout.mean)
    return readout.score(logits, torch.arange(len(batch), device=logits.device))


def attention_cuts(
    heads: Sequence[Component], query: Int[Tensor, " prompt"], key: Int[Tensor, " prompt"]
) -> list[Hook]:
    """Hooks that set each prompt's attention from one position to another to zero and leave the rest as it is."""
    rows = torch.arange(len(query))

    def hook(head: Component) -> Hook:
        def cut(pattern: Tensor, _: HookPoint) -> Tensor:
            pattern = pattern.clone()
            pattern[rows, head.head, query, key] = 0.0
            return pattern

        return f"blocks.{head.layer}.attn.hook_pattern", cut

    return [hook(head) for head in heads]


def zeroing(model: Transformer, components: Sequence[Component], at: Int[Tensor, " prompt"] | None) -> list[Hook]:
    """Hooks that zero components at one position of each prompt (None: everywhere): heads write nothing, MLPs only
    their output bias.
    """
    where = (slice(None), slice(None)) if at is None else (torch.arange(len(at)), at)

    def hook(part: Component) -> Hook:
        def zero(value: Tensor, _: HookPoint) -> Tensor:
            value = value.clone()
            if part.head is None:
                value[where] = model.blocks[part.layer].mlp_bias.to(value)
            else:
                value[*where, part.head] = 0.0
            return value

        return f"blocks.{part.layer}.{'hook_mlp_out' if part.head is None else 'attn.hook_z'}", zero

    return [hook(part) for part in components]


# One head taken apart: its queries, keys and values, and where it attends when one of them changes.
#
# What a head attends to needs one layer's arithmetic and no forward pass, so every earlier component can be tried.

_CLEAN = Tap()
Port = TypeVar("Port", bound=HeadPort)


class HeadInputs:
    """What a head reads on a batch, from `resid`, the residual stream that enters its layer."""

    @torch.no_grad()
    def __init__(
        self, model: Transformer, batch: Batch, resid: Float[Tensor, "prompt pos d_model"], head: Component
    ) -> None:
        assert head.head is not None
        self.head, self._block = head, model.blocks[head.layer]
        self._resid = resid = resid.to(self._block.device)
        self._own = head.head
        batch = batch.to(model.device)
        self._layout = model.layout(batch.tokens, batch.mask).on(self._block.device)
        self._normed = normed = self._block.ln1(resid, _CLEAN)
        self._clean = Heads(self._project(normed, "q"), self._project(normed, "k"), self._project(normed, "v"))

    @property
    def values(self) -> Float[Tensor, "prompt pos d_head"]:
        """The values the head moves."""
        return self._block.attn.moved(self._normed, self._layout, self._own)

    @torch.no_grad()
    def pattern(self) -> Float[Tensor, "prompt query key"]:
        """Where the head attends."""
        return self._attend(self._clean)

    @torch.no_grad()
    def patterns_with(
        self, change: Float[Tensor, "prompt pos d_model"], ports: Sequence[Port]
    ) -> dict[Port, Float[Tensor, "prompt query key"]]:
        """The same for several inputs, each on its own."""
        normed = self._block.ln1(self._resid + change.to(self._resid.device), _CLEAN)
        return {port: self._attend(self._clean._replace(**{port: self._project(normed, port)})) for port in ports}

    @torch.no_grad()
    def patterns_with_each(
        self, changes: Float[Tensor, "change prompt pos d_model"], ports: Sequence[Port]
    ) -> dict[Port, Float[Tensor, "change prompt query key"]]:
        """The same for several changes, in one batch."""
        n, prompts = changes.shape[:2]
        normed = self._block.ln1((self._resid + changes.to(self._resid.device)).flatten(0, 1), _CLEAN)
        clean = Heads(*(part.repeat(n, *[1] * (part.ndim - 1)) for part in self._clean))
        layout = self._layout.take(torch.arange(prompts, device=normed.device).repeat(n))
        return {
            port: self._attend(clean._replace(**{port: self._project(normed, port)}), layout).unflatten(0, (n, prompts))
            for port in ports
        }

    def _attend(self, heads: Heads, layout: Layout | None = None) -> Float[Tensor, "row query key"]:
        name = f"blocks.{self.head.layer}.attn.hook_pattern"
        tap = Tap(keep=lambda other: other == name)
        self._block.attn.mix(heads, layout or self._layout, None, tap, which=[self._own])
        return tap.stored[name][:, 0]

    def _project(self, normed: Tensor, port: HeadPort) -> Float[Tensor, "prompt pos 1 d_head"]:
        return self._block.attn.own(port, normed[:, None], [self._own]).transpose(1, 2)


# The logit lens: what a vector in the final residual stream says about two tokens.
#
# The final norm's scale is held at its value in the run, so that the logit difference is a sum over what was written
# into the residual stream. A soft cap on the logits is left out: the difference is of uncapped logits.


@torch.no_grad()
def direct_difference(
    model: Transformer,
    vector: Float[Tensor, "prompt d_model"],
    *,
    resid: Float[Tensor, "prompt d_model"],
    correct: Int[Tensor, " prompt"],
    wrong: Int[Tensor, " prompt"],
) -> Float[Tensor, " prompt"]:
    """What `vector`, as a part of the final residual stream `resid`, adds to logit(correct) - logit(wrong), or to
    logit(correct) minus the mean logit where `wrong` is -1.
    """
    weight, vector = model.unembed_weight, _as_unembedded(model, vector, resid)
    rival = wrong.to(weight.device)
    against = weight[rival.clamp(min=0)]
    if bool((rival < 0).any()):
        mean, _ = model.mean_unembedding()
        against = torch.where((rival < 0)[:, None], mean.to(against.dtype), against)
    return (vector * widened(weight[correct.to(weight.device)] - against)).sum(-1)


@torch.no_grad()
def direct_sides(
    model: Transformer,
    vector: Float[Tensor, "prompt d_model"],
    *,
    resid: Float[Tensor, "prompt d_model"],
    answers: Int[Tensor, "prompt answer"],
    wrongs: Int[Tensor, "prompt wrong"],
) -> LogitSides:
    """What `vector`, as a part of the final residual stream `resid`, adds to the logit of the first right answer, of
    the first wrong one (0 where there is none) and to the mean of all logits but those of right and wrong answers.
    """
    weight, vector = model.unembed_weight, _as_unembedded(model, vector, resid)
    ids = torch.cat([answers, wrongs], 1).to(weight.device)
    each = torch.einsum("nd,ncd->nc", vector, widened(weight[ids.clamp(min=0)])).where(ids >= 0, 0.0)
    mean = vector @ model.mean_unembedding()[0]
    rest = (mean * len(weight) - each.sum(1)) / (len(weight) - (ids >= 0).sum(1)).clamp(min=1)
    return LogitSides(*(side.cpu() for side in (each[:, 0], each[:, answers.shape[1]], rest)))


@torch.no_grad()
def direct_logits(
    model: Transformer, vector: Float[Tensor, "prompt d_model"], *, resid: Float[Tensor, "prompt d_model"]
) -> Float[Tensor, "prompt vocab"]:
    """What `vector`, as a part of the final residual stream `resid`, adds to every logit; the norm's and the
    unembedding's own biases and a soft cap are left out.
    """
    return _as_unembedded(model, vector, resid) @ widened(model.unembed_weight).T


def unembedding_cosines(
    model: Transformer,
    vector: Float[Tensor, "prompt d_model"],
    tokens: Int[Tensor, " prompt"],
    *,
    resid: Float[Tensor, "prompt d_model"],
) -> Float[Tensor, " prompt"]:
    """The cosine of `vector`, as a part of the final residual stream `resid`, with the unembedding of one token of each
    prompt, behind the last norm, where the unembedding reads.
    """
    read, rows = _as_unembedded(model, vector, resid), tokens.to(model.unembed_weight.device)
    return torch.nn.functional.cosine_similarity(read, widened(model.unembed_weight)[rows], dim=1)


def _as_unembedded(model: Transformer, vector: Tensor, resid: Tensor) -> Tensor:
    """The share of the final norm's output that `vector` is, where the unembedding reads it."""
    norm, device = model.ln_final, model.unembed_weight.device
    vector = widened(vector.to(device))
    return vector if norm.w is None else norm.share(vector, norm.scale(resid.to(device)))


@torch.no_grad()
def neuron_logits(model: Transformer, neuron: Component) -> Float[Tensor, " vocab"]:
    """What a neuron's output direction adds to every logit where its activation is positive, but for a positive factor:
    the scale of the norms behind it is that of the direction alone.
    """
    block = model.blocks[neuron.layer]
    direction = block.mlp.W_out[neuron.neuron][None]
    if block.ln2_post.w is not None:
        direction = block.ln2_post.share(direction, block.ln2_post.scale(direction))
    return direct_logits(model, direction, resid=direction)[0]
