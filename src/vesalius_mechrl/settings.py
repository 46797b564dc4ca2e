"""What a policy is trained with: every hyper-parameter of the paper, and what the policy observes.

`view` is what it observes: the published one-hot and vectors over heads; the same without the one-hot, which an encoder
of the rewards seen so far replaces (`rewards`) or the prompts' mean embedding (`prompts`); or features per head.
`objective` is its reward: the published sum of rewards, or what the search is evaluated by, the best head found (each
step's gain over the best so far, relative to the largest reward). `PER_HEAD` are the settings of the corrected policy.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vesalius.errors import BadInput, choices
from vesalius_mechrl.environment import STEPS

ONE_HOT, PROMPTS_VIEW, REWARDS_VIEW, PER_HEAD_VIEW = VIEWS = ("one-hot", "prompts", "rewards", "per-head")
OBJECTIVES = ("sum", "best")


@dataclass(frozen=True)
class Settings:
    """The hyper-parameters; the defaults are the published ones."""

    seed: int = 1
    k: int = 1
    paper: bool = False
    games: int = 8
    steps: int = STEPS
    total_steps: int = 200_000
    learning_rate: float = 2.5e-4
    least_learning_rate_share: float = 0.2
    adam_eps: float = 1e-5
    gradient_norm: float = 0.5
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_weight: float = 0.1
    value_weight: float = 0.5
    epochs: int = 4
    minibatches: int = 8
    width: int = 256
    evaluate_every: int = 4_000
    evaluation_episodes: int = 8
    view: str = "one-hot"
    objective: str = "sum"

    def __post_init__(self) -> None:
        if self.view not in VIEWS or self.objective not in OBJECTIVES:
            raise BadInput(f"view is one of {choices(VIEWS)} and objective one of {choices(OBJECTIVES)}")
        if self.paper and (self.view, self.objective) != ("one-hot", "sum"):
            raise BadInput("the published policy has view one-hot and objective sum; leave both out with paper=True")
        if min(self.k, self.games, self.steps, self.epochs, self.minibatches, self.evaluate_every) < 1:
            raise BadInput("k, games, steps, epochs, minibatches and evaluate_every must be at least 1")

    def learning_rate_at(self, round_number: int, rounds: int) -> float:
        """Linear towards zero, floored at a fifth (the paper says: linear to a fifth). Rounds count from 0."""
        return self.learning_rate * max(1 - round_number / rounds, self.least_learning_rate_share)

    def document(self) -> dict[str, Any]:
        """The settings for JSON, where the number of minibatches is called `portions`."""
        return {"portions" if name == "minibatches" else name: value for name, value in asdict(self).items()}

    @classmethod
    def from_document(cls, data: Mapping[str, Any]) -> "Settings":
        """Read what `document` wrote."""
        return cls(**{"minibatches" if name == "portions" else name: value for name, value in data.items()})


PER_HEAD = Settings(view="per-head", objective="best", width=32, learning_rate=5e-3, entropy_weight=0.01, gamma=0.95)
