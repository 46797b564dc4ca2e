"""Fresh tasks with known circuits, for evaluation that no training set can have seen.

`generate` draws programs from the grammar over made-up vocabularies and keeps one when
1. its circuit has 1 to 6 components and holds the role wanted next (the five roles take turns),
2. it is not trivial: its output varies, is not the token itself, and every component's interchange changes outputs,
3. nothing kept so far behaves the same after renaming tokens and outputs; a shape not yet used is preferred.
The same seed gives the same tasks, and a longer list begins with the shorter one.
"""

import hashlib
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.errors import BadInput, Failed
from vesalius.rasp.effects import interchange_effects
from vesalius.rasp.grammar import Grammar, Kind, pseudo_words
from vesalius.rasp.program import Program, compile_program
from vesalius.rasp.roles import Role, roles_of
from vesalius.rasp.sampling import random_inputs
from vesalius.rasp.spec import render_spec
from vesalius.values import rounded

MAX_DEPTH = 5
MAX_COMPONENTS = 6
MAX_CELLS = 400  # of one table, so that a small model can learn it
MIN_EFFECT = 0.02  # share of outputs that an interchange of each component must change
MAX_SHARE = 0.95  # of the most frequent output
_ATTEMPTS = 2_000
_ATTEMPTS_AT_NEW_SHAPE = 200  # a repeated shape with other tables is a second choice
_PROBE_ROWS = 20_000
_PROBE_LENGTH = 5


@dataclass(frozen=True)
class GeneratedTask:
    """A fresh program with its name and a sentence that says what it computes."""

    name: str
    description: str
    program: Program

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


def generate(seed: int, count: int, depth: int) -> list[GeneratedTask]:
    """`count` fresh tasks whose longest chain of operators is at most `depth` (1 to 5)."""
    if count < 1:
        raise BadInput(f"count={count} asks for no task; give at least 1")
    if not 1 <= depth <= MAX_DEPTH:
        raise BadInput(f"depth={depth} is out of range; give a number from 1 to {MAX_DEPTH}")
    tasks: list[GeneratedTask] = []
    behaviours: set[str] = set()
    shapes: set[str] = set()
    for number in range(count):
        task = _next_task(seed, number, depth, behaviours=behaviours, shapes=shapes)
        if task is None:
            raise Failed(
                f"only {number} of {count} different tasks found for seed {seed} at depth {depth}; allow more depth"
            )
        tasks.append(task)
    return tasks


def _next_task(seed: int, number: int, depth: int, *, behaviours: set[str], shapes: set[str]) -> GeneratedTask | None:
    wanted = list(Role)[number % len(Role)]
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"{seed}/{number}/{attempt}")
        program = _draw(rng, depth, name=f"generated_{seed}_{number:03d}")
        shape = _shape(program)
        if shape in shapes and attempt < _ATTEMPTS_AT_NEW_SHAPE:
            continue
        if not 1 <= len(program.components) <= MAX_COMPONENTS or wanted not in roles_of(program).values():
            continue
        if _largest_table(program) > MAX_CELLS or is_trivial(program):
            continue
        behaviour = behaviour_signature(program)
        if behaviour not in behaviours:
            behaviours.add(behaviour)
            shapes.add(shape)
            return GeneratedTask(program.name, program.description, program)
    return None


def _draw(rng: random.Random, depth: int, *, name: str) -> Program:
    size, max_len, causal = rng.randint(3, 8), rng.randint(5, 9), rng.random() < 0.5
    vocab = pseudo_words(rng, size) if rng.random() < 0.6 else sorted(rng.sample(range(1, 100), size))
    grammar = Grammar(rng, vocab, max_len=max_len, causal=causal)
    this_depth = rng.randint(1, depth)
    kinds: list[Kind] = ["word", "flag", "count"]
    if this_depth > 1:
        kinds.append("number")
    kind = rng.choice(kinds)
    part = grammar.grow(kind, this_depth)
    program = compile_program(part.variable, vocab, max_len, causal=causal, name=name)
    program.description = grammar.sentence(kind, part) + (
        " None where that is undefined." if _shows_none(program) else ""
    )
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


def is_trivial(program: Program, *, seed: int = 0) -> bool:
    """Whether the output is (nearly) constant or the token itself, or an interchange (nearly) never shows."""
    tokens, lengths = random_inputs(program, 512, seed=seed)
    output = program.run(tokens, lengths).output
    answers = output[tokens >= 0].mul(1_000).round() if program.numerical else output[tokens >= 0]
    if answers.unique(return_counts=True)[1].max() > MAX_SHARE * len(answers):
        return True
    spoken = [list(row[:length]) for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    if program.decode(output, lengths) == [[rounded(program.vocab[code]) for code in row] for row in spoken]:
        return True
    return min(interchange_effects(program, seed=seed).values()) < MIN_EFFECT


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
