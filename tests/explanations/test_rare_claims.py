"""Claims where random inputs hardly ever show a component: inputs are searched, and without any nothing is refuted."""

import pytest
import torch

from tests.behaviours.test_rare import MLP, specimen_of
from vesalius.explanations.claims import Computes, DependsOnlyOn, Hypothesis, Necessary, check
from vesalius.explanations.laboratory import CircuitLab
from vesalius.rasp import Map, compile_program, tokens

RARE = ("t3",)


def hypothesis(lab: CircuitLab, *names: str) -> Hypothesis:
    """The MLP flags these tokens."""
    flag = Map(lambda token: int(token in names), tokens, name="flag")
    vocabulary = lab.vocabulary
    program = compile_program(flag, vocabulary.tokens, vocabulary.max_len, causal=lab.model.config.causal)
    return Hypothesis(program=program, carriers={str(MLP): ("flag",)})


@pytest.fixture(scope="module")
def lab() -> CircuitLab:
    return CircuitLab(specimen_of(RARE), n=128)


def test_programs_run_on_the_inputs_that_the_model_runs_on(lab):
    base, source = lab.inputs
    for inputs, batch in ((base, lab.batch), (source, lab.source)):
        ids = lab.vocabulary.tokenize(inputs)
        assert torch.equal(ids, batch.tokens[:, : ids.shape[1]])
    assert sum("t3" in row for row in [*base, *source]) > len(base) / 2, "searched, for one draw in hundreds has it"


def test_a_rare_condition_is_supported_and_a_wrong_one_refuted(lab):
    claim = Computes(component=str(MLP), hypothesis=hypothesis(lab, *RARE))
    assert check(claim, lab).verdict == "supported"
    assert check(Necessary(component=str(MLP)), lab).verdict == "supported"
    wrong = Computes(component=str(MLP), hypothesis=hypothesis(lab, "t4"))
    assert check(wrong, lab).verdict == "refuted"


def test_a_model_of_one_output_refutes_and_supports_nothing_about_its_inputs():
    lab = CircuitLab(specimen_of(()), n=128)
    program = hypothesis(lab, *RARE).program
    claim = DependsOnlyOn(component=str(MLP), program=program, variables=("flag",))
    assert check(claim, lab).verdict == "undecided"
