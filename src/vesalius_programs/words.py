"""Explanations in plain English, generated from the results and from nothing else."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Evidence, Verdict
from vesalius.documents.view import join_names
from vesalius.explanations.claims import input_words
from vesalius.explanations.claims.base import worst_of
from vesalius.explanations.claims.interchange import ACCURACY, AGREEMENT, CONTEST, WORST
from vesalius.explanations.claims.moved import FIXED, MOVED
from vesalius.explanations.claims.necessary import is_inert
from vesalius.explanations.claims.wiring import OTHERS, OUTPUT, Wired, Wiring
from vesalius.model.specimen import FiniteVocabulary, json_value
from vesalius_programs.classify import Facts
from vesalius_programs.gathering import Copy
from vesalius_programs.program import (
    INDICES,
    MEAN_SCALE,
    TOKENS,
    CircuitProgram,
    Hypothesis,
    OutputMap,
    Table,
    plain_name,
)
from vesalius_programs.runs import Sequences
from vesalius_programs.standing_in import KINDS, stood_in_for
from vesalius_programs.translation import name_tables, name_task, operation_reads

#: Share of fresh inputs with every output right from which a program is said to be right, and its task is named.
RIGHT = 0.97
CLOSEST = "inputs on our side against the closest rival"


class Names:
    """Writes the codes of variables: tokens as tokens, shares as fractions, everything else as numbers."""

    def __init__(self, vocabulary: FiniteVocabulary, program: CircuitProgram, seen: Sequences | None = None) -> None:
        """`seen`: inputs by which tables and the task are named; without them they are only listed."""
        self.vocabulary, self.program = vocabulary, program
        self.operations = {} if seen is None else name_tables(program, vocabulary, seen)
        self.task = None if seen is None else name_task(program, vocabulary, seen)
        self._by_name = {str(component): variable for component, variable in program.variables.items()}

    def value(self, name: str, code: int) -> str:
        """A code as text."""
        if code < 0:
            return "None"
        variable = self._by_name.get(name)
        if name == TOKENS or (variable is not None and variable.family in ("copy", "gated", "match", "extreme")):
            of = TOKENS if name == TOKENS else str(getattr(variable, "of", TOKENS))
            return self.value(of, code) if of != TOKENS else self.token(code)
        if variable is not None and variable.family in ("mean", "linear"):
            return f"{code / MEAN_SCALE:.3g}"
        return str(code)

    def words(self, name: str) -> str:
        """What a variable computes: the name of its operation, or what its hypothesis says."""
        variable, operation = self._by_name[name], self.operations.get(name)
        if operation is None:
            return variable.words(self)
        said = operation.text([plain_name(read) for read in operation_reads(variable)])
        return f"{plain_name(variable.of)} at the position that is {said}" if isinstance(variable, Copy) else said

    def token(self, code: int) -> str:
        """A token as Python would write it."""
        return repr(self.vocabulary.tokens[code])

    def output(self, value: float) -> str:
        """An output value."""
        return (
            f"{value:.3g}" if self.vocabulary.outputs is None else repr(json_value(self.vocabulary.outputs[int(value)]))
        )


def note(
    component: Component,
    facts: Facts,
    claims: tuple[ClaimRecord, ...],
    names: Names,
    wired: Wired,
) -> str:
    """What one component does, and how far that is established; figures are those of its claims, and what it reads is
    what exchanges of its inputs showed (`wired`), or else said to be the program's.
    """
    variable = facts.variable(component)
    by_kind = {claim.kind: claim for claim in claims}
    effect = _effect(by_kind["necessary"])
    if variable.family == "nothing":
        if stood_in_for(claims):
            (standing,) = (claim for claim in claims if claim.kind in KINDS)
            shown = standing.evidence[0]
            return (
                f"{component} does nothing alone: {effect}. {standing.text} Replaced with the others it costs "
                f"{shown.value or 0:.1%} of the outputs more than they and it do by themselves."
            )
        if is_inert(by_kind["necessary"].evidence):
            return f"{component} is inert: {effect}; no replacement does anything, so nothing can say what it computes."
        return (
            f"No hypothesis about {component} was good enough to be judged: the best predicted "
            f"{facts.scores[component]:.2f} of its effect in the search. It is not inert: {effect}."
        )
    text = f"{component} computes {names.words(str(component))}."
    if "computes" in by_kind and by_kind["computes"].text.startswith(FIXED):
        text = f"{FIXED}{text}"
    text += input_words(by_kind["computes"].evidence) if "computes" in by_kind else ""
    if facts.position_enters(component) and INDICES not in variable.reads:
        text += " What it means for the output also depends on the position."
    text += _reading(component, facts, wired, matters=by_kind["necessary"].verdict == "supported")
    text += _judgement(by_kind["computes"]) if "computes" in by_kind else " This could not be run, so it is untested."
    text += f" {effect[0].upper()}{effect[1:]}."
    return text + "".join(
        f" Refuted: {claim.text}" for claim in claims if claim.verdict == "refuted" and claim.kind != "computes"
    )


def _effect(necessary: ClaimRecord) -> str:
    """Every replacement with what it changed, the strongest first."""
    shown = [f"{one.value or 0:.1%} ({one.experiment.removesuffix(' replacement')})" for one in necessary.evidence]
    return f"replacing it changed {join_names(shown)} of the outputs"


def _judgement(computes: ClaimRecord) -> str:
    """What the interchange said, and where the claim fell short."""
    by_measure = {evidence.measure: evidence for evidence in computes.evidence}
    accuracy = by_measure[ACCURACY]
    if accuracy.value is None:
        return " No exchange changed an output, so this is undecided."
    text = (
        f" Exchanged between {accuracy.n} pairs of inputs that show a difference, it acts as the program says in "
        f"{accuracy.value:.1%} of the changed outputs"
    )
    shuffled = accuracy.controls.get("shuffled_source")
    text += f" (with a shuffled source {shuffled:.1%})." if shuffled is not None else "."
    if computes.verdict != "supported":
        measured = (
            (AGREEMENT, "outputs the whole program gives"),
            (WORST, "right for the worst value or position"),
            (CONTEST, CLOSEST),
            (MOVED, "right where outputs are moved"),
        )
        shown = [
            f"{said} {by_measure[m].value:.1%}{_worst(by_measure[m])}"
            for m, said in measured
            if m in by_measure and by_measure[m].value is not None
        ]
        text += f" By the rule of the claim that is {computes.verdict} ({'; '.join(shown)})."
    return text


def _worst(evidence: Evidence) -> str:
    """Which value or position is the worst, and the interval of its accuracy."""
    if evidence.measure != WORST or evidence.low is None or evidence.high is None:
        return ""
    return f" ({worst_of(evidence)}, {evidence.low:.1%} to {evidence.high:.1%}, n {evidence.n})"


def which_fit(fitting: Sequence[Wiring]) -> str:
    """Why it is not decided what a component reads, for more than one wiring or none."""
    if not fitting:
        return "no set of inputs that was tried fits"
    return f"{' or '.join(join_names(map(_plain_name, one.senders)) for one in fitting)} fit"


def _measured_reads(receiver: str, reads: Sequence[str], wired: Wired) -> list[str] | None:
    """What exchanges of its inputs showed a component, or the output, to read, in the program's order; of the position,
    which they say nothing about, what the program says. None where they decide nothing.
    """
    fitting = wired.get(receiver, ())
    if len(fitting) != 1:
        return None
    senders = fitting[0].senders
    own = [name for name in reads if name in senders or name == INDICES]
    return own + [name for name in senders if name not in own]


def _reading(component: Component, facts: Facts, wired: Wired, *, matters: bool) -> str:
    """What the component reads and what reads it: by exchanges, and in the program where these say otherwise."""
    variable, name = facts.variable(component), str(component)
    inputs = [one for one in (TOKENS, INDICES) if one in variable.reads]
    reads = [*map(str, facts.parents(component)), *inputs]
    measured = _measured_reads(name, reads, wired)
    listed = join_names(map(_plain_name, reads)) if reads else "nothing but the mask"
    if measured is None:
        fitting = wired.get(name)
        text = "" if fitting is None else f" What it reads is not decided: {which_fit(fitting)}."
        text += f" In the program it reads {listed}."
    elif set(measured) == set(reads):
        text = f" It reads {listed}."
    else:
        shown = f"It reads {join_names(map(_plain_name, measured))}" if measured else "No exchange of its inputs shows"
        text = f" {shown}; in the program it reads {listed}."
    return text + _readers(component, facts, wired, matters=matters)


def _readers(component: Component, facts: Facts, wired: Wired, *, matters: bool) -> str:
    name = str(component)
    every = {reader: fitting for reader, fitting in wired.items() if any(name in one.senders for one in fitting)}
    sure = [reader for reader, fitting in every.items() if all(name in one.senders for one in fitting)]
    program = [str(reader) for reader in facts.readers(component)] + [OUTPUT] * _output_reads(component, facts)
    parts = (
        ("It is read by", sure),
        ("It may be read by", [reader for reader in every if reader not in sure]),
        ("In the program it is read by", [reader for reader in program if reader not in every]),
    )
    if any(readers for _, readers in parts):
        return "".join(f" {said} {join_names(map(_plain_name, readers))}." for said, readers in parts if readers)
    return " Outputs change when it is replaced, but what reads it was not found." if matters else ""


def _output_reads(component: Component, facts: Facts) -> bool:
    output = facts.program.output
    return output is not None and str(component) in output.reads


def information_flow(
    facts: Facts,
    wired: Wired,
    matters: Collection[Component] = (),
    standing_in: Mapping[Component, Sequence[str]] = MappingProxyType({}),
) -> str:
    """Who reads whom, from the input to the output: by exchanges of inputs (`wired`), or else in the program, which is
    then said. `matters` are the components shown to be necessary, about which it is said if nothing reads them,
    `standing_in` those that act only where others are silent.
    """
    read = {sender for fitting in wired.values() for one in fitting for sender in one.senders}
    sentences = []
    for component, variable in facts.program.variables.items():
        if component in standing_in:
            sentences.append(f"{component} stands in for {join_names(standing_in[component])}.")
            continue
        if variable.family == "nothing":
            sentences.append(f"What {component} does was not found.")
            continue
        plain = {TOKENS: "the tokens", INDICES: "the position"}
        shown = _measured_reads(str(component), variable.reads, wired)
        sources = [plain.get(name, _plain_name(name)) for name in (variable.reads if shown is None else shown)]
        if not sources and not variable.reads:
            sources = ["the attention mask (it counts what is in view)"]
        verb = "moves information across positions" if component.is_head else "works at each position"
        where = "In the program, " if shown is None else ""
        sentences.append(
            f"{where}{component} reads {join_names(sources) or 'nothing that an exchange shows'} and {verb}."
        )
        unread = not facts.readers(component) and not _output_reads(component, facts) and str(component) not in read
        if component in matters and unread:
            sentences.append(f"What reads {component} was not found.")
    output = facts.program.output
    if output is not None:
        shown = _measured_reads(OUTPUT, output.reads, wired)
        named = join_names(map(_plain_name, output.reads if shown is None else shown))
        start = "In the program, the output" if shown is None else "The output"
        sentences.append(f"{start} is read off {named or 'nothing that an exchange shows'}.")
    return " ".join(sentences)


def task_description(
    facts: Facts, names: Names, agreement: float, verdicts: Mapping[str, Verdict], *, formula: str | None = None
) -> str:
    """What the circuit computes: the program as a formula where it has one, else what its last variable computes.
    Steps whose claim was not supported say so.
    """
    output = facts.program.output
    if output is None:
        return "No program was found: no hypothesis about any component was supported."
    by_name = {str(component): variable for component, variable in facts.program.variables.items()}
    steps = [
        f"{name} is {names.words(name)}" + ("" if verdicts[name] == "supported" else f" (claim {verdicts[name]})")
        for name, variable in by_name.items()
        if variable.family != "nothing"
    ]
    result = _result_words(output, by_name, names) if formula is None else _formula_words(formula)
    is_right = agreement >= RIGHT
    how_sure = (
        f"The program gives all outputs of the model for {agreement:.1%} of fresh inputs."
        if is_right
        else f"The program is not right: it gives all outputs of the model for only {agreement:.1%} of fresh inputs."
    )
    task = f"The circuit {names.task.text}. " if names.task is not None and is_right else ""
    told = f" Steps: {'; '.join(steps)}." if steps else ""
    return f"{task}At each position the circuit outputs {result}.{told} {how_sure}"


def _formula_words(formula: str) -> str:
    """A formula in a sentence, the lines before its result after it."""
    *lines, result = formula.splitlines()
    text = result.removeprefix("return ")
    text = f"the {text}" if text.startswith(_NOUNS) else text
    return text + "".join(f"{', where' if not place else ' and'} {line}" for place, line in enumerate(lines))


#: What formulas begin with that takes an article.
_NOUNS = ("share of", "mean of", "number of", "most frequent", "token at", "position at", "token,", "position,")


def _result_words(output: OutputMap, by_name: dict[str, Hypothesis], names: Names) -> str:
    if output.line is not None:
        return names.words(output.reads[0])
    last = by_name.get(output.reads[0])
    if len(output.reads) == 1 and isinstance(last, Table) and last.reads == (TOKENS,):
        shown = [
            f"{names.token(key[0])} -> {names.output(output.table.get((code,), output.default))}"
            for key, code in list(last.codes.items())[:12]
            if key[0] >= 0
        ]
        return f"a function of the token alone: {', '.join(shown)}" + (", ..." if len(last.codes) > 12 else "")
    if len(output.reads) == 1 and last is not None:
        named, said = names.operations.get(output.reads[0]), names.words(output.reads[0])
        is_value = isinstance(last, Table) and named is not None and named.exact == "values"
        return said if is_value or said.startswith("a value ") else f"a value for {said}"
    return f"a value that depends on {join_names(_plain_name(name) for name in output.reads)}"


def _plain_name(name: str) -> str:
    plain = {TOKENS: "the token", INDICES: "the position", OTHERS: "other components", OUTPUT: "the output"}
    return plain.get(name, name)
