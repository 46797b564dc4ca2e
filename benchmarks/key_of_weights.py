"""Is the answer key true of the weights? Outputs moved between inputs, positions and lengths, with plain hooks.

    python -m benchmarks.key_of_weights --out benchmarks/results/key_of_weights.json
    python -m benchmarks.key_of_weights --specimens DIR    (a folder of what `vesalius train` made)

At the same position of two inputs the position is the same, so an output that carries it as well looks like one that
does not: a program says "7 - t" and "plus the position after it", the weights add the position already in the earlier
MLP, and every interchange of equal positions agrees with both. So each component's output is also moved: a base input
takes, at every position that the source has, the output that the source has at another one (a random order; lengths
of base and source are independent). Each answer is compared with two programs:

    as_the_key   the variables that the key names are moved, and whatever reads a position reads that of the base
    old_place    the same, but what the moved variables go into reads the position that they came from

Of the answers that the move changes, by the word of either program, `moved` is the share that are the first program's.
Of those where the two programs differ, `old_place` is the share that are the second's. `between_inputs` is the share of
changed answers that are the program's when outputs stay at their position. A component *stands for* the key's value
where `moved` is at least 0.9; else for that value *and the place where it was computed* where `old_place` is; else for
*something else*.

Nothing of the intervention engine is used: a hook on the model replaces the output. The order of positions, the inputs
and the seed are not those of training, of the gate or of `vesalius_truth.grading.key_check`.
"""

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.circuits.specimens import KEY_FOLDER, SPECIMEN_FILE, Inputs, benchmark_root, draw_inputs, load_specimen
from vesalius.components import Component
from vesalius.files import write_json
from vesalius.model.hooks import Hook
from vesalius.model.states import WEIGHTS_FILE
from vesalius.model.transformer import Transformer
from vesalius.rasp import Program
from vesalius.rasp.inputs import outputs_differ, random_inputs
from vesalius.rasp.interpreter import Linear, LookPair, LookUp
from vesalius_truth.key import all_tasks
from vesalius_truth.making import key_program
from vesalius_truth.training.setting import model_tokens

SEED, PAIRS, LONG_PAIRS, LONG = 515_151, 600, 100, 30
STANDS_FOR = 0.9
#: Fewer changed answers than this say nothing.
FEWEST = 24

KEYS_VALUE = "the key's value"
WITH_PLACE = "the key's value and the place where it was computed"
ELSE = "something else"
UNSEEN = "nothing that a move shows"

#: `draw(n, seed)` gives token codes [n, max_len] padded with -1, and the lengths.
Draw = Callable[[int, int], tuple[Int[Tensor, "n pos"], Int[Tensor, " n"]]]


@dataclass(frozen=True)
class Keyed:
    """A model with its key: the program, and where in the model its components are; `digest` names its weights."""

    name: str
    digest: str
    model: Transformer
    program: Program
    circuit: tuple[Component, ...]
    draw: Draw


@dataclass(frozen=True)
class Moves:
    """Base and source inputs, and the source position that each base position reads (-1: none)."""

    base: Int[Tensor, "row pos"]
    base_lengths: Int[Tensor, " row"]
    source: Int[Tensor, "row pos"]
    source_lengths: Int[Tensor, " row"]
    reads: Int[Tensor, "row pos"]

    @property
    def aligned(self) -> "Moves":
        """The same inputs, read at the same position."""
        places = torch.arange(self.base.shape[1]).expand_as(self.base)
        reads = torch.where(self.reads >= 0, places, -1)
        return Moves(self.base, self.base_lengths, self.source, self.source_lengths, reads)


def draw_moves(draw: Draw, n: int, *, seed: int = SEED) -> Moves:
    """`n` pairs of inputs; every source's positions in a random order that leaves as few as possible where they are."""
    base, base_lengths = draw(n, 2 * seed)
    source, source_lengths = draw(n, 2 * seed + 1)
    generator = torch.Generator().manual_seed(seed)
    reads = torch.full_like(base, -1)
    for row, length in enumerate(source_lengths.tolist()):
        order = torch.randperm(length, generator=generator)
        reads[row, order] = order.roll(1)  # a cycle through all positions: none keeps its own
    return Moves(base, base_lengths, source, source_lengths, reads)


