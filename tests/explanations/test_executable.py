"""The scientist's program and its translation into RASP say the same, on natural inputs and under every exchange."""

import json
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vesalius as ves
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.model.specimen import FiniteVocabulary
from vesalius.rasp.document import from_document
from vesalius_programs.draft import COMPARE
from vesalius_programs.gathering import (
    ROUTES,
    Copy,
    Gated,
    Gathered,
    Mean,
    Selector,
    Width,
    extreme,
    matched,
)
from vesalius_programs.investigate import assemble, explain_components
from vesalius_programs.program import (
    INDICES,
    TOKENS,
    CircuitProgram,
    Constant,
    Linear,
    OutputMap,
    StraightLine,
    Table,
    scale_of,
)
from vesalius_programs.runs import CircuitRuns, Sequences, draw_sequences, exchange_pairings
from vesalius_programs.translation import translate

FAMILIES = (
    "table",
    "table",
    "width",
    "mean",
    "copy",
    "steered",
    "matched",
    "gated",
    "extreme",
    "gathered",
    "linear",
    "constant",
)
VOCABULARIES = (("a", "b", "c"), (3, 1, 2, 7), ("z", "nothing", "a"), (0.5, 2, 1))
COMPONENTS = tuple(Component(layer, head) for layer in range(3) for head in (0, 1, None))


def inputs_for(vocabulary: FiniteVocabulary, n: int, seed: int) -> Sequences:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, vocabulary.max_len + 1, (n, 1), generator=generator)
    codes = torch.randint(len(vocabulary.tokens), (n, vocabulary.max_len), generator=generator)
    return Sequences(codes.masked_fill(torch.arange(vocabulary.max_len) >= lengths, -1))


