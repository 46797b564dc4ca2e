"""The search for a head as a game.

One step replaces one head and pays with its reward (see `tables`). The observation is a one-hot of the task, which
heads were tried, and their rewards divided by 5. Tried heads are illegal: trying one again costs 1 and changes nothing.
An episode has 50 steps, or as many as there are heads, and ends by truncation.

`Episodes` plays many games side by side on arrays; `gym` puts one of them behind the Gymnasium interface. A planner may
hand several candidate heads to one step: the best of them is the step's head. Every head whose reward was looked at is
a query paid for, once per episode.

With a `HeadView` a game shows features of every head instead, and nothing of the task (see `features`); attribution,
which is among them, is paid for when the episode begins.

`paper=True` reproduces the published behaviour, quirks included; `PAPER_QUIRKS` says which. Otherwise the budget counts
queries, everything paid for is seen, and nothing is shared with evaluation.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from vesalius.discovery.clean_features import ATTRIBUTION_PASSES
from vesalius.discovery.mechrl.features import FIXED, HeadView
from vesalius.discovery.mechrl.tables import Tables
from vesalius.errors import BadInput, choices

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
    """`n` games in arrays. `labels` are the tasks of the one-hot; a task that is not among them shows as zeros, and
    `prime` shows another label in its place.
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
    ) -> None:
        self.tables, self.paper, self.prime, self.view = tables, paper, prime, view
        self.labels = tables.names if labels is None else labels
        if prime is not None and prime not in self.labels:
            raise BadInput(f"label {prime!r} is not one of the policy's tasks: {choices(self.labels)}")
        heads = len(tables.heads)
        self.steps = min(steps, heads)
        self.task = np.zeros((n, len(self.labels)), np.float32)
        self.rewards = np.zeros((n, heads))
        self.tried = np.zeros((n, heads), bool)
        self.paid = np.zeros((n, heads), bool)
        self.used = np.zeros(n, np.int64)
        self.best = np.full(n, -np.inf)
        shown = 0 if view is None else heads
        self.fixed = np.zeros((n, shown, len(FIXED)))
        self.alike = np.zeros((n, shown, shown))
        if view is not None and self.steps <= ATTRIBUTION_PASSES:
            raise BadInput(f"a budget of {steps} is spent on attribution alone; at least {ATTRIBUTION_PASSES + 1}")

    def begin(self, game: int, seed: int, task: str) -> None:
        """Start the episode of this seed in one game."""
        self.task[game] = [float(label == (self.prime or task)) for label in self.labels]
        self.rewards[game] = self.tables.episode(task, seed)
        self.tried[game], self.paid[game] = False, False
        self.used[game], self.best[game] = 0, -np.inf
        if self.view is not None:
            self.used[game] = ATTRIBUTION_PASSES
            self.fixed[game] = self.view.fixed(self.tables.attribution(task, seed), self.tables.attention(task, seed))
            self.alike[game] = self.view.alike(self.fixed[game])

    @property
    def legal(self) -> Bool[np.ndarray, "game head"]:
        """Heads not tried yet."""
        return ~self.tried

    @property
    def queries(self) -> Int[np.ndarray, " game"]:
        """Heads whose reward was looked at, each counted once."""
        return self.paid.sum(1)

    @property
    def finished(self) -> Bool[np.ndarray, " game"]:
        """Whether the budget is spent: 50 steps (published), or 50 queries."""
        return self.used >= self.steps

    def observe(self) -> Float[np.ndarray, "game ..."]:
        """One-hot of the task, tried heads, and their rewards divided by 5 (0 where untried); or features per head."""
        if self.view is not None:
            spent = self.used / self.steps
            return self.view.observe(self.fixed, self.alike, self.tried, self.rewards, spent)
        shown = np.where(self.tried, self.rewards / REWARD_SCALE, 0.0)
        return np.concatenate([self.task, self.tried, shown], 1, dtype=np.float32)

    def width(self, k: int) -> int:
        """How many candidates the next step takes: `k`, less where heads or queries run out."""
        left = int(self.legal.sum(1).min())
        return max(1, min(k, left) if self.paper else min(k, left, int((self.steps - self.used).min())))

    def step(
        self, candidates: Int[np.ndarray, "game k"], games: slice = slice(None)
    ) -> tuple[Float[np.ndarray, " game"], Int[np.ndarray, " game"]]:
        """Pay for each game's candidates and commit to the best; its reward and its head."""
        which = np.arange(len(self.used))[games]
        found = self.rewards[which[:, None], candidates]
        place = found.argmax(1)
        head = candidates[np.arange(len(which)), place]
        repeated = self.tried[which, head]
        reward = np.where(repeated, REPEAT_PENALTY, found.max(1))
        self.paid[which[:, None], candidates] = True
        self.tried[which, head] = True
        if not self.paper:
            self.tried[which[:, None], candidates] = True
        self.used[which] += 1 if self.paper else candidates.shape[1]
        self.best[which] = np.where(repeated, self.best[which], np.maximum(self.best[which], reward))
        return reward, head
