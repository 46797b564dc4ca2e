"""Strict interchange-intervention training: the loss that puts a program into chosen components and only there.

For a pair (base, source) three runs of the base are trained on the correct answer, with weight 1 each:

    behaviour    nothing is replaced                            -> the program's output on the base
    interchange  one component of the circuit takes its         -> the program's output after the same interchange
                 value from the source, read at the same
                 position or moved there from another
    strict       some components outside the circuit are        -> the program's output on the base
                 replaced

Strict rows replace all other components (30 %), exactly one (30 %) or each with probability 1/2 (40 %). Most take the
source's values; one in five takes zeros and one in five the batch mean instead, because nodes that carry only a
position or a constant seem irrelevant under interchange at the same position and yet may matter. Gradients flow through
the source run as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from vesalius.rasp.inputs import NUMERICAL_TOLERANCE
from vesalius_truth.training.setting import Setting, draw_pairs, model_tokens, targets
from vesalius_truth.training.stack import Nodes, Patch, Stack

# Training pairs with all their answers, computed once and kept on the device.


@dataclass(frozen=True)
class Tables:
    """Pairs of several tasks; positions include BOS, except in `answers`, which start at the first real token.

    `answers[:, :, 0]` is the output on the base, `answers[:, :, 1 + s]` the output after slot s. `reads` is the
    position of the source that a crossed slot reads (the same position where it reads none).
    """

    base: Int[Tensor, "task pair pos"]
    source: Int[Tensor, "task pair pos"]
    base_lengths: Int[Tensor, "task pair"]
    source_lengths: Int[Tensor, "task pair"]
    reads: Int[Tensor, "task pair pos"]
    answers: Float[Tensor, "task pair answer token"]

    @property
    def n_pairs(self) -> int:
        """Pairs per task."""
        return self.base.shape[1]


def tabulate(settings: Sequence[Setting], n: int, *, seed: int, device: torch.device) -> Tables:
    """`n` pairs for every setting."""
    width = max(setting.config.n_ctx for setting in settings)
    n_slots = max(len(setting.slots) for setting in settings)
    parts = [_tabulate(setting, n, width=width, n_slots=n_slots, seed=seed, device=device) for setting in settings]
    return Tables(*(torch.stack(column) for column in zip(*parts, strict=True)))


def _tabulate(
    setting: Setting, n: int, *, width: int, n_slots: int, seed: int, device: torch.device
) -> tuple[Tensor, ...]:
    program = setting.program
    pairs = draw_pairs(setting.draw, n, seed=seed, device=device)
    missing, pad = width - setting.config.n_ctx, setting.config.pad_token
    base, source = (
        F.pad(model_tokens(program, codes), (0, missing), value=pad).short() for codes in (pairs.base, pairs.source)
    )
    positions = torch.arange(width, device=device).expand(n, -1)
    crossed = F.pad(pairs.crossed, (1, missing), value=-1)
    reads = torch.where(crossed >= 0, crossed + 1, positions).short()
    answers = targets(program, pairs, setting.slots)
    answers = F.pad(answers, (0, missing, 0, n_slots - len(setting.slots)))
    return base, source, pairs.base_lengths, pairs.source_lengths, reads, answers


NUMERICAL_WEIGHT = 20.0
ALL_OTHERS, ONE_OTHER = 0.3, 0.6  # cumulative shares of the strict rows; the rest replaces each with probability 1/2
SOURCE, MEAN, ZERO = 0, 1, 2
ZEROED, ZEROED_OR_MEAN = 0.2, 0.4  # cumulative shares of the strict rows
INERT_WEIGHT = 0.1  # how often an interchange without effect is drawn, compared with others
_MIN_ERROR = 0.01


class TrainingRows(NamedTuple):
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


def draw_rows(stack: Stack, tables: Tables, curriculum: Curriculum, batch: int, generator: Generator) -> TrainingRows:
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
    return TrainingRows(
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
    stack: Stack,
    curriculum: Curriculum,
    weights: Weights,
    parameters: Float[Tensor, "copy parameter"],
    rows: TrainingRows,
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


def _patch(rows: TrainingRows, source: Nodes, curriculum: Curriculum) -> Patch:
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


def _read(x: Float[Tensor, "copy *feature pos row"], rows: TrainingRows, crossed: bool) -> Tensor:
    """Source values at the positions that each row reads."""
    if not crossed:
        return x
    reads = rows.reads.view(len(x), *[1] * (x.ndim - 3), *x.shape[-2:])
    return x.gather(-2, reads.expand_as(x))


def _strict_values(x: Float[Tensor, "copy *feature pos row"], rows: TrainingRows, counted: Tensor) -> Tensor:
    """Source values, their mean over real positions, or zeros, by the kind of each strict row."""
    lead = (len(x), *[1] * (x.ndim - 2))
    weight = counted.view(len(x), *[1] * (x.ndim - 3), *x.shape[-2:])
    mean = (x * weight).sum((-2, -1), keepdim=True) / counted.sum((1, 2)).view(len(x), *[1] * (x.ndim - 1))
    kind = rows.strict_kind.view(*lead, -1)
    return torch.where(kind == SOURCE, x, torch.where(kind == MEAN, mean, 0.0))


# The gate's metrics for every copy of a stack at once, by the stack's own run.


@dataclass(frozen=True)
class Metrics:
    """Per copy: the gate's metrics, and the interchange accuracy of every slot (1 where a copy has no such slot)."""

    iia: Float[Tensor, "copy slot"]
    accuracy: Float[Tensor, " copy"]
    iia_worst: Float[Tensor, " copy"]
    iia_changed_worst: Float[Tensor, " copy"]
    moved_worst: Float[Tensor, " copy"]
    strict_worst: Float[Tensor, " copy"]
    strict_all: Float[Tensor, " copy"]
    mean_ablated: Float[Tensor, " copy"]
    zero_ablated: Float[Tensor, " copy"]

    def of(self, copy: int) -> dict[str, float]:
        """The metrics of one copy, by the names of the gate's thresholds."""
        return {name: float(getattr(self, name)[copy]) for name in self.__dataclass_fields__ if name != "iia"}


