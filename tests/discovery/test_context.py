"""A learned encoder of the prompts in place of the task's label, and a reward in one unit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.mechrl_options import RESULT, shares, table

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.discovery.planted import planted_tables
from tests.discovery.test_matrices import corpus
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.behaviours.natural import with_behaviour
from vesalius.behaviours.trial import trial
from vesalius.errors import BadInput
from vesalius.intervene import Batch
from vesalius.intervene.values import mean_embedding
from vesalius_mechrl.documents import MethodRegret, TaskRegret
from vesalius_mechrl.environment import Episodes
from vesalius_mechrl.networks import WithEncoder
from vesalius_mechrl.ppo import Settings, load_policy, save_policy, train
from vesalius_mechrl.study import policy_orders, study
from vesalius_mechrl.suite import SuitePlan, load_suite, measure_suite, missing_sources
from vesalius_mechrl.tables import FeatureTables, Tables
from vesalius_mechrl.trainings import Scope, train_policies, trainings

ROOT = Path(__file__).parents[2]
SIZE = word_tokenizer().size
POOLS = {"train": 4, "validation": 3, "test": 4}
PLAN = SuitePlan(
    POOLS, POOLS, rows=3, control_length=8, held_out=("induction-out",), block=4, unit="nats", context=True
)


def with_prompts(tables: Tables, width: int = 3) -> Tables:
    """Tables whose tasks lie around different points of embedding space."""
    rng = np.random.default_rng(0)
    rows = {
        name: (rng.normal(0, 0.1, (len(table), width)) + place).astype(np.float32)
        for place, (name, table) in enumerate(tables.tasks.items())
    }
    heads = len(tables.heads)
    attribution = {name: np.zeros((len(table), heads), np.float32) for name, table in tables.tasks.items()}
    attention = {name: np.zeros((len(table), heads, 4), np.float32) for name, table in tables.tasks.items()}
    return replace(tables, features=FeatureTables(attribution, None, attention, rows))


def test_an_embedding_is_the_mean_over_real_tokens() -> None:
    model = induction_model(SIZE)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 0]])
    found = mean_embedding(model, Batch(tokens, torch.tensor([[True, True, True], [True, True, False]])))
    by_hand = torch.stack([model.W_E[[1, 2, 3]].mean(0), model.W_E[[4, 5]].mean(0)])
    assert torch.allclose(found, by_hand.detach(), atol=1e-6)


def test_the_encoder_standardises_and_ignores_what_does_not_vary() -> None:
    network = WithEncoder(3, 4, generator=torch.Generator().manual_seed(0))
    network.standardise(torch.tensor([[1.0, 5.0, 0.0], [3.0, 5.0, 4.0]]))
    assert network.mean.tolist() == [2, 5, 2]
    assert network.spread.tolist() == [1, torch.inf, 2]
    legal = torch.ones(2, 4, dtype=torch.bool)
    one, other = torch.zeros(2, 11), torch.zeros(2, 11)
    other[:, 1] = 7.0
    assert torch.equal(network(one, legal)[0], network(other, legal)[0]), (
        "the second coordinate is constant in training"
    )
    other[:, 0] = 7.0
    assert not torch.equal(network(one, legal)[0], network(other, legal)[0])


@pytest.mark.slow
def test_a_policy_tells_tasks_by_their_prompts_alone(tmp_path: Path) -> None:
    """Two tasks whose best heads differ, told apart by the embedding alone: first picks follow the prompts."""
    tables = with_prompts(planted_tables(best={"a": 3, "b": 11}))
    quick = {"total_steps": 9_600, "games": 32, "steps": 3, "minibatches": 2, "evaluate_every": 9_600, "width": 32}
    settings = Settings(view="prompts", learning_rate=5e-3, entropy_weight=0.01, **quick)
    policy = train(tables, settings)
    for task, head in (("a", 3), ("b", 11)):
        orders = policy_orders(policy, tables, task, range(20), seed=1)
        assert sum(order[0] == head for order in orders) >= 12
        assert all(len(order) == 3 for order in orders), "three queries; reading the prompts costs none"
    save_policy(policy, tmp_path)
    again = load_policy(tmp_path)
    assert policy_orders(again, tables, "a", range(5)) == policy_orders(policy, tables, "a", range(5))
    with pytest.raises(BadInput, match="has no label"):
        policy_orders(policy, tables, "a", range(5), prime="b")
    with pytest.raises(BadInput, match="no prompt embeddings"):
        Episodes(planted_tables(best={"a": 3}), 1, context=True)
    with pytest.raises(BadInput, match="the published policy has view one-hot"):
        Settings(view="prompts", paper=True)


@pytest.mark.slow
def test_a_suite_in_nats_with_embeddings(tmp_path: Path) -> None:
    """The task's damage is in nats of the answer, like the control's; the study then has the encoder's policy."""
    specimen = as_specimen(induction_model(SIZE))
    measure_suite(specimen, corpus(), tmp_path, plan=PLAN)
    suite = load_suite(tmp_path, plan=PLAN)
    assert suite.test.unit == "nats - 1 * nats"
    here = trial(with_behaviour(specimen, "ioi"), POOLS["test"], split="test").batch
    assert np.allclose(suite.test.embeddings()[4:8], mean_embedding(specimen.model, here).numpy(), atol=1e-6)
    with pytest.raises(BadInput, match="induction: was measured in nats, not in logits"):
        load_suite(tmp_path, plan=replace(PLAN, unit="logits"))
    (tmp_path / "ioi" / "prompt_embeddings.safetensors").unlink()
    assert missing_sources(tmp_path, PLAN) == ["ioi"]
    assert missing_sources(tmp_path, replace(PLAN, context=False)) == []
    measure_suite(specimen, corpus(), tmp_path, plan=PLAN)
    scope = Scope(seeds=1, steps=64, episodes=2, budgets=(1, 4, 8), context=("prompts",), picks=8)
    jobs = [job for job in trainings(scope, tmp_path / "policies") if job.name != "per-head"]
    document = study(suite, train_policies(suite, jobs), scope)
    conditions = {row["condition"] for row in document["table4"] if row["method"] == "prompt-encoder best-of-5"}
    assert conditions == {"no label"}
    methods = {method["method"]: method for method in document["regret"][0]["methods"]}
    assert methods["prompt-encoder"]["budgets"] == methods["one-hot"]["budgets"], "the same account of queries"
    with pytest.raises(BadInput, match="reward 'bits' does not exist; choose one of logits, nats"):
        replace(PLAN, unit="bits")


def test_the_tables_have_the_recorded_figures_of_both_rewards() -> None:
    records = json.loads((ROOT / RESULT).read_text(encoding="utf-8"))
    assert table(records) in (ROOT / "benchmarks" / "results" / "tables.md").read_text(encoding="utf-8")
    # The unit of the reward changes what is read off at the end of a pass, not how many passes there are.
    assert records["logits"]["forwards"] == records["nats"]["forwards"]
    bounds = {"mean": (1.0, 0.5), "low": (0.5, 0.25), "high": (1.5, 0.75)}
    regret = MethodRegret(method="prompt-encoder", budgets=(10.0, 50.0), seeds=(), **bounds)
    task = TaskRegret(task="t", unit="nats", episodes=1, seeds=2, oracle=4.0, methods=(regret,))
    assert shares(task) == {"prompt-encoder": {"10": [0.25, 0.125, 0.375], "50": [0.125, 0.0625, 0.1875]}}
