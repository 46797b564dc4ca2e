"""Verdicts by rule: what the checked claims of one hypothesis say about it, and a decided claim as text for agents."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Evidence, Verdict
from vesalius.explanations.claims import (
    CIRCUIT_KINDS,
    NATURAL_KINDS,
    Aggregates,
    Claim,
    Combines,
    Computes,
    DependsOnlyOn,
    IndependentOf,
)
from vesalius.explanations.claims.dependence import equal_in
from vesalius.explanations.claims.interchange import InterchangeTest
from vesalius.explanations.laboratory import CircuitLab
from vesalius.files import plain_json
from vesalius.model.specimen import FiniteVocabulary, json_value
from vesalius.rasp import Program

#: Claims that say what a component does, not merely that it matters.
FUNCTIONAL = frozenset(name for name, kind in CIRCUIT_KINDS.items() if kind.functional)
FUNCTIONAL_NATURAL = frozenset(name for name, kind in NATURAL_KINDS.items() if kind.functional)
#: Claims that a component carries variables of a program: one replaces another whatever it is called.
OF_PROGRAMS = frozenset({"circuit", "computes", "aggregates"})
FREE_CODE = "free_code"
FREE_CODE_RULE = "decided by the language model from its own code"


def verdict_of(records: Iterable[ClaimRecord]) -> Verdict:
    """Supported where a functional claim is and none is refuted; refuted where one is; undecided where a functional one
    was tested and stays open; else untested: nothing was tested that says what the component does.

    A refuted claim that says what the component does was replaced where a later one of its kind is supported: the
    hypothesis was corrected, and the rule was stricter for the correction. Claims from free code do not count: their
    author also judged them.
    """
    return verdict_of_kinds((record.kind, record.verdict) for record in records)


def verdict_of_kinds(claims: Iterable[tuple[str, Verdict]]) -> Verdict:
    """The same rule on the kinds of claims and their verdicts, in the order of their experiments."""
    checked: list[tuple[str, Verdict]] = [(kind, verdict) for kind, verdict in claims if kind != FREE_CODE]
    functional = FUNCTIONAL | FUNCTIONAL_NATURAL
    corrected: set[str] = set()
    supported = False
    for kind, verdict in reversed(checked):
        replaces = "program" if kind in OF_PROGRAMS else kind
        if verdict == "refuted" and replaces not in corrected:
            return "refuted"
        if verdict == "supported" and kind in functional:
            corrected.add(replaces)
            supported = True
    return "supported" if supported else open_verdict(checked)


def open_verdict(claims: Iterable[tuple[str, Verdict]]) -> Verdict:
    """The verdict where nothing that a component does was established: undecided where a claim of it was tested."""
    functional = FUNCTIONAL | FUNCTIONAL_NATURAL
    tested = any(kind in functional and verdict != "untested" for kind, verdict in claims)
    return "undecided" if tested else "untested"


def from_free_code(text: str, verdict: Verdict, *, programs: int, tried: int, seed: int) -> ClaimRecord:
    """A claim that a language model judged by itself, marked as such; `programs` is how many of its programs ran."""
    evidence = Evidence(
        experiment="code written by the language model",
        measure="programs that ran to a result",
        value=float(programs),
        low=None,
        high=None,
        n=programs,
        rule=FREE_CODE_RULE,
        seed=seed,
        passed={"supported": True, "refuted": False}.get(verdict),
    )
    return ClaimRecord(kind=FREE_CODE, text=text, verdict=verdict, evidence=(evidence,), tried=tried)


def record_text(record: ClaimRecord) -> str:
    """A checked claim as text: its verdict; where it is not supported, every experiment, those that failed first, and
    inputs that contradict it, or its program.
    """
    line = f"{record.verdict}: {record.text}"
    if record.verdict == "supported":
        return f"{line} ({len(record.evidence)} experiments)"
    ordered = sorted(record.evidence, key=lambda one: one.passed is not False)
    shown = [f"- {evidence_text(one)}" for one in ordered]
    against = [f"- {json.dumps(plain_json(one), ensure_ascii=False)}" for one in record.counterexamples]
    said = "Inputs that contradict it" if record.verdict == "refuted" else "Inputs on which the program is wrong"
    return "\n".join([line, *shown, *([f"{said}, drawn anew:", *against] if against else [])])


def evidence_text(one: Evidence) -> str:
    """One experiment in a line."""
    interval = "" if one.low is None or one.high is None else f" [{one.low}, {one.high}]"
    controls = "; ".join(f"{name} {value}" for name, value in one.controls.items())
    outcome = f" ({one.outcome})" if one.outcome else ""
    return (
        f"{one.mark}: {one.experiment}: {one.measure} = {one.value}{interval}{outcome}, n = {one.n}; rule {one.rule}"
        + (f"; controls: {controls}" if controls else "")
    )


# Inputs that contradict a refuted claim, for the agent that made it.
#
# "Accuracy 0.77" does not say what is wrong with a program; three inputs do. They are drawn with a seed of their own:
# what decides claims stays held out, however many claims an agent tries. Of each input the
# shortest that fail are shown.

#: How many are shown, and from how many pairs of inputs they are taken.
SHOWN, PAIRS = 3, 256
#: Added to the seed of the laboratory whose verdict is explained.
SEED = 11_000_027
Example = Mapping[str, Any]


def shown_beside(lab: CircuitLab) -> CircuitLab:
    """The laboratory that counterexamples are drawn from: the same specimen, other inputs."""
    return CircuitLab(lab.specimen, n=PAIRS, seed=lab.seed + SEED, circuit=lab.circuit)


def counterexamples(claim: Claim, lab: CircuitLab) -> tuple[Example, ...]:
    """Inputs of `lab` on which a claim about a program or its variables fails; none for other kinds of claim."""
    if isinstance(claim, Computes | Aggregates):
        program = claim.hypothesis.program
        return _disagreements(lab, program) or _interchanges(
            lab, claim.part, program, claim.hypothesis.carried_by(claim.component)
        )
    if isinstance(claim, DependsOnlyOn | Combines):
        return _swaps(lab, claim.part, equal_in(lab, claim.program, claim.variables))
    if isinstance(claim, IndependentOf):
        differs = ~equal_in(lab, claim.program, (claim.variable,)) & equal_in(lab, claim.program, claim.given)
        return _swaps(lab, claim.part, differs)
    return ()


def _disagreements(lab: CircuitLab, program: Program) -> tuple[Example, ...]:
    """Inputs on which the program does not give the model's outputs."""
    predicted = lab.answers(program, lab.traces(program)[0].output)
    wrong = ~lab.same(predicted, lab.clean) & lab.real
    return tuple(
        {"input": _input(lab, row), "predicted": _values(lab, predicted, row), "actual": _values(lab, lab.clean, row)}
        for row in _shortest(lab, wrong)
    )


