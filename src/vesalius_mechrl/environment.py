"""The search for a head as an environment.

One step ablates one head and gives its reward (see `tables`). The observation is a one-hot of the task, which heads
were tried, and their rewards divided by 5. Tried heads are illegal: trying one again costs 1 and changes nothing. An
episode has 50 steps, or as many as there are heads, and ends by truncation.

`Episodes` plays many games in parallel on arrays; `gym` wraps one of them in the Gymnasium interface. A planner may
pass several candidate heads to one step: the best of them is the step's head. Every head whose reward was measured is a
query, counted once per episode.

With `context` the one-hot is replaced by the mean embedding of the episode's prompts, which a policy encodes itself.
With a `HeadView` the observation is a table of features per head instead, without the task (see `features`);
attribution, which is among them, is paid for when the episode begins.

`paper=True` reproduces the published behaviour with the quirks listed in `PAPER_QUIRKS`. Otherwise the budget counts
queries, every measured reward is observed, and nothing is shared with evaluation.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from vesalius.errors import BadInput, choices
from vesalius_mechrl.clean_features import ATTRIBUTION_PASSES
from vesalius_mechrl.features import FIXED, HeadView
from vesalius_mechrl.tables import Tables

STEPS = 50
REWARD_SCALE = 5.0
REPEAT_PENALTY = -1.0
LAST_SEED = 2**31 - 1

PAPER_QUIRKS = {
    "hidden candidates": "a planner's other candidates are paid for and then forgotten: only the head it commits to is "
    "marked as tried and shown (environment)",
    "steps, not queries": "an episode lasts 50 commitments whatever the planner pays for each (environment)",
    "plain log-probability": "a planned step is stored with the log-probability of its committed head under the plain "
    "policy, which is not how it was chosen (ppo)",
    "evaluation inside training": "evaluation plays in training game 0, reseeds it and leaves it finished; the next "
    "training step acts on the observation from before (ppo)",
    "ranks by insertion": "heads picked equally often are ranked by which came first, ten places in all (evaluate)",
    "different episodes": "policy and oracle are averaged over different numbers of episodes: 20 and 10, or 30 and 15 "
    "for transfer (study)",
    "primed held-out task": "in Table 1 a held-out task shows the label of the first training task (study)",
    "K in training only": "at test time one head is drawn per step, whatever K the policy was trained with (study)",
}


def next_episode(
    rng: np.random.Generator, names: tuple[str, ...], *, seed: int | None = None, task: str | None = None
) -> tuple[int, str]:
    """Seed and task of an episode, drawn in the published order: the seed unless given, then the task unless given."""
    seed = int(rng.integers(0, LAST_SEED)) if seed is None else seed
    return seed, names[int(rng.integers(0, len(names)))] if task is None else task


class Episodes:
    """`n` games in arrays. `labels` are the tasks of the one-hot; a task that is not among them is all zeros, and
    `prime` sets another label instead.
    """

    def __init__(
        self,
        tables: Tables,
        n: int,
        *,
        paper: bool = False,
        steps: int = STEPS,
        labels: tuple[str, ...] | None = None,
        prime: str | None = None,
        view: HeadView | None = None,
        context: bool = False,
    ) -> None:
        self.tables, self.paper, self.prime, self.view, self.context = tables, paper, prime, view, context
        self.labels = tables.names if labels is None else labels
        if prime is not None and prime not in self.labels:
            raise BadInput(f"label {prime!r} is not one of the policy's tasks: {choices(self.labels)}")
        heads = len(tables.heads)
        self.steps = min(steps, heads)
        if context and prime is not None:
            raise BadInput("a policy that reads the prompts has no label; leave `prime` out")
        width = tables.embeddings().shape[1] if context else len(self.labels)
        self.task = np.zeros((n, width), np.float32)
        self.rewards = np.zeros((n, heads))
        self.tried = np.zeros((n, heads), bool)
        self.paid = np.zeros((n, heads), bool)
        self.used = np.zeros(n, np.int64)
        self.best = np.full(n, -np.inf)
        n_shown = 0 if view is None else heads
        self.fixed = np.zeros((n, n_shown, len(FIXED)))
        self.similarity = np.zeros((n, n_shown, n_shown))
        if view is not None and self.steps <= ATTRIBUTION_PASSES:
            raise BadInput(
                f"a budget of {steps} is spent on attribution alone; give at least {ATTRIBUTION_PASSES + 1} queries"
            )

    def begin(self, game: int, seed: int, task: str) -> None:
        """Start the episode of this seed in one game."""
        labels = [float(label == (self.prime or task)) for label in self.labels]
        self.task[game] = self.tables.embedding(task, seed) if self.context else labels
        self.rewards[game] = self.tables.episode(task, seed)
        self.tried[game], self.paid[game] = False, False
        self.used[game], self.best[game] = 0, -np.inf
        if self.view is not None:
            self.used[game] = ATTRIBUTION_PASSES
            self.fixed[game] = self.view.fixed(self.tables.attribution(task, seed), self.tables.attention(task, seed))
            self.similarity[game] = self.view.similarity(self.fixed[game])

    @property
    def legal(self) -> Bool[np.ndarray, "game head"]:
        """Heads not tried yet."""
        return ~self.tried

    @property
    def queries(self) -> Int[np.ndarray, " game"]:
        """Number of heads whose reward was measured, each counted once."""
        return self.paid.sum(1)

    @property
    def finished(self) -> Bool[np.ndarray, " game"]:
        """Whether the budget is spent: 50 steps (published), or 50 queries."""
        return self.used >= self.steps

    def observe(self) -> Float[np.ndarray, "game ..."]:
        """One-hot of the task, tried heads, and their rewards divided by 5 (0 where untried); or features per head."""
        if self.view is not None:
            spent = self.used / self.steps
            return self.view.observe(self.fixed, self.similarity, self.tried, self.rewards, spent)
        known_rewards = np.where(self.tried, self.rewards / REWARD_SCALE, 0.0)
        return np.concatenate([self.task, self.tried, known_rewards], 1, dtype=np.float32)

    def width(self, k: int) -> int:
        """The number of candidates of the next step: `k`, or fewer if heads or queries run out."""
        left = int(self.legal.sum(1).min())
        return max(1, min(k, left) if self.paper else min(k, left, int((self.steps - self.used).min())))

    def step(
        self, candidates: Int[np.ndarray, "game k"], games: slice = slice(None)
    ) -> tuple[Float[np.ndarray, " game"], Int[np.ndarray, " game"]]:
        """Measure each game's candidates and commit to the best; returns its reward and its head."""
        index = np.arange(len(self.used))[games]
        rewards = self.rewards[index[:, None], candidates]
        best_candidate = rewards.argmax(1)
        head = candidates[np.arange(len(index)), best_candidate]
        is_repeated = self.tried[index, head]
        reward = np.where(is_repeated, REPEAT_PENALTY, rewards.max(1))
        self.paid[index[:, None], candidates] = True
        self.tried[index, head] = True
        if not self.paper:
            self.tried[index[:, None], candidates] = True
        self.used[index] += 1 if self.paper else candidates.shape[1]
        self.best[index] = np.where(is_repeated, self.best[index], np.maximum(self.best[index], reward))
        return reward, head
