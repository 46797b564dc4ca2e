"""Who carries what in the program that is kept, when components were supported with different ones."""

import pytest

import vesalius.api as ves
from vesalius.documents.trace import ComponentTrace
from vesalius.explanations.claims import Computes, Hypothesis, Lab, check
from vesalius.explanations.hyve.stages import Finding
from vesalius.explanations.hyve.writing import shared_program
from vesalius.rasp import Aggregate, Comparison, Map, Program, Select, compile_program, indices, tokens

FLAGS, SHARE = "L0_MLP", "L1H2"


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab(ves.load("3"), n=300)


def program(name: str, flag: str) -> Program:
    is_x = Map(lambda token: token == "x", tokens, name=flag)
    share = Aggregate(Select(indices, indices, Comparison.LEQ), is_x, numerical=True, name="share")
    return compile_program(share, ["a", "b", "c", "x"], 4, causal=True, name=name)


def finding(lab: Lab, component: str, made: Program, carried: str) -> Finding:
    claim = Computes(component=component, hypothesis=Hypothesis(program=made, carriers={component: (carried,)}))
    record = check(claim, lab)
    assert record.verdict == "supported"
    return Finding(ComponentTrace(component=component, observation=""), "supported", (record,), ((claim, record),))


def test_a_component_supported_with_another_program_is_checked_with_the_one_that_is_kept(lab: Lab) -> None:
    first = finding(lab, FLAGS, program("first", "is_x"), "is_x")
    later = finding(lab, SHARE, program("later", "is_x"), "share")
    executable, agreement = shared_program([first, later], lambda: lab)
    assert executable is not None
    assert agreement is not None
    assert executable.program["name"] == "later"
    assert executable.carriers == {SHARE: ("share",), FLAGS: ("is_x",)}


def test_a_variable_that_the_kept_program_lacks_is_left_out(lab: Lab) -> None:
    first = finding(lab, FLAGS, program("first", "flag"), "flag")
    later = finding(lab, SHARE, program("later", "is_x"), "share")
    executable, _ = shared_program([first, later], lambda: lab)
    assert executable is not None
    assert executable.carriers == {SHARE: ("share",)}
