"""Strict interchange-intervention training: the loss that puts a program into chosen components and only there.

For a pair (base, source) three runs of the base are trained on the correct answer, with weight 1 each:

    behaviour    nothing is replaced                            -> the program's output on the base
    interchange  one component of the circuit takes its         -> the program's output after the same interchange
                 value from the source
    strict       some components outside the circuit are        -> the program's output on the base
                 replaced

Strict rows replace all other components (30 %), exactly one (30 %) or each with probability 1/2 (40 %). Most take the
source's values; one in five takes zeros and one in five the batch mean instead, because nodes that carry only a
position or a constant seem irrelevant under interchange at the same position and yet may matter. Gradients flow through
the source run as well.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from vesalius.training.stack import Nodes, Patch, Stack
from vesalius.training.tables import Tables

NUMERICAL_WEIGHT = 20.0
ALL_OTHERS, ONE_OTHER = 0.3, 0.6  # cumulative shares of the strict rows; the rest replaces each with probability 1/2
SOURCE, MEAN, ZERO = 0, 1, 2
ZEROED, ZEROED_OR_MEAN = 0.2, 0.4  # cumulative shares of the strict rows
INERT_WEIGHT = 0.1  # how often an interchange without effect is drawn, compared with others
_MIN_ERROR = 0.01


class Rows(NamedTuple):
    """One batch: for every copy, pairs with their answers and what is replaced in them."""

    base: Int[Tensor, "copy pos row"]
    source: Int[Tensor, "copy pos row"]
    base_real: Bool[Tensor, "copy pos row"]
    source_real: Bool[Tensor, "copy pos row"]
    reads: Int[Tensor, "copy pos row"]
    answer: Float[Tensor, "copy token row"]
    swapped_answer: Float[Tensor, "copy token row"]
    swapped: Bool[Tensor, "copy node row"]
    strict: Bool[Tensor, "copy node row"]
    strict_kind: Int[Tensor, "copy row"]


@dataclass(frozen=True)
class Weights:
    """The weights of the three terms of the loss."""

    behaviour: float = 1.0
    interchange: float = 1.0
    strict: float = 1.0


class Curriculum:
    """The nodes of each copy's slots, and how often each slot is drawn; all on the device of the stack."""

    def __init__(self, stack: Stack) -> None:
        settings = [stack.settings[copy.setting] for copy in stack.copies]
        n_slots = max(len(setting.slots) for setting in settings)
        device = stack.device
        self.others = torch.zeros(len(stack), stack.n_nodes, dtype=torch.bool)
        self.slot_nodes = torch.zeros(len(stack), n_slots, stack.n_nodes, dtype=torch.bool)
        self.crossed = torch.zeros(len(stack), n_slots, dtype=torch.bool)
        self.inert = torch.zeros(len(stack), n_slots, dtype=torch.bool)
        self.present = torch.zeros(len(stack), n_slots, dtype=torch.bool)
        for i, setting in enumerate(settings):
            self.others[i, [stack.node(component) for component in setting.others]] = True
            for s, slot in enumerate(setting.slots):
                self.slot_nodes[i, s, stack.node(slot.component)] = True
                self.crossed[i, s], self.inert[i, s], self.present[i, s] = slot.crossed, slot.inert, True
        for name in ("others", "slot_nodes", "crossed", "inert", "present"):
            setattr(self, name, getattr(self, name).to(device))
        slots = [slot for setting in settings for slot in setting.slots if slot.crossed]
        self.crossed_heads = frozenset(slot.component.layer for slot in slots if slot.component.is_head)
        self.crossed_mlps = frozenset(slot.component.layer for slot in slots if not slot.component.is_head)
        self.cumulative = torch.zeros(len(stack), n_slots, device=device)
        self.adapt(torch.ones(len(stack), n_slots, device=device))

    def adapt(self, iia: Float[Tensor, "copy slot"]) -> None:
        """Draw slots half evenly, half in proportion to sqrt(1 - accuracy) at the last check."""
        base = self.present * torch.where(self.inert, INERT_WEIGHT, 1.0)
        error = base * (1 - iia).clamp(min=_MIN_ERROR).sqrt()
        probability = 0.5 * base / base.sum(1, keepdim=True) + 0.5 * error / error.sum(1, keepdim=True)
        cumulative = probability.cumsum(1)
        # From the last slot on the sum is 1 up to rounding; 2 ensures that no draw falls beyond it.
        last = self.present.sum(1, keepdim=True) - 1
        self.cumulative.copy_(
            cumulative.masked_fill(torch.arange(cumulative.shape[1], device=last.device) >= last, 2.0)
        )


def draw_rows(stack: Stack, tables: Tables, curriculum: Curriculum, batch: int, generator: Generator) -> Rows:
    """A random batch for every copy."""
    n, device = len(stack), stack.device
    pick = torch.randint(tables.n_pairs, (n, batch), generator=generator, device=device)
    task = stack.task[:, None]
    at = torch.rand(n, batch, 1, generator=generator, device=device)
    slot = (at >= curriculum.cumulative[:, None]).sum(-1)
    positions = torch.arange(tables.base.shape[2], device=device)[:, None]
    copy = torch.arange(n, device=device)[:, None]
    same = positions[None].expand(n, -1, batch)
    reads = same
    if curriculum.crossed_heads or curriculum.crossed_mlps:
        is_crossed = curriculum.crossed[copy, slot][:, None]
        reads = torch.where(is_crossed, tables.reads[task, pick].transpose(1, 2).long(), same)
    strict, kind = _draw_strict(curriculum.others, batch, generator)
    return Rows(
        base=tables.base[task, pick].transpose(1, 2),
        source=tables.source[task, pick].transpose(1, 2),
        base_real=positions <= tables.base_lengths[task, pick][:, None],
        source_real=positions <= tables.source_lengths[task, pick][:, None],
        reads=reads,
        answer=tables.answers[task, pick, 0].transpose(1, 2),
        swapped_answer=tables.answers[task, pick, 1 + slot].transpose(1, 2),
        swapped=curriculum.slot_nodes[copy, slot].transpose(1, 2),
        strict=strict,
        strict_kind=kind,
    )