@torch.no_grad()
def evaluate(stack: Stack, tables: Tables, curriculum: Curriculum) -> Metrics:
    """Score every copy on all pairs of its task."""
    runs = _StackRuns(stack, tables)
    base = runs.answers(0)
    accuracy = runs.share(runs.correct(None, base))
    n_slots = curriculum.present.shape[1]
    iia = torch.ones(len(stack), n_slots, device=stack.device)
    changed = torch.ones_like(iia)
    for slot in range(n_slots):
        answers = runs.answers(1 + slot)
        crossed = curriculum.crossed[:, slot]
        correct = runs.correct(runs.interchange(curriculum.slot_nodes[:, slot], crossed), answers)
        present = curriculum.present[:, slot]
        iia[present, slot] = runs.share(correct)[present]
        changed[present, slot] = runs.share(correct, where=runs.differ(answers, base))[present]
    aligned = curriculum.present & ~curriculum.inert & ~curriculum.crossed
    strict = torch.ones(len(stack), stack.n_nodes, device=stack.device)
    for node in range(stack.n_nodes):
        alone = torch.zeros_like(curriculum.others)
        alone[:, node] = curriculum.others[:, node]
        strict[:, node] = runs.share(runs.correct(runs.interchange(alone), base))
    return Metrics(
        iia,
        accuracy,
        iia.where(aligned, 1.0).amin(1),
        changed.where(aligned, 1.0).amin(1),
        changed.where(curriculum.crossed, 1.0).amin(1),
        strict.where(curriculum.others, 1.0).amin(1),
        runs.share(runs.correct(runs.interchange(curriculum.others), base)),
        runs.share(runs.correct(runs.ablation(curriculum.others, mean=True), base)),
        runs.share(runs.correct(runs.ablation(curriculum.others, mean=False), base)),
    )


class _StackRuns:
    """Runs of the stack on the pairs of every copy's task, with values from one run of the sources."""

    def __init__(self, stack: Stack, tables: Tables) -> None:
        self.stack, self.tables = stack, tables
        positions = torch.arange(tables.base.shape[2], device=stack.device)[:, None]
        self.base, self.source, reads = (
            x[stack.task].transpose(1, 2) for x in (tables.base, tables.source, tables.reads)
        )
        self.reads, self.same = reads.long(), positions.expand_as(reads)
        self.real, self.source_real = (
            positions <= lengths[stack.task][:, None] for lengths in (tables.base_lengths, tables.source_lengths)
        )
        _, self.values = stack.run(stack.weights, self.source, self.source_real)

    def answers(self, index: int) -> Float[Tensor, "copy token row"]:
        return self.tables.answers[:, :, index][self.stack.task].transpose(1, 2)

    def correct(self, patch: Patch | None, answers: Tensor) -> Bool[Tensor, "copy token row"]:
        """Which positions are answered correctly."""
        logits = self.stack.run(self.stack.weights, self.base, self.real, patch)[0][:, :, 1:]
        near = (logits[:, 0] - answers).abs() < NUMERICAL_TOLERANCE
        same = logits.argmax(1) == answers
        return torch.where(self.stack.numerical[:, None, None], near, same)

    def differ(self, answers: Tensor, base: Tensor) -> Bool[Tensor, "copy token row"]:
        far = (answers - base).abs() >= NUMERICAL_TOLERANCE
        return torch.where(self.stack.numerical[:, None, None], far, answers != base)

    def share(self, correct: Tensor, *, where: Tensor | None = None) -> Float[Tensor, " copy"]:
        """Share of counted positions; 1 where none is counted."""
        counted = self.real[:, 1:] if where is None else self.real[:, 1:] & where
        total = counted.sum((1, 2))
        return torch.where(total > 0, (correct & counted).sum((1, 2)) / total.clamp(min=1), 1.0)

    def interchange(self, nodes: Bool[Tensor, "copy node"], crossed: Bool[Tensor, " copy"] | None = None) -> Patch:
        values = self.values
        if crossed is not None and bool(crossed.any()):
            reads = torch.where(crossed[:, None, None], self.reads, self.same)
            z = tuple(x.gather(-2, reads[:, None, None].expand_as(x)) for x in values.z)
            values = Nodes(z, tuple(x.gather(-2, reads[:, None].expand_as(x)) for x in values.mlp))
        return Patch(nodes[:, :, None, None] & self.source_real[:, None], values)

    def ablation(self, nodes: Bool[Tensor, "copy node"], *, mean: bool) -> Patch:
        weight = self.source_real.float() / self.source_real.sum((1, 2), keepdim=True) * mean
        z = tuple((x * weight[:, None, None]).sum((-2, -1), keepdim=True).expand_as(x) for x in self.values.z)
        mlp = tuple((x * weight[:, None]).sum((-2, -1), keepdim=True).expand_as(x) for x in self.values.mlp)
        return Patch(nodes[:, :, None, None] & torch.ones_like(self.real)[:, None], Nodes(z, mlp))
