"""Per-head features: what a policy observes of each head, without its name.

No feature identifies the task or the model, and all are scaled (scores are divided by the largest so far, attributions
by the largest), so the same weights can be used on another task and on a model with other heads.

- of the clean run: depth, place in the layer, attribution and its rank, and attention (`ATTENTION_TARGETS`);
- of the head: whether it was tried, its score;
- of other heads: mean score and share tried of its layer, mean score of nearby layers, and mean score of heads with
  similar attention and attribution (a kernel over both);
- of the search: best score, mean score, correlation of attribution with the scores so far, and the share spent.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from vesalius.components import Component
from vesalius.statistics import average_ranks
from vesalius_mechrl.clean_features import ATTENTION_TARGETS

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
