"""What a policy that knows no head by name is told about each head.

Nothing here says which task is played or which model; every figure is on a scale of its own (scores are divided by the
largest seen so far, attributions by the largest), so the same weights can be used on another task and on a model with
other heads.

- before paying: depth, place in the layer, attribution and its rank, and where the head looks (`LOOKS`);
- of the head itself: tried, its score;
- of its surroundings: mean score and share tried of its layer, of layers nearby, and of heads that look alike and have
  like attributions (a kernel over both);
- of the search: best score, mean score, how well attribution has told the scores so far, and how much is spent.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata

from vesalius.components import Component
from vesalius.discovery.clean_features import ATTENTION_TARGETS

FIXED = ("depth", "place", "attribution", "attribution rank", *ATTENTION_TARGETS)
MOVING = (
    *("tried", "score", "layer mean", "layer tried", "nearby mean", "alike mean"),
    *("best", "mean", "attribution tells", "spent"),
)
FEATURES = (*FIXED, *MOVING)
NEARBY_LAYERS = 1.5
ALIKE = 0.25
_TOO_FEW = 3


@dataclass(frozen=True)
class HeadView:
    """Where the heads of a model stand, and the figures that follow from it."""

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
        """What is known of every head before paying."""
        depth = self.layer / max(1, int(self.layer.max()))
        place = self.place / max(1, int(self.place.max()))
        scaled = attribution / max(float(np.abs(attribution).max()), 1e-12)
        rank = 2 * (rankdata(attribution) - 1) / max(1, len(attribution) - 1) - 1
        return np.column_stack([depth, place, scaled, rank, attention])

    def alike(self, fixed: Float[np.ndarray, "head feature"]) -> Float[np.ndarray, "head head"]:
        """How alike two heads are: 1 for the same figures, falling with their distance."""
        figures = fixed[:, FIXED.index("attribution") :]
        distance = np.square(figures[:, None] - figures[None]).sum(2)
        return np.exp(-distance / (2 * ALIKE**2))

    def observe(
        self,
        fixed: Float[np.ndarray, "game head feature"],
        alike: Float[np.ndarray, "game head head"],
        tried: Bool[np.ndarray, "game head"],
        rewards: Float[np.ndarray, "game head"],
        spent: Float[np.ndarray, " game"],
    ) -> Float[np.ndarray, "game head feature"]:
        """All features of every head."""
        known = np.where(tried, rewards, 0.0)
        scale = np.maximum(np.abs(known).max(1, keepdims=True), 1e-12)
        score = known / scale
        member = (self.layer[:, None] == np.arange(self.layer.max() + 1)).astype(float)
        sums, counts = score @ member, tried @ member
        layers = np.arange(member.shape[1])
        near = np.exp(-np.abs(layers[:, None] - layers) / NEARBY_LAYERS)
        own = alike @ score[:, :, None], alike @ tried[:, :, None].astype(float)
        ones, count = np.ones_like(score), np.maximum(tried.sum(1, keepdims=True), 1)
        best = np.where(tried.any(1), np.where(tried, score, -np.inf).max(1, initial=-1.0), 0.0)[:, None]
        moving = [
            tried.astype(float),
            score,
            _ratio(sums, counts) @ member.T,
            (counts / np.maximum(member.sum(0), 1)) @ member.T,
            _ratio(sums @ near, counts @ near) @ member.T,
            _ratio(own[0][:, :, 0], own[1][:, :, 0]),
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
    """Correlation of attribution and score over the heads tried; 0 for too few or where either does not vary."""
    count = tried.sum(1)
    n = np.maximum(count, 1)[:, None]
    one, other = (
        np.where(tried, x - np.where(tried, x, 0).sum(1, keepdims=True) / n, 0.0) for x in (attribution, score)
    )
    spread = np.sqrt(np.square(one).sum(1) * np.square(other).sum(1))
    return np.where((count >= _TOO_FEW) & (spread > 1e-9), (one * other).sum(1) / np.maximum(spread, 1e-9), 0.0)