def check(keyed: Keyed, n: int, *, seed: int = SEED) -> dict[str, dict[str, Any]]:
    """The figures of every component of one circuit."""
    moves = draw_moves(keyed.draw, n, seed=seed)
    return {str(part): _figures(keyed, column, moves) for column, part in enumerate(keyed.circuit)}


def _figures(keyed: Keyed, column: int, moves: Moves) -> dict[str, Any]:
    program, component = keyed.program, keyed.circuit[column]
    real = moves.base >= 0
    plain = program.run(moves.base, moves.base_lengths).output
    key, old = (predicted(program, column, moves, old_place=old_place) for old_place in (False, True))
    answers = answers_after(keyed, component, moves)
    changed = (outputs_differ(program, key, plain) | outputs_differ(program, old, plain)) & real
    apart = outputs_differ(program, key, old) & real
    same = predicted(program, column, moves.aligned, old_place=False)
    figures = {
        "moved": _share(program, answers, key, changed),
        "n_moved": int(changed.sum()),
        "old_place": _share(program, answers, old, apart),
        "n_apart": int(apart.sum()),
        "between_inputs": _share(
            program,
            answers_after(keyed, component, moves.aligned),
            same,
            outputs_differ(program, same, plain) & real,
        ),
    }
    return figures | {"stands_for": stands_for(figures)}


def stands_for(figures: Mapping[str, Any]) -> str:
    """What a component's output is, by its figures."""
    if figures["n_moved"] < FEWEST:
        return UNSEEN
    if figures["moved"] >= STANDS_FOR:
        return KEYS_VALUE
    return WITH_PLACE if figures["n_apart"] >= FEWEST and figures["old_place"] >= STANDS_FOR else ELSE


def _share(program: Program, answers: Tensor, expected: Tensor, where: Bool[Tensor, "row pos"]) -> float | None:
    right = ~outputs_differ(program, answers, expected.float())
    return round(float(right[where].float().mean()), 4) if bool(where.any()) else None


def answers_after(keyed: Keyed, component: Component, moves: Moves) -> Float[Tensor, "row pos"]:
    """The model's answers on the bases with one component's output replaced at BOS and where a position reads one."""
    model, program = keyed.model, keyed.program
    head = component.head
    name = f"blocks.{component.layer}." + ("hook_mlp_out" if head is None else "attn.hook_z")
    with torch.no_grad():
        _, cache = model.run_with_cache(model_tokens(program, moves.source), names=name)
        # BOS comes along: a key says nothing of it, but heads may read a value there, and it belongs to the output.
        given = torch.nn.functional.pad(moves.reads >= 0, (1, 0), value=True)
        reads = torch.nn.functional.pad(moves.reads.clamp(min=0) + 1, (1, 0))
        rows = torch.arange(len(reads))[:, None]

        def replace(value: Tensor, _: object) -> Tensor:
            new = value.clone()
            mine = (slice(None), slice(None)) if head is None else (slice(None), slice(None), head)
            new[mine] = torch.where(given[..., None], cache[name][mine][rows, reads], value[mine])
            return new

        hooks: list[Hook] = [(name, replace)]
        logits = model.run_with_hooks(model_tokens(program, moves.base), fwd_hooks=hooks)[:, 1:]
    return logits[..., 0] if program.numerical else logits.argmax(-1).float()


