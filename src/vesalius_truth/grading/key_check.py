"""The answer key counted (at the end), and its notes against the trained weights: where heads attend, and what moves
with an output.

    python -m vesalius_truth.grading.key_check > src/vesalius_truth/key/in_model.json

For every head: the share of its attention on tokens that falls on those its selector selects (`on_selected`, beside
what even attention would give, `by_chance`), how far the attention among the selected ones is from even (`uneven`,
total variation), and the attention on the start token (`start`). For every component: the share of changed answers that
are the program's when its output is moved to another position (`moved`, of `n_moved`).
"""

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.circuits.specimens import benchmark_root, draw_inputs, load_specimen
from vesalius.components import Component
from vesalius.intervene import Batch, Plan, Readout, Recordings, Values, activations, run
from vesalius.model.transformer import Transformer
from vesalius.rasp import Program
from vesalius.rasp.inputs import outputs_differ
from vesalius.rasp.language import Aggregate, SelectorWidth
from vesalius.rasp.placement import Placed
from vesalius.rasp.program import ProgramTrace
from vesalius_truth.key import Task, all_tasks, answer
from vesalius_truth.training.setting import Pairs, draw_pairs, model_tokens

SEED = 424_243
#: Inputs whose attention is averaged, and pairs of inputs between which outputs are moved; fewer where they are long.
INPUTS, LONG_INPUTS, LONG = 600, 100, 30


