"""Names of operations in HyVE explanations: the rule of the built-in scientist, on programs that a model wrote."""

from typing import Any

import pytest

import vesalius.api as ves
from vesalius.documents.explanation import NamedOperation
from vesalius.documents.trace import ComponentTrace
from vesalius.explanations.claims import Computes, Hypothesis, check
from vesalius.explanations.laboratory import CircuitLab
from vesalius.rasp import (
    Aggregate,
    Comparison,
    Map,
    Program,
    Select,
    SelectorWidth,
    SequenceMap,
    Variable,
    compile_program,
    indices,
    tokens,
)
from vesalius_session.findings import Finding, Statement, explanation_of, operation_of

MLP, HEAD = "L0_MLP", "L1H2"


@pytest.fixture(scope="module")
def lab() -> CircuitLab:
    return CircuitLab(ves.load("3"), n=300)


def compiled(output: Variable) -> Program:
    return compile_program(output, ["a", "b", "c", "x"], 4, causal=True, name="p")


def named(
    output: Variable, lab: CircuitLab, carriers: dict[str, tuple[str, ...]], name: str = MLP
) -> NamedOperation | None:
    return operation_of(Hypothesis(program=compiled(output), carriers=carriers), name, (), lab)


def count_of_x() -> SelectorWidth:
    return SelectorWidth(Select(tokens, tokens, lambda key, query: key == "x"), name="count")


def test_an_explanation_names_the_operation_as_the_builtin_scientist_does(lab: CircuitLab) -> None:
    is_x = Map(lambda token: token == "x", tokens, name="is_x")
    share = Aggregate(Select(indices, indices, Comparison.LEQ), is_x, numerical=True, name="share")
    claim = Computes(component=MLP, hypothesis=Hypothesis(program=compiled(share), carriers={MLP: ("is_x",)}))
    record = check(claim, lab)
    finding = Finding(ComponentTrace(component=MLP, observation=""), "supported", (record,), ((claim, record),))
    said, figures = Statement({}), {"cost": 0.0, "seconds": 0.0}
    (part,) = explanation_of([finding], said, lambda: lab, specimen="3", seed=0, **figures).components
    builtin = {one.id: one for one in ves.explain(ves.load("3")).components}[MLP].operation
    assert part.operation is not None
    assert builtin is not None
    same: tuple[Any, ...] = ("operation", "text", "formula", "arguments", "exact")
    assert [getattr(part.operation, field) for field in same] == [getattr(builtin, field) for field in same]
    assert part.operation.text == "whether the token is 'x'"


def test_values_that_a_model_made_up_are_labels(lab: CircuitLab) -> None:
    numbers = {"a": 4, "b": 4, "c": 4, "x": 9}
    odd = Map(lambda value: value % 2 == 1, Map(lambda token: numbers[token], tokens, name="number"), name="odd")
    both = named(odd, lab, {MLP: ("number",), HEAD: ("odd",)}, HEAD)
    assert both is not None
    assert (both.operation, both.arguments) != ("parity", (MLP,)), "9 is only a name of the class of x"
    alone = named(odd, lab, {MLP: ("odd",)})
    assert alone is not None
    assert (alone.text, alone.arguments) == ("whether the token is 'x'", ("tokens",)), "what nobody carries is inside"


def test_counts_and_positions_stand_for_themselves(lab: CircuitLab) -> None:
    several = Map(lambda count: count >= 2, count_of_x(), name="several")
    threshold = named(several, lab, {MLP: ("count",), HEAD: ("several",)}, HEAD)
    assert threshold is not None
    assert (threshold.operation, threshold.formula, threshold.arguments) == ("threshold", "x >= 2", (MLP,))
    beside = named(several, lab, {MLP: ("count", "flag"), HEAD: ("several",)}, HEAD)
    assert beside is not None
    assert beside.arguments == ("count",), "the component carries more than the count, so the variable is named"
    total = SequenceMap(lambda count, place: count + place, count_of_x(), indices, name="total")
    added = named(total, lab, {HEAD: ("total",)}, HEAD)
    assert added is not None
    assert (added.operation, added.arguments) == ("sum", ("count", "indices"))


def test_no_name_for_several_variables_or_for_what_has_none(lab: CircuitLab) -> None:
    several = Map(lambda count: count >= 2, count_of_x(), name="several")
    assert named(several, lab, {MLP: ("count", "several")}) is None
    share = Aggregate(
        Select(indices, indices, Comparison.LEQ), Map(lambda token: token == "x", tokens), numerical=True, name="share"
    )
    assert named(share, lab, {HEAD: ("share",)}, HEAD) is None


def test_a_head_steered_by_a_variable_is_named_by_the_position_it_looks_up(lab: CircuitLab) -> None:
    count = count_of_x()
    found = Aggregate(Select(indices, count, lambda key, query: key == min(query, 3)), tokens, name="found")
    route = named(found, lab, {MLP: ("count",), HEAD: ("found",)}, HEAD)
    assert route is not None
    assert route.arguments == (MLP,)
    assert route.text.startswith("the token at the position that is ")
    several = Aggregate(Select(indices, count, Comparison.LT), tokens, name="found")
    assert named(several, lab, {HEAD: ("found",)}, HEAD) is None, "it looks at more than one position"