def _draw_strict(
    others: Bool[Tensor, "copy node"], batch: int, generator: Generator
) -> tuple[Bool[Tensor, "copy node row"], Int[Tensor, "copy row"]]:
    """Which nodes outside the circuit are replaced in each row, and by what."""
    n, n_nodes = others.shape
    uniform = torch.rand(n, n_nodes + 2, batch, generator=generator, device=others.device)
    keys = uniform[:, :n_nodes].masked_fill(~others[..., None], -1.0)
    one = keys == keys.amax(1, keepdim=True)
    how_many = uniform[:, n_nodes : n_nodes + 1]
    mask = torch.where(how_many < ALL_OTHERS, True, torch.where(how_many < ONE_OTHER, one, keys < 0.5))
    what = uniform[:, n_nodes + 1]
    kind = torch.where(what < ZEROED, ZERO, torch.where(what < ZEROED_OR_MEAN, MEAN, SOURCE))
    return mask & others[..., None], kind


def copy_losses(
    stack: Stack, curriculum: Curriculum, weights: Weights, parameters: Float[Tensor, "copy parameter"], rows: Rows
) -> Float[Tensor, " copy"]:
    """The loss of every copy on its batch: one source run, one run of the base in three blocks of rows."""
    _, source = stack.run(parameters, rows.source, rows.source_real)
    patch = _patch(rows, source, curriculum)
    base, real = (torch.cat([x, x, x], -1) for x in (rows.base, rows.base_real))
    logits, _ = stack.run(parameters, base, real, patch)
    answers = torch.cat([rows.answer, rows.swapped_answer, rows.answer], -1)
    losses = position_losses(stack, logits[:, :, 1:], answers) * real[:, 1:]
    blocks = losses.unflatten(-1, (3, -1)).sum((1, 3)) / rows.base_real[:, 1:].sum((1, 2))[:, None]
    return weights.behaviour * blocks[:, 0] + weights.interchange * blocks[:, 1] + weights.strict * blocks[:, 2]


def position_losses(
    stack: Stack, logits: Float[Tensor, "copy out token row"], answers: Float[Tensor, "copy token row"]
) -> Float[Tensor, "copy token row"]:
    """Cross-entropy, or for numerical outputs 20 times the squared error."""
    squared = NUMERICAL_WEIGHT * (logits[:, 0] - answers).square() if stack.any_numerical else None
    if squared is not None and stack.all_numerical:
        return squared
    n_out = logits.shape[1]
    classes = answers.clamp(min=0, max=n_out - 1).long()
    entropy = -logits.log_softmax(1).gather(1, classes[:, None])[:, 0]
    return entropy if squared is None else torch.where(stack.numerical[:, None, None], squared, entropy)


def _patch(rows: Rows, source: Nodes, curriculum: Curriculum) -> Patch:
    """Replacements for the interchange block and the strict block."""
    at_source = rows.source_real[:, None]
    swapped = rows.swapped[:, :, None] & at_source
    everywhere = (rows.strict_kind != SOURCE)[:, None, None]
    strict = rows.strict[:, :, None] & (at_source | everywhere)
    counted = rows.source_real.to(source.mlp[0].dtype)
    z = tuple(
        torch.cat([_read(x, rows, layer in curriculum.crossed_heads), _strict_values(x, rows, counted)], -1)
        for layer, x in enumerate(source.z)
    )
    mlp = tuple(
        torch.cat([_read(x, rows, layer in curriculum.crossed_mlps), _strict_values(x, rows, counted)], -1)
        for layer, x in enumerate(source.mlp)
    )
    return Patch(torch.cat([swapped, strict], -1), Nodes(z, mlp))


def _read(x: Float[Tensor, "copy *feature pos row"], rows: Rows, crossed: bool) -> Tensor:
    """Source values at the positions that each row reads."""
    if not crossed:
        return x
    reads = rows.reads.view(len(x), *[1] * (x.ndim - 3), *x.shape[-2:])
    return x.gather(-2, reads.expand_as(x))


def _strict_values(x: Float[Tensor, "copy *feature pos row"], rows: Rows, counted: Tensor) -> Tensor:
    """Source values, their mean over real positions, or zeros, by the kind of each strict row."""
    lead = (len(x), *[1] * (x.ndim - 2))
    weight = counted.view(len(x), *[1] * (x.ndim - 3), *x.shape[-2:])
    mean = (x * weight).sum((-2, -1), keepdim=True) / counted.sum((1, 2)).view(len(x), *[1] * (x.ndim - 1))
    kind = rows.strict_kind.view(*lead, -1)
    return torch.where(kind == SOURCE, x, torch.where(kind == MEAN, mean, 0.0))