class RandomProgram:
    """A scientist's program of random families; tables have holes, and undefined values go into them like others."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        max_len, outputs = self.rng.randint(1, 5), self.rng.choice([None, ("u", None, 2), (True, False)])
        self.vocabulary = FiniteVocabulary(self.rng.choice(VOCABULARIES), outputs, max_len)
        self.inputs = inputs_for(self.vocabulary, 40, seed)
        causal, numeric = self.rng.random() < 0.5, outputs is None
        self.names, self.shares = [TOKENS], []
        self.program = CircuitProgram({}, None, causal, numeric)
        for component in sorted(self.rng.sample(COMPONENTS, self.rng.randint(1, 4))):
            self.program.variables[component] = self.variable(self.rng.choice(FAMILIES), str(component))
        self.program = CircuitProgram(self.program.variables, self.output(), causal, numeric)

    def variable(self, family: str, name: str):
        rng, of, other = self.rng, self.rng.choice(self.names), self.rng.choice([*self.names, INDICES])
        if family == "linear" and self.shares:
            reads = tuple(rng.sample(self.shares, min(len(self.shares), rng.randint(1, 2))))
            made = Linear(reads, tuple(rng.choice([1.0, -0.5, 0.3]) for _ in reads), rng.choice([0.0, 0.25]))
        else:
            made = {
                "table": lambda: self.table(),
                "width": lambda: Width(self.selector(of, other)),
                "mean": lambda: self.mean(of),
                "copy": lambda: Copy(of, rng.choice(self.routes())),
                "steered": lambda: self.steered(of),
                "matched": lambda: matched(of, other, rng.choice([*self.names, INDICES])),
                "gated": lambda: Gated(of, other, self.code(other)),
                "extreme": lambda: extreme(of, largest=rng.random() < 0.5),
                "gathered": lambda: self.gathered(of, other),
                "linear": lambda: self.mean(of),
                "constant": lambda: Constant(),
            }[family]()
        if made.family != "nothing":
            self.names.append(name)
        if made.family in ("mean", "linear"):
            self.shares.append(name)
        return made

    def routes(self) -> list[str]:
        return [route for route in ROUTES if not self.program.causal or route not in ("last", "reverse")]

    def codes(self, name: str) -> list[int]:
        """Codes that occur, on natural runs."""
        env = self.program.environment(self.inputs)
        return env[name][env.real].unique().tolist()

    def code(self, name: str) -> int:
        return self.rng.choice(self.codes(name))

    def more(self, name: str) -> tuple[int, ...]:
        return tuple(code for code in self.codes(name) if self.rng.random() < 0.2)

    def mean(self, of: str) -> Mean:
        return Mean(of, self.code(of), self.more(of), self.rng.choice(["LEQ", "LT", "TRUE"]))

    def table(self) -> Table:
        reads = tuple(self.rng.sample([*self.names, INDICES], min(len(self.names) + 1, self.rng.randint(1, 3))))
        return Table(reads, {key: self.rng.randrange(3) for key in self.some(reads)}, 3)

    def some(self, reads: tuple[str, ...]) -> list[tuple[int, ...]]:
        env = self.program.environment(self.inputs)
        rows = torch.stack([env[name][env.real] for name in reads], -1).unique(dim=0).tolist()
        kept = [tuple(row) for row in rows if self.rng.random() < 0.8]
        return kept or [tuple(rows[0])]

    def selector(self, keys: str, queries: str) -> Selector:
        kind = self.rng.choice(["all", "constant", "compare", "compare", "pairs"])
        if self.rng.random() < 0.5:
            queries = keys
        both = [(there, here) for there in self.codes(keys) for here in self.codes(queries) if min(there, here) >= 0]
        pairs = frozenset(pair for pair in both if self.rng.random() < 0.5)
        comparison = self.rng.choice(list(COMPARE))
        return Selector(kind, keys, queries, comparison, self.code(keys), self.more(keys), pairs)

    def gathered(self, of: str, other: str) -> Gathered:
        how, selector = self.rng.choice(["first", "last", "most", "mean", "sum"]), self.selector(other, of)
        numbers = tuple(self.rng.randrange(3) for _ in range(max(self.codes(of)) + 1)) if how in ("mean", "sum") else ()
        return Gathered(of, selector, how, numbers)

    def steered(self, of: str) -> Copy:
        by = self.rng.choice([*self.names, *([] if self.program.causal else ["length"])])
        anywhere = self.rng.random() < 0.5
        values = range(6) if by == "length" else self.codes(by)
        own = [0] if anywhere else range(5)
        table = {(p, v): self.rng.randrange(5) for p in own for v in values if self.rng.random() < 0.8}
        return Copy(of, "table", table, by, anywhere)

    def output(self) -> OutputMap:
        shares = [name for name in self.shares if name in self.names]
        if self.program.numeric and self.rng.random() < 0.7:
            read = shares[-1] if shares else self.names[-1]
            return OutputMap((read,), {}, 0.0, self.line(read))
        reads = tuple(self.rng.sample([*self.names, INDICES], min(len(self.names) + 1, self.rng.randint(1, 3))))
        n = 5 if self.program.numeric else len(self.vocabulary.outputs or ())
        table = {key: float(self.rng.randrange(n)) for key in self.some(reads)}
        # A program whose every output is undefined is refused by the language.
        return OutputMap(reads, {**table, next(iter(table)): 0.0}, float(n - 1))

    def line(self, read: str) -> StraightLine:
        variables = {str(component): variable for component, variable in self.program.variables.items()}
        scale = scale_of(variables[read]) if read in variables else 1
        return StraightLine(*self.rng.choice([(0.7, 0.125), (1.0, 0.0)]), scale)


def in_codes(program: CircuitProgram, vocabulary: FiniteVocabulary, made, output: torch.Tensor) -> torch.Tensor:
    """RASP's outputs as the scientist writes them."""
    if made.numerical:
        return output  # here no value is 0, as in every sum of the language
    if program.numeric:
        return torch.tensor([torch.nan if v is None else float(v) for v in made.outputs])[output]
    return torch.tensor([_code(vocabulary, v) for v in made.outputs])[output]


def _code(vocabulary: FiniteVocabulary, value) -> float:
    """An output's code; -1 for no value, where None is not an output."""
    assert vocabulary.outputs is not None
    return float(vocabulary.outputs.index(value)) if value is not None or None in vocabulary.outputs else -1.0