def check_circuit(task: Task) -> dict[str, dict[str, Any]]:
    """The figures of every component of one circuit."""
    specimen, program = load_specimen(benchmark_root() / task.id), task.program()
    n = LONG_INPUTS if task.max_len >= LONG else INPUTS
    shortest = specimen.vocabulary.min_len

    def draw(count: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
        return draw_inputs(task.inputs, count, seed=seed, min_length=shortest, device=device)

    pairs = draw_pairs(draw, n, seed=SEED, device=torch.device("cpu"))
    trace = program.run(pairs.base, pairs.base_lengths)
    place = {variable: component for component, variables in task.components for variable in variables}
    figures: dict[str, dict[str, Any]] = {}
    with torch.no_grad():
        _, cache = specimen.model.run_with_cache(model_tokens(program, pairs.base))
        moved = _Moved(specimen.model, program, pairs)
        for column, placed in enumerate(program.components):
            component = place[placed.variables[0]]
            figures[str(component)] = moved.figures(column, component)
            if placed.kind == "head":
                pattern = cache[f"blocks.{component.layer}.attn.hook_pattern"][:, component.head]
                figures[str(component)] |= attention_figures(program, placed, trace, pattern)
    return figures


def attention_figures(
    program: Program, placed: Placed, trace: ProgramTrace, pattern: Float[Tensor, "row query key"]
) -> dict[str, float | None]:
    """Where a head attends, against what its selector selects; the first key is the start token."""
    node = placed.expressions[0]
    assert isinstance(node, Aggregate | SelectorWidth)
    real = trace.tokens >= 0
    visible = (real[:, None, :] & real[:, :, None]).clone()
    if program.causal:
        visible &= torch.ones(visible.shape[1:], dtype=torch.bool).tril()
    selected = _selected(program, node, trace) & visible
    start, on_tokens = pattern[:, 1:, 0], pattern[:, 1:, 1:]
    chosen = on_tokens * selected
    count, in_view = selected.sum(-1), visible.sum(-1)
    some = real & (count > 0) & (count < in_view)
    share = chosen.sum(-1) / on_tokens.sum(-1).clamp(min=1e-9)
    even = selected / count.clamp(min=1)[..., None]
    apart = (chosen / chosen.sum(-1, keepdim=True).clamp(min=1e-9) - even).abs().sum(-1) / 2
    return {
        "on_selected": _mean(share, some),
        "by_chance": _mean(count / in_view.clamp(min=1), some),
        "uneven": _mean(apart, real & (count > 1)),
        "start": _mean(start, real),
    }


def _selected(program: Program, node: Aggregate | SelectorWidth, trace: ProgramTrace) -> Bool[Tensor, "row query key"]:
    table = torch.from_numpy(program.tables.selected[node.selector])
    keys, queries = (
        trace.values[program.name_of(variable)].clamp(min=0) for variable in (node.selector.keys, node.selector.queries)
    )
    return table[keys[:, None, :], queries[:, :, None]]


def _mean(values: Tensor, where: Tensor) -> float | None:
    return round(float(values[where].mean()), 4) if bool(where.any()) else None


class _Moved:
    """Outputs moved to other positions, in the model and in the program."""

    def __init__(self, model: Transformer, program: Program, pairs: Pairs) -> None:
        self.model, self.program, self.pairs = model, program, pairs
        base, source = (Batch(model_tokens(program, codes)) for codes in (pairs.base, pairs.source))
        self.recordings = Recordings(model, base, Readout(self._answers))
        positions = torch.arange(base.tokens.shape[1])
        self.in_source = positions <= pairs.source_lengths[:, None]
        crossed = torch.nn.functional.pad(pairs.crossed, (1, 0), value=-1)
        reads = torch.where(crossed >= 0, crossed + 1, positions)
        row, values = torch.arange(len(pairs))[:, None], activations(model, source)
        self.values = Values(
            tuple(z[row, reads] for z in values.z), tuple(m[row, reads] for m in values.mlp), values.embed[row, reads]
        )
        self.base_run, self.source_run = (
            program.run(codes, lengths)
            for codes, lengths in ((pairs.base, pairs.base_lengths), (pairs.source, pairs.source_lengths))
        )

    def _answers(self, logits: Float[Tensor, "row pos out"], prompt: Tensor) -> Float[Tensor, "row token"]:
        return logits[:, 1:, 0] if self.program.numerical else logits[:, 1:].argmax(-1).float()

    def figures(self, column: int, component: Component) -> dict[str, Any]:
        """How often the model's answers, after a move of this component, are the program's."""
        n = len(self.pairs)
        plan = Plan.grid(self.model.config, [[component]], choices=torch.arange(n), positions=self.in_source)
        outputs = run(self.recordings, plan, self.values)
        patched = torch.zeros(n, len(self.program.components), dtype=torch.bool)
        patched[:, column] = True
        predicted = self.program.interchange(
            self.base_run, self.source_run, patched, positions=self.pairs.crossed
        ).float()
        base = self.base_run.output.float()
        changed = outputs_differ(self.program, predicted, base) & self.pairs.real
        right = ~outputs_differ(self.program, outputs, predicted)
        return {"moved": _mean(right.float(), changed), "n_moved": int(changed.sum())}


def main() -> None:
    """Print the figures of all circuits as one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[])
    args = parser.parse_args()
    torch.set_num_threads(1)
    circuits: dict[str, dict[str, dict[str, Any]]] = {}
    for task in all_tasks():
        if not args.only or task.id in args.only:
            circuits[task.id] = check_circuit(task)
            print(task.id, file=sys.stderr, flush=True)
    print(json.dumps({"seed": SEED, "inputs": INPUTS, "long_inputs": LONG_INPUTS, "circuits": circuits}, indent=1))


# What the answer key of the 84 circuits consists of, counted: circuits, components and tags.


@dataclass(frozen=True)
class TagStatistics:
    """The components of one tag: how many, on which kinds of component, and from which RASP expressions."""

    count: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    expressions: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class KeyStatistics:
    """Components per circuit, in the order of ids, and the components of each tag."""

    sizes: tuple[int, ...]
    heads: int
    tags: dict[str, TagStatistics]

    @property
    def components(self) -> int:
        """The components of all circuits."""
        return sum(self.sizes)


def key_statistics() -> KeyStatistics:
    """Count what the key has."""
    sizes, heads = [], 0
    counts: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {}
    expressions: dict[str, Counter[str]] = {}
    for task in all_tasks():
        tags = {part.id: str(part.tag) for part in answer(task.id).components}
        place = {variable: str(component) for component, variables in task.components for variable in variables}
        sizes.append(len(tags))
        for component, tag in tags.items():
            is_head = Component.parse(component).is_head
            heads += is_head
            counts[tag] += 1
            kinds.setdefault(tag, Counter())["ATTN" if is_head else "MLP"] += 1
        for placed in task.program().components:
            tag = tags[place[placed.variables[0]]]
            expressions.setdefault(tag, Counter()).update(type(node).__name__ for node in placed.expressions)
    by_tag = {tag: TagStatistics(count, kinds[tag], expressions[tag]) for tag, count in counts.most_common()}
    return KeyStatistics(tuple(sizes), heads, by_tag)


if __name__ == "__main__":
    main()
