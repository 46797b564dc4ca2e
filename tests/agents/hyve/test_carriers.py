"""Who carries what in the program that is kept, when components were supported with different ones."""

import pytest

import vesalius.api as ves
from vesalius.components import Component
from vesalius.documents.trace import ComponentTrace
from vesalius.explanations.claims import Computes, Hypothesis, check
from vesalius.explanations.laboratory import CircuitLab
from vesalius.rasp import Aggregate, Comparison, Map, Program, Select, compile_program, indices, tokens
from vesalius_session.findings import Finding, shared_program
from vesalius_session.session import Session

FLAGS, SHARE = "L0_MLP", "L1H2"


@pytest.fixture(scope="module")
def lab() -> CircuitLab:
    return CircuitLab(ves.load("3"), n=300)


def program(name: str, flag: str) -> Program:
    is_x = Map(lambda token: token == "x", tokens, name=flag)
    share = Aggregate(Select(indices, indices, Comparison.LEQ), is_x, numerical=True, name="share")
    return compile_program(share, ["a", "b", "c", "x"], 4, causal=True, name=name)


def finding(lab: CircuitLab, component: str, made: Program, carried: str) -> Finding:
    claim = Computes(component=component, hypothesis=Hypothesis(program=made, carriers={component: (carried,)}))
    record = check(claim, lab)
    assert record.verdict == "supported"
    return Finding(ComponentTrace(component=component, observation=""), "supported", (record,), ((claim, record),))


def test_a_component_supported_with_another_program_is_checked_with_the_one_that_is_kept(lab: CircuitLab) -> None:
    first = finding(lab, FLAGS, program("first", "is_x"), "is_x")
    later = finding(lab, SHARE, program("later", "is_x"), "share")
    executable, agreement = shared_program([first, later], lambda: lab)
    assert executable is not None
    assert agreement is not None
    assert executable.program["name"] == "later"
    assert executable.carriers == {SHARE: ("share",), FLAGS: ("is_x",)}


def test_a_variable_that_the_kept_program_lacks_is_left_out(lab: CircuitLab) -> None:
    first = finding(lab, FLAGS, program("first", "flag"), "flag")
    later = finding(lab, SHARE, program("later", "is_x"), "share")
    executable, _ = shared_program([first, later], lambda: lab)
    assert executable is not None
    assert executable.carriers == {SHARE: ("share",)}


def test_the_same_program_has_one_number_and_one_verdict_whatever_the_claim_is_called(lab: CircuitLab) -> None:
    """Circuit 3: L1H2 averages the flags of L0_MLP. Other programs in between do not make the rule stricter for it."""
    session = Session.open(lab.specimen)
    flag = {"name": "is_x", "op": "map", "of": ["tokens"], "table": [["x", 1]], "otherwise": 0}
    before = {"name": "before", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"}
    share = {"name": "share", "op": "aggregate", "of": ["before", "is_x"], "numerical": True}

    def claim(kind: str, comparison: str) -> dict:
        variables = [flag, before | {"comparison": comparison}, share]
        program = {"variables": variables, "output": "share"}
        return {"kind": kind, "component": SHARE, "program": program, "carriers": {SHARE: ["share"]}}

    given = [("computes", "LEQ"), ("computes", "LT"), ("aggregates", "LEQ"), ("aggregates", "LT"), ("computes", "EQ")]
    records = [session.check(claim(kind, comparison), Component.parse(SHARE)).records[0] for kind, comparison in given]
    assert [record.tried for record in records] == [1, 2, 1, 2, 3]
    right, wrong, right_again, wrong_again, _ = (record.verdict for record in records)
    assert right == right_again == "supported"
    assert wrong == wrong_again == "refuted"
