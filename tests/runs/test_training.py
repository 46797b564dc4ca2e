"""Policies trained in processes of their own are the policies trained here."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.discovery.test_matrices import corpus
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.discovery.mechrl.ppo import load_policy
from vesalius.discovery.mechrl.study import Scope, train_policies, trainings
from vesalius.discovery.mechrl.suite import Plan, load_suite, measure_suite
from vesalius.errors import BadInput
from vesalius.runs.training import train_apart

pytestmark = pytest.mark.slow
POOLS = {"train": 4, "validation": 3, "test": 4}
PLAN = Plan(POOLS, POOLS, rows=3, control_length=8, held_out=(), block=4)


def test_two_at_a_time_or_one_after_the_other(tmp_path: Path) -> None:
    matrices = tmp_path / "matrices"
    measure_suite(as_specimen(induction_model(word_tokenizer().size)), corpus(), matrices, plan=PLAN)
    scope = Scope(seeds=2, steps=64)
    apart, here = trainings(scope, tmp_path / "apart"), trainings(scope, tmp_path / "here")
    done = list(train_apart(apart, matrices, PLAN, jobs=2))
    assert sorted(training.directory.name for training in done) == sorted(
        p.name for p in (tmp_path / "apart").iterdir()
    )
    assert len(done) == 4
    train_policies(load_suite(matrices, plan=PLAN), here)
    for one, other in zip(apart, here, strict=True):
        first, second = load_policy(one.directory), load_policy(other.directory)
        assert first.curve == second.curve
        weights = second.network.state_dict()
        assert all(tensor.equal(weights[name]) for name, tensor in first.network.state_dict().items())
    other = [replace(apart[0], settings=replace(apart[0].settings, seed=9))]
    with pytest.raises(BadInput, match="another"):
        list(train_apart(other, matrices, PLAN, jobs=1))
