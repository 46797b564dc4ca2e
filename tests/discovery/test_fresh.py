"""Fresh batches: which episodes a training plays is known before it, and each is measured on prompts of its own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.discovery.planted import planted_tables
from tests.discovery.test_matrices import corpus
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.behaviours.trial import trial
from vesalius.errors import BadInput
from vesalius_mechrl.fresh import FOLDER, IDENTITY_FILE, TEST, TRAIN, EpisodeMeasurement
from vesalius_mechrl.networks import WithRewardEncoder
from vesalius_mechrl.ppo import train
from vesalius_mechrl.settings import Settings
from vesalius_mechrl.tables import Tables
from vesalius_mechrl.trainings import (
    RUNS,
    Scope,
    Training,
    entropies,
    episodes_of,
    episodes_of_tables,
    training_episodes,
    trainings,
)

TASKS = ("induction", "ioi")
QUICK = {"total_steps": 320, "steps": 5, "evaluate_every": 80, "evaluation_episodes": 2, "width": 8}


class Asked(Tables):
    """Tables that note which episodes are played."""

    def episode(self, task: str, seed: int) -> np.ndarray:
        SEEN.append((task, seed))
        return super().episode(task, seed)


SEEN: list[tuple[str, int]] = []


@pytest.mark.parametrize("settings", [*RUNS[True].values(), Settings(paper=True, games=1), Settings(k=2)])
def test_the_episodes_of_a_training_are_known_before_it(settings: Settings) -> None:
    """A training that learns, its evaluations in a training game included, against one that only looks at the seeds."""
    planted = planted_tables(best={"induction": 3, "ioi": 11})
    tables = Asked(planted.heads, planted.tasks, rows=planted.rows)
    settings = replace(settings, **QUICK, minibatches=2)
    SEEN.clear()
    train(tables, settings)
    assert list(dict.fromkeys(SEEN)) == episodes_of(settings, TASKS, planted.heads)
    assert len({seed for _, seed in SEEN}) > 8


def test_k_of_5_needs_no_batches_beyond_those_of_1(tmp_path: Path) -> None:
    scope = Scope(paper=True, seeds=2, steps=400, picks=5)
    jobs = trainings(scope, tmp_path)
    heads = planted_tables(best={"induction": 3, "ioi": 11}).heads
    both, one = (training_episodes(part, TASKS, heads) for part in (jobs, jobs[:2]))
    assert [job.settings.k for job in jobs] == [1, 1, 5, 5]
    assert both == one
    games_of_two_seeds = {101 + game for game in range(9)}
    assert games_of_two_seeds <= {seed for _, seed in both}, "the streams of two seeds overlap, as published"
    tested = list(episodes_of_tables(scope, ("induction", "docstring"), ("docstring",)))
    assert sum(task == "induction" for task, _ in tested) == 2 * 30
    assert len(set(tested)) == len(tested)


def test_an_episode_is_measured_on_its_own_prompts(tmp_path: Path) -> None:
    """Against hooks that set one head's output to nothing, on the prompts that the episode's seed draws."""
    specimen = as_specimen(induction_model(word_tokenizer().size))
    heads = tuple(str(component) for component in specimen.model.components if component.is_head)
    measurement = EpisodeMeasurement.of(specimen, corpus(), tmp_path, split=TRAIN, rows=4, heads=heads, length=8)
    episodes = measurement.episodes
    assert measurement.measure([("induction", 101), ("induction", 102)]) == 2
    assert measurement.measure([("induction", 101), ("induction", 103)]) == 1, "one was measured before"
    drawn = trial(replace(specimen, behaviour="induction"), 4, seed=101, split="train")
    other = trial(replace(specimen, behaviour="induction"), 4, seed=102, split="train")
    assert not {tuple(row) for row in drawn.batch.tokens.tolist()} & {tuple(row) for row in other.batch.tokens.tolist()}
    prompts, rows = drawn.prompts, torch.arange(4)
    assert prompts is not None
    for head in ("L0H0", "L1H0", "L1H1"):
        layer, place = int(head[1]), int(head[3])

        def silence(z: torch.Tensor, _: object, place: int = place) -> torch.Tensor:
            return z.index_fill(2, torch.tensor([place]), 0.0)

        def score(hooks: list) -> torch.Tensor:
            logits = specimen.model.run_with_hooks(prompts.tokens, mask=prompts.mask, fwd_hooks=hooks)
            last = logits[rows, prompts.position]
            return (last[rows, prompts.correct] - last[rows, prompts.wrong]).detach()

        by_hand = score([]) - score([(f"blocks.{layer}.attn.hook_z", silence)])
        assert episodes.read("induction", 101, "task")[0, heads.index(head)] == pytest.approx(
            float(by_hand.mean()), abs=1e-4
        )


def test_tables_look_fresh_episodes_up_and_refuse_others(tmp_path: Path) -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    heads = tuple(str(component) for component in specimen.model.components if component.is_head)
    measurement = EpisodeMeasurement.of(specimen, corpus(), tmp_path, split=TEST, rows=3, heads=heads, length=8)
    measurement.measure([("induction", 10_000_000)])
    episodes = measurement.episodes
    pool = np.zeros((3, len(heads)), np.float32)
    tables = Tables(heads, {"induction": pool}, pool, rows=3)
    fresh = replace(tables, fresh=episodes)
    task, control = (episodes.read("induction", 10_000_000, name) for name in ("task", "control"))
    assert task.shape == control.shape == (3, len(heads))
    assert np.allclose(fresh.episode("induction", 10_000_000), (task - control).mean(0))
    assert np.abs(task).max() > 0.1
    assert not tables.episode("induction", 10_000_000).any(), "the pool's rows are another matter"
    assert fresh.digest() != tables.digest()
    with pytest.raises(BadInput, match="the episode was not measured"):
        fresh.episode("induction", 5)


@pytest.mark.parametrize(
    ("changed", "said"), [("model", "another model"), ("control", "control text"), ("heads", "choice of heads")]
)
def test_episodes_of_something_else_are_refused(tmp_path: Path, changed: str, said: str) -> None:
    """Before anything is measured on top of them, and where they would be read."""
    specimen = as_specimen(induction_model(word_tokenizer().size))
    heads = ("L0H0", "L1H0")
    measurement = EpisodeMeasurement.of(specimen, corpus(), tmp_path, split=TEST, rows=2, heads=heads, length=8)
    assert measurement.measure([("induction", 7)]) == 1
    episodes = measurement.episodes
    assert not episodes.missing([("induction", 7)])
    value = ("L0H0", "L1H1") if changed == "heads" else "other"
    other = replace(episodes, identity=replace(episodes.identity, **{changed: value}))
    for ask in (lambda: other.missing([("induction", 7)]), lambda: other.read("induction", 7, "task")):
        with pytest.raises(BadInput, match=said):
            ask()
    longer = EpisodeMeasurement.of(specimen, corpus(), tmp_path, split=TEST, rows=2, heads=heads, length=9)
    with pytest.raises(BadInput, match="another length"):
        longer.measure([("induction", 7)])
    (tmp_path / FOLDER / IDENTITY_FILE).unlink()
    with pytest.raises(BadInput, match="is not known"):
        episodes.missing([("induction", 7)])


def test_the_code_of_rewards_does_not_depend_on_their_order_and_follows_them() -> None:
    network = WithRewardEncoder(4, width=8, generator=torch.Generator().manual_seed(0))
    legal = torch.ones(3, 4, dtype=torch.bool)
    tried = torch.tensor([[0, 0, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0]]).float()
    rewards = torch.tensor([[0.0, 0, 0, 0], [0.9, 0, 0.1, 0], [0.1, 0, 0.9, 0]])
    seen = torch.cat([tried, rewards], 1)
    logits, values = network(seen, legal)
    assert not torch.allclose(logits[1], logits[2]), "which head had the reward matters"
    unseen = seen.clone()
    unseen[0, 4:] = 3.0  # the rewards of heads that were not tried
    code_of = torch.cat([network(unseen[:1] * torch.tensor([1.0] * 4 + [0.0] * 4), legal[:1])[0], logits[:1]])
    assert torch.equal(code_of[0], code_of[1])
    assert values.shape == (3,)


def test_a_single_environment_learns_in_as_many_updates_and_its_entropy_is_kept(tmp_path: Path) -> None:
    scope = Scope(paper=True, seeds=1, steps=800, picks=5, collapse=True)
    jobs = {job.name: job for job in trainings(scope, tmp_path)}
    single, eight = jobs["single environment"].settings, jobs["paper K=1"].settings
    assert (single.games, single.total_steps) == (1, 100)
    assert (eight.games, eight.total_steps) == (8, 800)
    tables = planted_tables(best={"induction": 3, "ioi": 11})
    policies = {
        name: [train(tables, replace(job.settings, width=8, evaluation_episodes=1))] for name, job in jobs.items()
    }
    curves = entropies(policies)
    assert set(curves) == set(jobs)
    for name, (curve,) in curves.items():
        assert len(curve) == 20, name
        assert 0 < curve[-1]["entropy"] <= np.log(len(tables.heads)) + 1e-6
    assert curves["paper K=1"][0][0]["entropy"] == pytest.approx(np.log(len(tables.heads)), abs=0.05), "at first any"


def test_a_training_names_its_directory(tmp_path: Path) -> None:
    names = {job.directory.name for job in trainings(Scope(seeds=1, context=("rewards", "prompts")), tmp_path)}
    assert names == {"one-hot-seed1", "per-head-seed1", "reward-encoder-seed1", "prompt-encoder-seed1"}
    assert all(isinstance(job, Training) for job in trainings(Scope(seeds=1), tmp_path))
