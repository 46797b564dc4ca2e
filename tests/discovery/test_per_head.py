"""The per-head policy: its features by hand, what it cannot observe, and transfer to other models."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.discovery.planted import planted_tables
from tests.discovery.test_strategies import with_attribution
from vesalius.errors import BadInput
from vesalius.intervene import Batch, attribute, logit_difference
from vesalius.intervene.ablations import ablation_named
from vesalius_mechrl.environment import FEATURES, Episodes, HeadView
from vesalius_mechrl.matrices import Rows
from vesalius_mechrl.methods import packaged_policy
from vesalius_mechrl.networks import PerHead, draw_candidates
from vesalius_mechrl.ppo import load_policy, play, save_policy, train
from vesalius_mechrl.settings import PER_HEAD, Settings
from vesalius_mechrl.study import policy_orders, start_episodes
from vesalius_mechrl.tables import (
    ATTENTION_TARGETS,
    measure_clean_features,
    target_keys,
)

QUICK = replace(PER_HEAD, total_steps=160, steps=8, width=8, games=4, evaluation_episodes=2)


def column(observation: np.ndarray, name: str) -> np.ndarray:
    return observation[0, :, FEATURES.index(name)]


def test_features_by_hand() -> None:
    view = HeadView.of(("L0H0", "L0H1", "L2H0", "L2H1"))
    fixed = view.fixed(np.array([4.0, -8.0, 0.0, 2.0]), np.zeros((4, len(ATTENTION_TARGETS))))
    tried, rewards = np.array([[True, False, True, True]]), np.array([[2.0, 99.0, -4.0, 1.0]])
    observation = view.observe(fixed[None], view.similarity(fixed)[None], tried, rewards, np.array([0.5]))
    assert observation.shape == (1, 4, len(FEATURES))
    assert column(observation, "depth").tolist() == [0, 0, 1, 1]
    assert column(observation, "attribution").tolist() == [0.5, -1, 0, 0.25]
    assert column(observation, "attribution rank") == pytest.approx([1, -1, -1 / 3, 1 / 3])
    assert column(observation, "score").tolist() == [0.5, 0, -1, 0.25], (
        "divided by the largest; untried ones are not shown"
    )
    assert column(observation, "layer mean").tolist() == [0.5, 0.5, -0.375, -0.375]
    assert column(observation, "layer tried").tolist() == [0.5, 0.5, 1, 1]
    assert set(column(observation, "best")) == {0.5}
    assert column(observation, "mean") == pytest.approx([-0.25 / 3] * 4)
    correlation = np.corrcoef([0.5, 0, 0.25], [0.5, -1, 0.25])[0, 1]
    assert column(observation, "attribution tells") == pytest.approx([correlation] * 4, abs=1e-5)


def test_neither_the_task_nor_an_untried_score_is_shown() -> None:
    tables = with_attribution(planted_tables(best={"a": 3, "b": 11}))
    same = replace(tables, tasks={"a": tables.tasks["a"], "b": tables.tasks["a"] * 2})
    features = same.features
    assert features is not None
    twice = replace(features, attribution={"a": features.attribution["a"], "b": features.attribution["a"]})
    attention = {"a": features.attention["a"], "b": features.attention["a"]}
    same = replace(same, features=replace(twice, attention=attention), control=None)
    games = Episodes(same, 2, view=HeadView.of(same.heads))
    games.begin(0, 5, "a")
    games.begin(1, 5, "b")
    games.step(np.array([[7], [7]]))
    assert games.observe()[0] == pytest.approx(games.observe()[1], abs=1e-6)
    assert games.used.tolist() == [4, 4], "attribution was paid for"


def test_the_order_of_heads_does_not_matter() -> None:
    network = PerHead(5, width=8, generator=torch.Generator().manual_seed(0))
    torch.nn.init.normal_(network.straight.weight)
    seen, legal = torch.randn(2, 6, 5), torch.ones(2, 6, dtype=torch.bool)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    logits, value = network(seen, legal)
    moved, same = network(seen[:, order], legal)
    assert torch.allclose(moved, logits[:, order], atol=1e-6)
    assert torch.allclose(same, value, atol=1e-6)


@pytest.mark.slow
def test_a_policy_crosses_to_a_model_of_other_heads_and_survives_the_disk(tmp_path: Path) -> None:
    trained = with_attribution(planted_tables(best={"a": 3, "b": 11}))
    policy = train(trained, QUICK)
    save_policy(policy, tmp_path)
    loaded = load_policy(tmp_path)
    other = with_attribution(planted_tables(best={"c": 30}, heads=36), seed=3)
    orders = [policy_orders(each, other, "c", [1, 2]) for each in (policy, loaded)]
    assert orders[0] == orders[1]
    assert all(len(set(order)) == len(order) == 8 - 3 for order in orders[0])
    with pytest.raises(BadInput, match="no attribution and no attention"):
        policy_orders(policy, planted_tables(best={"c": 30}, heads=36), "c", [1])


@pytest.mark.slow
def test_training_learns_to_follow_attribution() -> None:
    tables = with_attribution(planted_tables(best={"a": 3, "b": 11}, noise=0.1))
    policy = train(tables, replace(QUICK, total_steps=3200, steps=13))
    orders = policy_orders(policy, with_attribution(planted_tables(best={"c": 17}), seed=9), "c", list(range(20)))
    assert np.mean([17 in order[:4] for order in orders]) > 0.6, "a random order has it there one time in five"


def test_best_of_one_is_the_plain_policy() -> None:
    tables = with_attribution(planted_tables(best={"a": 3}))
    for settings in (QUICK, Settings(total_steps=64, steps=8, width=8, games=4), Settings(paper=True, steps=8)):
        policy = train(tables, settings, rounds=0)
        planned = play(
            policy.network, start_episodes(policy, tables, "a", [4]), k=1, generator=torch.Generator().manual_seed(2)
        )
        games, generator, sampled = start_episodes(policy, tables, "a", [4]), torch.Generator().manual_seed(2), []
        while not games.finished[0]:
            logits, _ = policy.network(torch.from_numpy(games.observe()), torch.from_numpy(games.legal))
            sampled.append(int(draw_candidates(logits, 1, generator=generator)[0, 0]))
            games.step(np.array([[sampled[-1]]]))
        assert planned == [sampled]


def test_published_settings_cannot_be_mixed_with_corrected_ones() -> None:
    with pytest.raises(BadInput, match="the published policy"):
        Settings(paper=True, view="per-head")
    with pytest.raises(BadInput, match="view is one of"):
        Settings(view="sideways")
    tables = with_attribution(planted_tables(best={"a": 3}))
    with pytest.raises(BadInput, match="spent on attribution alone"):
        Episodes(tables, 1, steps=3, view=HeadView.of(tables.heads))


def test_target_keys_by_hand() -> None:
    places = target_keys(torch.tensor([[9, 5, 7, 5]]))[0]
    previous, copy, after, first = places.unbind(-1)
    assert previous.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert copy.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert after.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    assert first.sum(0).tolist() == [4, 0, 0, 0]


def test_the_packaged_policy_is_of_the_corrected_kind() -> None:
    policy = packaged_policy()
    assert policy.settings.view == "per-head"
    assert policy.tasks == ("induction", "ioi")


def test_features_are_the_columns_of_the_requested_heads() -> None:
    from tests.models import random_model, small_config

    model = random_model(small_config())
    tokens = torch.randint(0, model.config.d_vocab, (3, 6), generator=torch.Generator().manual_seed(0))
    batch, readout = Batch(tokens), logit_difference(*torch.tensor([[5, 5, 5], [0, 1, 2], [3, 4, 5]]))
    heads = [part for part in model.components if part.is_head][::-2]
    features = measure_clean_features(model, Rows(batch, readout, None), kind="zero", heads=heads)
    every = attribute(model, batch, readout, ablation_named("zero").table(model, batch))
    assert torch.allclose(features.attribution, every[:, [model.components.index(head) for head in heads]].float())
    pattern = model.run_with_cache(tokens)[1][f"blocks.{heads[0].layer}.attn.hook_pattern"][:, heads[0].head]
    first = pattern[:, 1:, 0].mean(1)
    assert torch.allclose(features.attention[:, 0, ATTENTION_TARGETS.index("first")], first, atol=1e-6)