def _interchanges(lab: CircuitLab, part: Component, program: Program, carried: tuple[str, ...]) -> tuple[Example, ...]:
    """Interchanges after which the model answers something else than the program with the variables exchanged."""
    test = InterchangeTest(lab, part, carried, program)
    result = test.compare(program)
    taken = {"reads": "the source's positions in another order"} if test.crossed else {}
    return tuple(
        {
            "interchange": f"{part} takes its values from source",
            **taken,
            "base": _input(lab, row),
            "source": _input(lab, row, of_source=True),
            "predicted": _values(lab, result.predicted, row),
            "actual": _values(lab, test.observed, row),
        }
        for row in _shortest(lab, result.changed & ~result.right)
    )


def _swaps(lab: CircuitLab, part: Component, where: Bool[Tensor, "pair pos"]) -> tuple[Example, ...]:
    """Swaps at the positions `where` that change outputs although the claim says that they do not."""
    reads: Int[Tensor, "pair pos"] = torch.where(where & lab.real & lab.source_real, lab.same_place, -1)
    swapped = lab.interchange(part, reads)
    return tuple(
        {
            "interchange": f"{part} takes its values from source at {reads[row][reads[row] >= 0].tolist()}",
            "base": _input(lab, row),
            "source": _input(lab, row, of_source=True),
            "predicted": _values(lab, lab.clean, row),
            "actual": _values(lab, swapped, row),
        }
        for row in _shortest(lab, ~lab.same(swapped, lab.clean) & lab.real)
    )


def _shortest(lab: CircuitLab, wrong: Bool[Tensor, "pair pos"]) -> list[int]:
    """The shortest inputs with a wrong answer, each once."""
    rows = wrong.any(1).nonzero()[:, 0].tolist()
    rows.sort(key=lambda row: int(lab.real[row].sum()))
    distinct = {str(_input(lab, row)): row for row in reversed(rows)}
    return sorted(distinct.values(), key=rows.index)[:SHOWN]


def _input(lab: CircuitLab, row: int, *, of_source: bool = False) -> list[object]:
    return list(lab.inputs[1 if of_source else 0][row])


def _values(lab: CircuitLab, answers: Tensor, row: int) -> list[object]:
    """Answers of one input as the specimen writes its outputs; None where a program has no value."""
    numbers = answers[row][lab.real[row]].tolist()
    vocabulary = lab.specimen.vocabulary
    assert isinstance(vocabulary, FiniteVocabulary)
    if vocabulary.outputs is None:
        return [None if number != number else round(number, 4) for number in numbers]
    outputs = vocabulary.outputs
    return [json_value(outputs[int(number)]) if number >= 0 else None for number in numbers]
