"""PPO: the probability of a draw, reproducibility, resuming, and learning a planted head."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.closeness import adam_bound, largest_difference, mean_difference
from tests.discovery.planted import planted_tables
from vesalius.errors import BadInput
from vesalius.model.states import read_tensors, write_tensors
from vesalius_mechrl.networks import MASKED, NO_HEAD, ActorCritic, draw_candidates, draw_log_prob, entropy
from vesalius_mechrl.ppo import Policy, Rollout, Settings, Trainer, advantages, load_policy, train

pytestmark = pytest.mark.slow

QUICK = Settings(total_steps=2_000, evaluate_every=400, width=32, evaluation_episodes=4)


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return policy.network.state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], *, rounds: int = 1) -> bool:
    """Whether two runs have the same weights after so many rounds, up to rounding error as Adam scales it."""
    updates = rounds * QUICK.epochs * QUICK.minibatches
    return largest_difference(one, other) <= adam_bound(QUICK.learning_rate, updates)


def counts(point: dict[str, Any]) -> list[Any]:
    """The figures of a point that depend on which heads were played."""
    return [pytest.approx(point[name]) for name in ("step", "learning_rate", "running_max", "queries")]


def play_rounds(one: Trainer, other: Trainer, rounds: int) -> Iterator[bool]:
    """Whether two trainers play alike, round by round; each round starts from the weights of the first trainer, so that
    rounding error does not add up to another action.
    """
    for _ in range(rounds):
        other.network.load_state_dict(one.network.state_dict())
        points = one.play_round(), other.play_round()
        yield counts(points[0]) == counts(points[1]) and same(one.network.state_dict(), other.network.state_dict())


def test_the_network_is_the_published_one() -> None:
    network = ActorCritic(2 + 144 + 144, 144)
    assert sum(parameter.numel() for parameter in network.parameters()) == 177_553


def test_the_learning_rate_is_floored_from_four_fifths_on() -> None:
    settings = Settings()
    assert settings.learning_rate_at(0, 500) == 2.5e-4
    assert settings.learning_rate_at(250, 500) == pytest.approx(1.25e-4)
    assert settings.learning_rate_at(400, 500) == settings.learning_rate_at(499, 500) == pytest.approx(5e-5)


def test_the_published_run_has_500_rounds_of_400_steps() -> None:
    trainer = Trainer(planted_tables(best={"t": 1}, heads=144), Settings(width=8))
    assert (trainer.rounds, trainer.round_steps * trainer.settings.games) == (500, 400)
    planner = Trainer(planted_tables(best={"t": 1}, heads=144), Settings(k=5, width=8))
    assert (planner.rounds, planner.round_steps) == (500, 10), "a planner trains on the same number of queries"


def test_draws_have_the_computed_probability() -> None:
    logits = torch.tensor([[0.3, -1.0, 1.2, MASKED]])
    p = logits[0, :3].softmax(0)
    generator = torch.Generator().manual_seed(0)
    n = 40_000
    counts = Counter(map(tuple, draw_candidates(logits.expand(n, -1), 2, generator=generator).tolist()))
    orders = list(itertools.permutations(range(3), 2))
    assert set(counts) == set(orders)
    for first, second in orders:
        exact = float(p[first] * p[second] / (1 - p[first]))
        computed = float(draw_log_prob(logits, torch.tensor([[first, second]])).exp())
        assert computed == pytest.approx(exact, rel=1e-5)
        assert counts[first, second] / n == pytest.approx(exact, abs=5 * (exact / n) ** 0.5)


def test_one_candidate_has_the_probability_of_the_action() -> None:
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    head = torch.tensor([[0], [3], [6], [2], [2]])
    expected = logits.log_softmax(1).gather(1, head)[:, 0]
    assert torch.allclose(draw_log_prob(logits, head), expected)
    padded = torch.cat([head, torch.full((5, 2), NO_HEAD)], 1)
    assert torch.allclose(draw_log_prob(logits, padded), expected)


def test_masked_heads_leave_entropy_and_gradients_finite() -> None:
    logits = torch.zeros(1, 4).masked_fill(torch.tensor([[False, False, True, True]]), MASKED).requires_grad_()
    value = entropy(logits).sum()
    value.backward()
    assert value.item() == pytest.approx(np.log(2), rel=1e-6)
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_advantages_by_hand() -> None:
    """Two steps to the end of a game, then one of a new game: gamma 0.5, lambda 0.5."""
    column = torch.tensor([[1.0], [2.0], [4.0]])
    unused = torch.zeros(3, 1)
    rollout = Rollout(
        observations=unused,
        action_masks=unused,
        actions=unused,
        log_probs=unused,
        values=torch.tensor([[1.0], [1.0], [2.0]]),
        rewards=column,
        dones=torch.tensor([[0.0], [1.0], [0.0]]),
        next_value=torch.tensor([6.0]),
    )
    # last: 4 + 0.5*6 - 2 = 5; middle ends its game: 2 - 1 = 1; first: (1 + 0.5*1 - 1) + 0.25*1 = 0.75
    assert advantages(rollout, 0.5, 0.5)[:, 0].tolist() == [0.75, 1.0, 5.0]


def test_the_seed_decides_everything() -> None:
    tables = planted_tables(best={"a": 3, "b": 11})
    first, again, other = (train(tables, replace(QUICK, seed=seed), rounds=1) for seed in (1, 1, 2))
    assert same(weights(first), weights(again))
    assert [counts(point) for point in first.curve] == [counts(point) for point in again.curve]
    assert not same(weights(first), weights(other))
    assert mean_difference(weights(first), weights(again)) < mean_difference(weights(first), weights(other)) / 100


def test_one_candidate_is_plain_ppo_published_or_corrected() -> None:
    """Without evaluations in between, which the published code lets into training, K = 1 is one algorithm."""
    tables = planted_tables(best={"a": 3, "b": 11})
    published, corrected = (Trainer(tables, replace(QUICK, paper=paper)) for paper in (True, False))
    assert all(play_rounds(published, corrected, 4))


def test_evaluation_leaves_training_alone_unless_it_is_the_published_one() -> None:
    tables = planted_tables(best={"a": 3, "b": 11}, heads=60)
    for paper in (False, True):
        watched, left_alone = (Trainer(tables, replace(QUICK, paper=paper)) for _ in range(2))
        assert all(play_rounds(watched, left_alone, 1))
        watched.evaluate()
        touched = watched.rngs[0].bit_generator.state != left_alone.rngs[0].bit_generator.state
        assert touched == paper
        assert all(play_rounds(watched, left_alone, 1)) != paper


@pytest.mark.parametrize("paper", [False, True])
def test_a_restored_run_plays_on_as_the_whole_one(tmp_path: Path, paper: bool) -> None:
    """Everything that is restored is bit for bit what was saved, and the rounds after it are those of the whole run."""
    tables = planted_tables(best={"a": 3, "b": 11}, heads=60)
    settings = replace(QUICK, k=2, paper=paper)
    whole, restored = Trainer(tables, settings), Trainer(tables, settings)
    for _ in range(2):
        whole.play_round()
        whole.evaluate()
    tensors, data = whole.state()
    write_tensors(tmp_path / "state.safetensors", {name: t.contiguous().clone() for name, t in tensors.items()})
    restored.restore(read_tensors(tmp_path / "state.safetensors"), json.loads(json.dumps(data)))
    again, data_again = restored.state()
    assert again.keys() == tensors.keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in tensors.items())
    assert json.dumps(data_again) == json.dumps(data)
    assert all(play_rounds(whole, restored, 2))


@pytest.mark.parametrize("paper", [False, True])
def test_a_resumed_run_takes_up_its_checkpoint(tmp_path: Path, paper: bool) -> None:
    tables = planted_tables(best={"a": 3, "b": 11}, heads=60)
    settings = replace(QUICK, k=2, paper=paper)
    stopped = train(tables, settings, directory=tmp_path, rounds=3)
    taken_up = train(tables, settings, directory=tmp_path, rounds=3)
    assert all(torch.equal(tensor, weights(taken_up)[name]) for name, tensor in weights(stopped).items())
    assert taken_up.curve == stopped.curve
    whole, resumed = train(tables, settings), train(tables, settings, directory=tmp_path)
    assert resumed.curve[: len(stopped.curve)] == stopped.curve
    assert [point["step"] for point in resumed.curve] == [point["step"] for point in whole.curve]
    loaded = load_policy(tmp_path)
    assert all(torch.equal(tensor, weights(loaded)[name]) for name, tensor in weights(resumed).items())
    assert (loaded.tasks, loaded.heads, loaded.settings) == (tables.names, tables.heads, settings)
    with pytest.raises(BadInput, match="another run"):
        train(tables, replace(settings, seed=5), directory=tmp_path)


@pytest.mark.parametrize(("paper", "k"), [(False, 1), (False, 3), (True, 1), (True, 3)])
def test_every_query_is_counted(paper: bool, k: int) -> None:
    """20 heads, 20 steps: corrected games pay for 20; a published planner has by then looked at all 20 as well."""
    trainer = Trainer(planted_tables(best={"a": 3}), replace(QUICK, paper=paper, k=k))
    assert trainer.play_round()["queries"] == 8 * 20
    short = Trainer(planted_tables(best={"a": 3}), replace(QUICK, paper=paper, k=k, steps=4))
    paid = short.play_round()["queries"]
    assert 8 * (4 + (k - 1)) <= paid <= 8 * 4 * k if paper else paid == 8 * 4


@pytest.mark.parametrize("k", [1, 4])
def test_training_finds_the_planted_heads(k: int) -> None:
    """After training the planted head is among the first picks; before, it is one of 40."""
    best = {"a": 3, "b": 31}
    tables = planted_tables(best=best, heads=40)
    quick = Settings(steps=8, width=64, learning_rate=3e-3, entropy_weight=0.01, minibatches=2)
    settings = replace(quick, k=k, total_steps=8_000)
    policy = train(tables, settings, validation=planted_tables(best=best, heads=40, seed=1))
    legal = torch.ones(1, 40, dtype=torch.bool)
    for number, head in enumerate(best.values()):
        observation = torch.zeros(1, 2 + 80)
        observation[0, number] = 1
        with torch.no_grad():
            logits, _ = policy.network(observation, legal)
        assert logits.softmax(1)[0, head].item() > 5 / 40
    first, last = policy.curve[0]["evaluation"], policy.curve[-1]["evaluation"]
    assert all(last[task] > 2.7 > first[task] for task in best)
