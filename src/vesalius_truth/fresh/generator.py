"""Fresh tasks with known circuits, for evaluation that no training set can have seen.

`generate` draws programs over made-up vocabularies, of the kinds asked for (`kinds.py`) in turn, and keeps one when
1. its circuit has as many components as its kind says (1 to 6 from the free grammar, where it must also hold the role
   wanted next: the five roles take turns),
2. it is not trivial: its output varies, is not the token itself, and every component's interchange changes outputs,
3. nothing kept so far behaves the same after renaming tokens and outputs; a shape not yet used is preferred.
The same seed gives the same tasks, and a longer list begins with the shorter one.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.errors import BadInput, Failed, choices
from vesalius.rasp.inputs import interchange_effects, random_inputs
from vesalius.rasp.program import Program, Role, compile_program, roles_of
from vesalius.rasp.text import render_spec
from vesalius.values import rounded
from vesalius_truth.fresh.kinds import KINDS, Drawn, TaskKind

MAX_DEPTH = 5
MAX_CELLS = 400  # of one table, so that a small model can learn it
_ATTEMPTS = 2_000
_ATTEMPTS_AT_NEW_SHAPE = 200  # a repeated shape with other tables is a second choice
_ATTEMPTS_OF_A_KIND = 20  # the same for kinds that have few shapes
_PROBE_ROWS = 20_000
_PROBE_LENGTH = 5


@dataclass(frozen=True)
class GeneratedTask:
    """A fresh program with its name and a sentence that says what it computes."""

    name: str
    description: str
    program: Program
    kind: str = "plain"

    @property
    def spec(self) -> str:
        """The text of a SPEC.py that defines the task."""
        return render_spec(self.program)

    def write(self, directory: str | Path) -> Path:
        """Write the task as `directory/name.py` and return the path."""
        path = Path(directory) / f"{self.name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.spec, encoding="utf-8")
        return path


def generate(seed: int, count: int, depth: int, kinds: Sequence[str] = ("plain",)) -> list[GeneratedTask]:
    """`count` fresh tasks of `kinds` in turn; `depth` (1 to 5) is the longest chain of operators of the plain ones."""
    if count < 1:
        raise BadInput(f"count={count} asks for no task; give at least 1")
    if not 1 <= depth <= MAX_DEPTH:
        raise BadInput(f"depth={depth} is out of range; give a number from 1 to {MAX_DEPTH}")
    if not kinds:
        raise BadInput(f"no kind of task is given; give one or more of {choices(KINDS)}")
    for name in kinds:
        if name not in KINDS:
            raise BadInput(f"kind {name!r} of task does not exist; give one or more of {choices(KINDS)}")
    tasks: list[GeneratedTask] = []
    behaviours: set[str] = set()
    shapes: set[str] = set()
    for number in range(count):
        kind = KINDS[kinds[number % len(kinds)]]
        task = _next_task(kind, seed, number, depth, behaviours=behaviours, shapes=shapes)
        if task is None:
            raise Failed(
                f"only {number} of {count} different tasks found for seed {seed} at depth {depth}; allow more depth"
                + ("" if kind.name == "plain" else f", or fewer tasks of kind {kind.name}")
            )
        tasks.append(task)
    return tasks


def _next_task(
    kind: TaskKind, seed: int, number: int, depth: int, *, behaviours: set[str], shapes: set[str]
) -> GeneratedTask | None:
    plain = kind.name == "plain"
    wanted = {list(Role)[number % len(Role)]} if plain else set(Role)
    patience = _ATTEMPTS_AT_NEW_SHAPE if plain else _ATTEMPTS_OF_A_KIND
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"{seed}/{number}/{attempt}" if plain else f"{kind.name}/{seed}/{number}/{attempt}")
        program = _compiled(kind.draw(rng, depth), name=f"generated_{seed}_{number:03d}")
        shape = _shape(program)
        if shape in shapes and attempt < patience:
            continue
        if not kind.fewest <= len(program.components) <= kind.most:
            continue
        if wanted.isdisjoint(roles_of(program).values()):
            continue
        if _largest_table(program) > MAX_CELLS or is_trivial(program, kind):
            continue
        behaviour = behaviour_signature(program)
        if behaviour not in behaviours:
            behaviours.add(behaviour)
            shapes.add(shape)
            return GeneratedTask(program.name, program.description, program, kind.name)
    return None


def _compiled(drawn: Drawn, *, name: str) -> Program:
    program = compile_program(drawn.output, drawn.vocab, drawn.max_len, causal=drawn.causal, name=name)
    program.description = drawn.sentence + (" None where that is undefined." if _shows_none(program) else "")
    return program


def _shows_none(program: Program) -> bool:
    """Whether plain runs give None; it can be a class of the output that only an interchange brings about."""
    if None not in program.outputs:
        return False
    output = program.run(*random_inputs(program, 64, seed=0, min_length=1)).output
    return bool((output == len(program.outputs) - 1).any())


def _shape(program: Program) -> str:
    """The program with its tables, vocabulary and lengths left out."""
    return "; ".join(
        f"{type(node).__name__}({', '.join(str(program.expressions.index(operand)) for operand in node.inputs)})"
        for node in program.expressions
    )


def _largest_table(program: Program) -> int:
    return max(table.size for table in (*program.tables.codes.values(), *program.tables.selected.values()))


def is_trivial(program: Program, kind: TaskKind = KINDS["plain"]) -> bool:
    """Whether the output is (nearly) constant or the token itself, or an interchange (nearly) never shows, as its kind
    has it.
    """
    tokens, lengths = random_inputs(program, 512, seed=0)
    output = program.run(tokens, lengths).output
    answers = output[tokens >= 0].mul(1_000).round() if program.numerical else output[tokens >= 0]
    counts = answers.unique(return_counts=True)[1]
    if counts.max() > kind.max_share * len(answers) or counts.min() > kind.rarest * len(answers):
        return True
    spoken = [list(row[:length]) for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    if program.decode(output, lengths) == [[rounded(program.vocab[code]) for code in row] for row in spoken]:
        return True
    return min(interchange_effects(program).values()) < kind.min_effect


def behaviour_signature(program: Program) -> str:
    """A digest that is the same for programs that behave the same after renaming tokens and outputs.

    All sequences of a length are a set that no renaming changes. Per sequence we keep which tokens are equal and which
    outputs are equal; over all sequences, how often each output value stands at each position. These survive renaming.
    """
    size = len(program.vocab)
    digest = hashlib.sha256(f"{size}/{program.numerical}".encode())
    for length in range(1, min(_PROBE_LENGTH, program.max_len) + 1):
        if size**length > _PROBE_ROWS:
            break
        tokens = torch.cartesian_prod(*[torch.arange(size)] * length).reshape(-1, length)
        output = program.run(tokens, torch.full((len(tokens),), length)).output
        codes = output.mul(1_000).round().long() if program.numerical else output
        patterns = torch.cat([_equality_pattern(tokens), _equality_pattern(codes)], dim=1)
        counted = torch.unique(patterns, dim=0, return_counts=True)
        digest.update(repr([part.tolist() for part in counted]).encode())
        digest.update(repr(_value_profile(codes)).encode())
    return digest.hexdigest()


def _equality_pattern(rows: Int[Tensor, "rows pos"]) -> Int[Tensor, "rows pos"]:
    """For each position the first position that holds the same value."""
    return (rows[:, :, None] == rows[:, None, :]).int().argmax(-1)


def _value_profile(codes: Int[Tensor, "rows pos"]) -> list[tuple[int, ...]]:
    """How often each value stands at each position, values unnamed."""
    columns = [Counter(column.tolist()) for column in codes.T]
    return sorted(tuple(column[value] for column in columns) for value in set().union(*columns))
