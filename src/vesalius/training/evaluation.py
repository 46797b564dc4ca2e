"""The gate's metrics for every copy of a stack at once, by the stack's own run.

They control training (which interchange is still weak, when to stop) and rank the copies. They do not accept a model:
`gate.measure` does, on the finished transformer and with the intervention engine.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.rasp.effects import NUMERICAL_TOLERANCE
from vesalius.training.siit import Curriculum
from vesalius.training.stack import Nodes, Patch, Stack
from vesalius.training.tables import Tables


@dataclass(frozen=True)
class Metrics:
    """Per copy: the gate's metrics, and the interchange accuracy of every slot (1 where a copy has no such slot)."""

    iia: Float[Tensor, "copy slot"]
    accuracy: Float[Tensor, " copy"]
    iia_worst: Float[Tensor, " copy"]
    iia_changed_worst: Float[Tensor, " copy"]
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
    counts = curriculum.present & ~curriculum.inert
    strict = torch.ones(len(stack), stack.n_nodes, device=stack.device)
    for node in range(stack.n_nodes):
        alone = torch.zeros_like(curriculum.others)
        alone[:, node] = curriculum.others[:, node]
        strict[:, node] = runs.share(runs.correct(runs.interchange(alone), base))
    return Metrics(
        iia,
        accuracy,
        iia.where(counts, 1.0).amin(1),
        changed.where(counts, 1.0).amin(1),
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