def assert_same(program: CircuitProgram, vocabulary: FiniteVocabulary, inputs: Sequences) -> None:
    """The scientist's program with no value for outputs that were never seen, as RASP has it."""
    assert program.output is not None
    nothing = torch.nan if program.numeric else _code(vocabulary, None)
    program = replace(program, output=replace(program.output, default=nothing))
    translated = translate(program, vocabulary)
    again = from_document(json.loads(json.dumps(translated.executable().program, allow_nan=False)))
    live = [component for component in program.variables if str(component) in translated.carriers]
    pairings = exchange_pairings(len(inputs), 30, live, seed=1) if live else None
    expected = program.predict(program.environment(inputs))
    rows = [[vocabulary.tokens[code] for code in row if code >= 0] for row in inputs.codes.tolist()]
    for made in (translated.program, again):
        codes, lengths = made.encode(rows)
        trace = made.run(codes, lengths)
        width = codes.shape[1]
        real = inputs.real[:, :width]
        same(program, in_codes(program, vocabulary, made, trace.output), expected[:, :width], real)
        if pairings is not None:
            patched = torch.tensor([[moved == component for component in live] for moved in pairings.moved])
            base, source = (made.run(codes[r], lengths[r]) for r in (pairings.base, pairings.source))
            groups = [translated.carriers[str(component)] for component in live]
            output = made.interchange(base, source, patched, carriers=groups)
            wanted = program.predict(program.exchanged(inputs, pairings))[:, :width]
            same(program, in_codes(program, vocabulary, made, output), wanted, real[pairings.base])


def same(program: CircuitProgram, found: torch.Tensor, expected: torch.Tensor, real: torch.Tensor) -> None:
    if program.numeric:  # a share is rounded to 1/5040 by the scientist, not by RASP
        wanted = torch.where(expected.isnan() & (found == 0), 0.0, expected)
        assert torch.allclose(found[real].float(), wanted[real].float(), atol=1e-3, equal_nan=True)
    else:
        assert torch.equal(found[real].long(), expected[real].long())


@pytest.mark.slow
@given(st.integers(0, 1_000_000))
@settings(max_examples=80, deadline=None)
def test_any_program_and_its_translation_agree(seed: int) -> None:
    random_program = RandomProgram(seed)
    assert_same(random_program.program, random_program.vocabulary, random_program.inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["3", "4", "13", "58", "79", "129"])
def test_what_is_found_in_a_shipped_circuit_and_its_translation_agree(name: str) -> None:
    specimen = ves.load(name)
    vocabulary = specimen.vocabulary
    assert isinstance(vocabulary, FiniteVocabulary)
    runs = CircuitRuns(specimen, vocabulary, sorted(specimen.components))
    pool, fitting = (runs.record(draw_sequences(specimen, 120, seed=seed)) for seed in (0, 1))
    program = assemble(explain_components(runs, pool, seed=0), fitting, exchanges=60, seed=2)
    inputs = draw_sequences(specimen, 60, seed=3)
    assert_same(program, vocabulary, inputs)
    assert len(json.dumps(translate(program, vocabulary).executable().program)) < 100_000


def test_a_causal_program_that_needs_the_length_is_refused() -> None:
    copy = Copy(TOKENS, "reverse")
    program = CircuitProgram({COMPONENTS[0]: copy}, OutputMap((str(COMPONENTS[0]),), {(0,): 1.0}, 0.0), True, False)
    with pytest.raises(BadInput, match="does not know the length"):
        translate(program, FiniteVocabulary(("a", "b"), (0, 1), 4))


def test_variables_are_named_after_their_components_and_undefined_avoids_the_vocabulary() -> None:
    first, second = Component(0, 1), Component(0, None)
    found = {first: Copy(TOKENS, "previous"), second: Table((str(first),), {(-1,): 1, (0,): 0}, 2)}
    program = CircuitProgram(found, OutputMap((str(second),), {(0,): 0.0, (1,): 1.0}, 0.0), False, False)
    made = translate(program, FiniteVocabulary(("nothing", "b"), ("no", "yes"), 3))
    assert made.carriers == {"L0H1": ("L0H1",), "L0_MLP": ("L0_MLP",)}
    head = next(node for node in made.program.tables.domains if made.program.name_of(node) == "L0H1")
    assert made.program.value_list(head) == ("nothing", "b", "nothing_")
    codes, lengths = made.program.encode([["nothing", "b", "b"]])
    assert made.program.decode(made.program.run(codes, lengths).output, lengths) == [["yes", "no", None]]
