"""The scientist's program as the document that is shown, run and graded, and which variable each component carries."""

from dataclasses import dataclass

from vesalius.documents.explanation import Executable
from vesalius.explanations.scientist.assemble import CircuitProgram, OutputMap
from vesalius.explanations.scientist.gathering import Mean
from vesalius.explanations.scientist.variables import Linear, Table
from vesalius.model.specimen import FiniteVocabulary
from vesalius.rasp import Program as RaspProgram
from vesalius.rasp import SelectorWidth, Variable
from vesalius.rasp.document import to_document
from vesalius.rasp.draft import Draft
from vesalius.rasp.language import Value
from vesalius.rasp.placement import head_name

NAME = "circuit"


@dataclass(frozen=True)
class Translation:
    """A compiled program and the variables each component carries; components without a variable are left out. `open`
    counts, for a table with arguments that were never seen, these and all there are: the program leaves them open.
    """

    program: RaspProgram
    carriers: dict[str, tuple[str, ...]]
    open: dict[str, tuple[int, int]]

    def executable(self) -> Executable:
        """The same as plain data."""
        return Executable(program=to_document(self.program), carriers=self.carriers)


def translate(program: CircuitProgram, vocabulary: FiniteVocabulary) -> Translation:
    """The program in RASP. BadInput where RASP cannot say it: too many values, or a causal model that is said to know
    the length.
    """
    numerical = _numerical(program)
    draft = Draft(vocabulary.tokens, vocabulary.max_len, causal=program.causal, numerical=numerical)
    carriers: dict[str, tuple[str, ...]] = {}
    left_open: dict[str, tuple[int, int]] = {}
    for component, hypothesis in program.variables.items():
        if hypothesis.family == "nothing":
            continue
        name = str(component)
        coded = draft.variables[name] = hypothesis.define(draft, name)
        if isinstance(hypothesis, Table) and (unseen := draft.unlisted(hypothesis.reads, hypothesis.codes)):
            left_open[name] = unseen, draft.combinations(hypothesis.reads)
        carriers[name] = (head_name(name) if isinstance(coded.variable, SelectorWidth) else name,)
    assert program.output is not None
    output = _output(draft, program.output, vocabulary.outputs)
    return Translation(draft.compile(output, carriers, name=NAME), carriers, left_open)


def _output(draft: Draft, output: OutputMap, outputs: tuple[Value, ...] | None) -> Variable:
    if output.line is not None:
        return draft.line(output.reads[0], output.line.factor, output.line.offset, scale=output.line.scale)

    def answer(value: float) -> Value:
        return value if outputs is None else outputs[int(value)]

    table = {key: answer(value) for key, value in output.table.items()}
    return draft.output_table(output.reads, table)


def _numerical(program: CircuitProgram) -> set[str]:
    """Shares and sums of shares that only sums and a straight-line output read: RASP's numerical variables."""
    by_name = {str(component): variable for component, variable in program.variables.items()}
    shares = {name for name, variable in by_name.items() if isinstance(variable, Mean | Linear)}
    sums = {name for name in shares if isinstance(by_name[name], Linear) and shares.issuperset(by_name[name].reads)}
    output, numerical = program.output, set()
    for name in reversed(by_name) if program.numeric else ():
        if not (isinstance(by_name[name], Mean) or name in sums):
            continue
        readers = {reader for reader, variable in by_name.items() if name in variable.reads}
        on_a_line = output is None or name not in output.reads or output.line is not None
        if on_a_line and readers <= sums & numerical:
            numerical.add(name)
    return numerical
