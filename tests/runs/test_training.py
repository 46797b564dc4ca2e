"""Policies trained in processes of their own are the policies trained here."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.closeness import adam_bound, largest_difference, mean_difference
from tests.discovery.test_matrices import corpus
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.runs.engine import Failure, map_cases
from vesalius_mechrl.benchmark import TrainingCase, train_case
from vesalius_mechrl.ppo import load_policy
from vesalius_mechrl.suite import SuitePlan, load_suite, measure_suite
from vesalius_mechrl.trainings import Scope, train_policies, trainings

pytestmark = pytest.mark.slow
POOLS = {"train": 4, "validation": 3, "test": 4}
PLAN = SuitePlan(POOLS, POOLS, rows=3, control_length=8, held_out=(), block=4)


def counts(point: dict[str, Any]) -> dict[str, Any]:
    """What a point of a learning curve says that rounding does not change, at which learning rate, on which tasks."""
    exact = {name: point[name] for name in ("step", "queries", "evaluation_queries")}
    return {**exact, "learning_rate": pytest.approx(point["learning_rate"]), "tasks": set(point["evaluation"])}


def test_two_at_a_time_or_one_after_the_other(tmp_path: Path) -> None:
    matrices = tmp_path / "matrices"
    measure_suite(as_specimen(induction_model(word_tokenizer().size)), corpus(), matrices, plan=PLAN)
    scope = Scope(seeds=2, steps=64)
    apart, here = trainings(scope, tmp_path / "apart"), trainings(scope, tmp_path / "here")
    cases = [TrainingCase(training.directory.name, training, matrices, PLAN) for training in apart]
    done = [case.id for case, result in map_cases(train_case, cases, jobs=2) if result is None]
    assert sorted(done) == sorted(p.name for p in (tmp_path / "apart").iterdir())
    assert len(done) == 4
    train_policies(load_suite(matrices, plan=PLAN), here)
    for one, other in zip(apart, here, strict=True):
        first, second = load_policy(one.directory), load_policy(other.directory)
        assert [counts(point) for point in first.curve] == [counts(point) for point in second.curve]
        # Processes round differently, and Adam scales a gradient that is rounding error up to a whole step. There is
        # one round: 64 steps are 8 games of 8 heads.
        updates = one.settings.epochs * one.settings.minibatches
        weights = [policy.network.state_dict() for policy in (first, second)]
        assert largest_difference(*weights) <= adam_bound(one.settings.learning_rate, updates)
        same_kind = [load_policy(training.directory) for training in here if training.name == one.name]
        between_seeds = mean_difference(*(policy.network.state_dict() for policy in same_kind))
        assert mean_difference(*weights) < between_seeds / 100
    other = replace(apart[0], settings=replace(apart[0].settings, seed=9))
    ((_, failure),) = map_cases(train_case, [TrainingCase("other", other, matrices, PLAN)], jobs=1)
    assert isinstance(failure, Failure)
    assert (failure.kind, "another" in failure.reason) == ("refused", True)