def predicted(program: Program, column: int, moves: Moves, *, old_place: bool) -> Tensor:
    """The program's output on the bases when one of its components takes what it has elsewhere in the sources.

    With `old_place`, everything that is computed from it at one position, without attention, reads the position that it
    came from.
    """
    written = set(program.components[column].variables)
    source = program.run(moves.source, moves.source_lengths).values
    positions = torch.arange(moves.base.shape[1])
    real = positions < moves.base_lengths[:, None]
    attendable = real[:, None, :].expand(-1, len(positions), -1)
    if program.causal:
        attendable = attendable & (positions[None, :] <= positions[:, None])
    given, reads = moves.reads >= 0, moves.reads.clamp(min=0)
    here = positions.expand_as(moves.base)
    values: dict[str, Tensor] = {"tokens": moves.base.clamp(min=0), "indices": here}
    carries = set(written)  # what is computed from the moved output at its own position
    for step in program.steps_on(torch.device("cpu")):
        pointwise = isinstance(step, LookUp | LookPair | Linear)
        read = dict(values)
        if old_place and pointwise and carries.intersection(step.reads):
            read["indices"] = torch.where(given, reads, here)
        value = step(read, attendable)
        if step.name in written:
            value = torch.where(given, source[step.name].gather(1, reads), value)
        elif pointwise and carries.intersection(step.reads):
            carries.add(step.name)
        values[step.name] = value
    return values[program.name_of(program.output)]


def of_the_benchmark(only: Sequence[str]) -> Iterator[Keyed]:
    """The shipped circuits with their keys."""
    for task in all_tasks():
        if only and task.id not in only:
            continue
        specimen = load_specimen(benchmark_root() / task.id)
        circuit = tuple(task.locate(placed.component) for placed in task.program().components)
        yield Keyed(
            task.id,
            digest(benchmark_root() / task.id),
            specimen.model,
            task.program(),
            circuit,
            _drawing(task.inputs, specimen.vocabulary.min_len),
        )


def of_directory(directory: Path, only: Sequence[str]) -> Iterator[Keyed]:
    """Trained specimens with the programs that they were trained on."""
    for path in sorted(path.parent for path in directory.glob(f"*/{SPECIMEN_FILE}")):
        if (only and path.name not in only) or not (path / KEY_FOLDER).is_dir():
            continue
        specimen, program = load_specimen(path), key_program(path)
        shortest = specimen.vocabulary.min_len
        yield Keyed(
            path.name,
            digest(path),
            specimen.model,
            program,
            tuple(placed.component for placed in program.components),
            lambda n, seed, program=program, shortest=shortest: random_inputs(
                program, n, seed=seed, min_length=shortest
            ),
        )


def digest(directory: Path) -> str:
    """The first digits of the SHA-256 of a specimen's weights."""
    return hashlib.sha256((directory / WEIGHTS_FILE).read_bytes()).hexdigest()[:12]


def _drawing(inputs: Inputs, shortest: int) -> Draw:
    return lambda n, seed: draw_inputs(inputs, n, seed=seed, min_length=shortest)


def document(
    circuits: Mapping[str, Mapping[str, Mapping[str, Any]]], weights: str, digests: Mapping[str, str]
) -> dict[str, Any]:
    """The result: counts, and the figures of every component."""
    parts = [figures for of in circuits.values() for figures in of.values()]
    fails = [
        f"{name} {component}: {figures['stands_for']}"
        for name, of in circuits.items()
        for component, figures in of.items()
        if figures["stands_for"] in (WITH_PLACE, ELSE)
    ]
    return {
        "weights": weights,
        "digests": dict(digests),
        "seed": SEED,
        "pairs": PAIRS,
        "long_pairs": LONG_PAIRS,
        "components": len(parts),
        "stands_for": dict(Counter(figures["stands_for"] for figures in parts).most_common()),
        "not_as_the_key_says": fails,
        "circuits": circuits,
    }


def main() -> None:
    """Check every circuit and write one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--specimens", type=Path, help="a folder of trained specimens instead of the 84 circuits")
    parser.add_argument("--only", nargs="+", default=[], help="ids or folder names")
    parser.add_argument("--weights", default="as shipped", help="the name of this version of the weights")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    circuits, digests = {}, {}
    found = of_directory(given.specimens, given.only) if given.specimens else of_the_benchmark(given.only)
    for keyed in found:
        digests[keyed.name] = keyed.digest
        circuits[keyed.name] = check(keyed, LONG_PAIRS if keyed.program.max_len >= LONG else PAIRS)
        for component, figures in circuits[keyed.name].items():
            print(keyed.name, component, figures["stands_for"], file=sys.stderr, flush=True)
    write_json(given.out, document(circuits, given.weights, digests))


if __name__ == "__main__":
    main()
