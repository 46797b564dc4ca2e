"""The search for a head as an environment.

One step ablates one head and gives its reward (see `tables`). The observation is a one-hot of the task, which heads
were tried, and their rewards divided by 5. Tried heads are illegal: trying one again costs 1 and changes nothing. An
episode has 50 steps, or as many as there are heads, and ends by truncation.

`Episodes` plays many games in parallel on arrays; `gym` wraps one of them in the Gymnasium interface. A planner may
pass several candidate heads to one step: the best of them is the step's head. Every head whose reward was measured is a
query, counted once per episode.

With `context` the one-hot is replaced by the mean embedding of the episode's prompts, which a policy encodes itself;
without `labels` there is none.
With a `HeadView` the observation is a table of features per head instead, without the task (below);
attribution, which is among them, is paid for when the episode begins.

`paper=True` reproduces the published behaviour with the quirks listed in `PAPER_QUIRKS`. Otherwise the budget counts
queries, every measured reward is observed, and nothing is shared with evaluation.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from vesalius.components import Component
from vesalius.errors import BadInput, choices
from vesalius.statistics import average_ranks
from vesalius_mechrl.tables import ATTENTION_TARGETS, ATTRIBUTION_PASSES, Tables

# Per-head features: what a policy observes of each head, without its name.
#
# No feature identifies the task or the model, and all are scaled (scores are divided by the largest so far,
# attributions by the largest), so the same weights can be used on another task and on a model with other heads.
#
# - of the clean run: depth, place in the layer, attribution and its rank, and attention (`ATTENTION_TARGETS`);
# - of the head: whether it was tried, its score;
# - of other heads: mean score and share tried of its layer, mean score of nearby layers, and mean score of heads with
#   similar attention and attribution (a kernel over both);
# - of the search: best score, mean score, correlation of attribution with the scores so far, and the share spent.

FIXED = ("depth", "place", "attribution", "attribution rank", *ATTENTION_TARGETS)
MOVING = (
    *("tried", "score", "layer mean", "layer tried", "nearby mean", "alike mean"),
    *("best", "mean", "attribution tells", "spent"),
)
FEATURES = (*FIXED, *MOVING)
NEARBY_LAYERS = 1.5
KERNEL_WIDTH = 0.25
_MIN_TO_CORRELATE = 3


@dataclass(frozen=True)
class HeadView:
    """The layer and place of each head of a model, and the features computed from them."""

    layer: Int[np.ndarray, " head"]
    place: Int[np.ndarray, " head"]

    @classmethod
    def of(cls, heads: tuple[str, ...]) -> "HeadView":
        """The view of named heads."""
        parts = [Component.parse(head) for head in heads]
        return cls(np.array([part.layer for part in parts]), np.array([part.head or 0 for part in parts]))

    def fixed(
        self, attribution: Float[np.ndarray, " head"], attention: Float[np.ndarray, "head look"]
    ) -> Float[np.ndarray, "head feature"]:
        """The features of every head from the clean run."""
        depth = self.layer / max(1, int(self.layer.max()))
        place = self.place / max(1, int(self.place.max()))
        scaled = attribution / max(float(np.abs(attribution).max()), 1e-12)
        rank = 2 * (average_ranks(attribution) - 1) / max(1, len(attribution) - 1) - 1
        return np.column_stack([depth, place, scaled, rank, attention])

    def similarity(self, fixed: Float[np.ndarray, "head feature"]) -> Float[np.ndarray, "head head"]:
        """Gaussian kernel over attribution and attention: 1 for equal heads, falling with their distance."""
        features = fixed[:, FIXED.index("attribution") :]
        distance = np.square(features[:, None] - features[None]).sum(2)
        return np.exp(-distance / (2 * KERNEL_WIDTH**2))

    def observe(
        self,
        fixed: Float[np.ndarray, "game head feature"],
        similarity: Float[np.ndarray, "game head head"],
        tried: Bool[np.ndarray, "game head"],
        rewards: Float[np.ndarray, "game head"],
        spent: Float[np.ndarray, " game"],
    ) -> Float[np.ndarray, "game head feature"]:
        """All features of every head."""
        scores_seen = np.where(tried, rewards, 0.0)
        scale = np.maximum(np.abs(scores_seen).max(1, keepdims=True), 1e-12)
        score = scores_seen / scale
        member = (self.layer[:, None] == np.arange(self.layer.max() + 1)).astype(float)
        sums, counts = score @ member, tried @ member
        layers = np.arange(member.shape[1])
        nearby = np.exp(-np.abs(layers[:, None] - layers) / NEARBY_LAYERS)
        similar = similarity @ score[:, :, None], similarity @ tried[:, :, None].astype(float)
        ones, count = np.ones_like(score), np.maximum(tried.sum(1, keepdims=True), 1)
        best = np.where(tried.any(1), np.where(tried, score, -np.inf).max(1, initial=-1.0), 0.0)[:, None]
        moving = [
            tried.astype(float),
            score,
            _ratio(sums, counts) @ member.T,
            (counts / np.maximum(member.sum(0), 1)) @ member.T,
            _ratio(sums @ nearby, counts @ nearby) @ member.T,
            _ratio(similar[0][:, :, 0], similar[1][:, :, 0]),
            best * ones,
            score.sum(1, keepdims=True) / count * ones,
            _agreement(fixed[:, :, FIXED.index("attribution")], score, tried)[:, None] * ones,
            spent[:, None] * ones,
        ]
        return np.concatenate([fixed, np.stack(moving, 2)], 2, dtype=np.float32)


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.where(count > 1e-6, total / np.maximum(count, 1e-6), 0.0)


def _agreement(
    attribution: Float[np.ndarray, "game head"], score: Float[np.ndarray, "game head"], tried: Bool[np.ndarray, "..."]
) -> Float[np.ndarray, " game"]:
    """Correlation of attribution and score over the heads tried; 0 if they are too few or either does not vary."""
    count = tried.sum(1)
    n = np.maximum(count, 1)[:, None]
    x, y = (np.where(tried, v - np.where(tried, v, 0).sum(1, keepdims=True) / n, 0.0) for v in (attribution, score))
    spread = np.sqrt(np.square(x).sum(1) * np.square(y).sum(1))
    enough = (count >= _MIN_TO_CORRELATE) & (spread > 1e-9)
    return np.where(enough, (x * y).sum(1) / np.maximum(spread, 1e-9), 0.0)


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
        if prime is not None and self.labels and prime not in self.labels:
            raise BadInput(f"label {prime!r} is not one of the policy's tasks: {choices(self.labels)}")
        heads = len(tables.heads)
        self.steps = min(steps, heads)
        if prime is not None and (context or not self.labels):
            raise BadInput("a policy that reads the prompts or the rewards has no label; leave `prime` out")
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
