"""The interpreter against an independent slow reading of the language, on arbitrary programs and inputs."""

import random

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.rasp.random_programs import random_program, random_sequence
from tests.rasp.twin import Reading, interchange
from vesalius.errors import BadInput
from vesalius.rasp import SelectorWidth, Variable
from vesalius.rasp.placement import head_name

SEEDS = st.integers(0, 2**32)


def compiled(seed):
    try:
        return random_program(seed)
    except BadInput as error:
        assume("undefined for every value" not in str(error))
        raise


def spoken(program, node, codes, lengths):
    """Trace codes of a variable as lists of Python values."""
    if node.numerical:
        return [row[:n] for row, n in zip(codes.tolist(), lengths.tolist(), strict=True)]
    listed = (*program.tables.domains[node].values, None)
    return [[listed[c] for c in row[:n]] for row, n in zip(codes.tolist(), lengths.tolist(), strict=True)]


def agree(node, ours, theirs):
    return ours == pytest.approx(theirs, abs=1e-5) if node.numerical else ours == theirs


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_every_variable_of_a_run_equals_the_twin(seed):
    program = compiled(seed)
    rng = random.Random(seed)
    sequences = [random_sequence(rng, program) for _ in range(5)]
    trace = program.run(*program.encode(sequences))
    readings = [Reading(s, program.vocab, program.max_len, program.causal) for s in sequences]
    for node in program.expressions:
        if not isinstance(node, Variable):
            continue
        name = program.name_of(node)
        for ours, reading in zip(spoken(program, node, trace.values[name], trace.lengths), readings, strict=True):
            assert agree(node, ours, reading.of(node)), (name, reading.sequence)
        if isinstance(node, SelectorWidth):
            heads = spoken(program, node, trace.values[head_name(name)], trace.lengths)
            assert heads == [reading.of(node, "head") for reading in readings]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(SEEDS, st.booleans())
def test_interchange_equals_the_twin_row_by_row(seed, across_positions):
    program = compiled(seed)
    rng = random.Random(seed)
    rows = 6
    bases, sources = ([random_sequence(rng, program) for _ in range(rows)] for _ in range(2))
    patched = torch.tensor([[rng.random() < 0.4 for _ in program.components] for _ in range(rows)])
    base, source = program.encode(bases), program.encode(sources)
    width = base[0].shape[1]
    positions = [[rng.randint(-1, program.max_len - 1) for _ in range(width)] for _ in range(rows)]
    output = program.interchange(
        base, program.run(*source), patched, positions=torch.tensor(positions) if across_positions else None
    )
    for row, ours in enumerate(spoken(program, program.output, output, base[1])):
        chosen = patched[row].nonzero().flatten().tolist()
        mapping = positions[row][: len(bases[row])] if across_positions else None
        theirs = interchange(program, bases[row], sources[row], chosen, mapping)
        assert agree(program.output, ours, theirs), (bases[row], sources[row], chosen)
        if not program.numerical:
            assert set(ours) <= set(program.outputs), "an interchange gave a value outside the output list"
