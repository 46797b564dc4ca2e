"""The actor-critic networks, how actions are sampled, and the probability of an action.

`ActorCritic` is the published one; `WithEncoder` is the same behind a learned encoder of the prompts,
`WithRewardEncoder` behind one of the rewards seen in the episode; `PerHead` scores every head with the same weights.

Illegal heads get a large negative finite logit: an infinite one would turn the entropy into NaN. Candidates for
best-of-K are drawn one after the other without replacement (by adding Gumbel noise to the logits and taking the K
highest, which is the same distribution). The probability of that ordered draw is the product of each draw's probability
among the remaining heads; for K = 1 it is the probability of the action.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

MASKED = -1e9
#: Fills the rest of a draw with fewer than K candidates.
NO_HEAD = -1


class ActorCritic(nn.Module):
    """Observation to logits over heads and a value, through a shared trunk of two tanh layers."""

    def __init__(self, features: int, heads: int, *, width: int = 256, generator: torch.Generator | None = None):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, heads), nn.Linear(width, 1)
        inner = [(layer, math.sqrt(2)) for layer in self.trunk if isinstance(layer, nn.Linear)]
        for layer, gain in [*inner, (self.actor, 0.01), (self.critic, 1.0)]:
            nn.init.orthogonal_(layer.weight, gain, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(
        self, observation: Float[Tensor, "game features"], legal: Bool[Tensor, "game head"]
    ) -> tuple[Float[Tensor, "game head"], Float[Tensor, " game"]]:
        """Masked logits and values."""
        hidden = self.trunk(observation)
        return self.actor(hidden).masked_fill(~legal, MASKED), self.critic(hidden)[:, 0]


class WithEncoder(nn.Module):
    """The published network with a learned code of the prompts in place of the task's one-hot.

    The code is a linear map of the standardised mean embedding, through tanh; mean and spread are those of the training
    rows (`standardise`) and are saved with the weights.
    """

    mean: Tensor
    spread: Tensor

    def __init__(
        self, embedding: int, heads: int, *, width: int = 256, code: int = 16, generator: torch.Generator | None = None
    ):
        super().__init__()
        self.register_buffer("mean", torch.zeros(embedding))
        self.register_buffer("spread", torch.ones(embedding))
        self.encoder = nn.Linear(embedding, code)
        nn.init.orthogonal_(self.encoder.weight, 1.0, generator=generator)
        nn.init.zeros_(self.encoder.bias)
        self.policy = ActorCritic(code + 2 * heads, heads, width=width, generator=generator)

    def standardise(self, rows: Float[Tensor, "row embedding"]) -> None:
        """Take mean and spread from rows; a coordinate that does not vary counts for nothing."""
        spread = rows.std(0, correction=0)
        self.mean.copy_(rows.mean(0))
        self.spread.copy_(torch.where(spread > 1e-8, spread, torch.full_like(spread, torch.inf)))

    def forward(
        self, observation: Float[Tensor, "game features"], legal: Bool[Tensor, "game head"]
    ) -> tuple[Float[Tensor, "game head"], Float[Tensor, " game"]]:
        """Masked logits and values."""
        embedding, search = observation.split([len(self.mean), observation.shape[1] - len(self.mean)], 1)
        code = self.encoder((embedding - self.mean) / self.spread / math.sqrt(len(self.mean))).tanh()
        return self.policy(torch.cat([code, search], 1), legal)


class WithRewardEncoder(nn.Module):
    """The published network with a code of the rewards seen so far in the place of the task's one-hot.

    Every tried head gives a vector that depends on which head it is and on its reward; the code is a map of their mean,
    so that it does not depend on their order. Before the first reward the code is the same in every episode.
    """

    def __init__(self, heads: int, *, width: int = 256, code: int = 16, generator: torch.Generator | None = None):
        super().__init__()
        self.head, self.slope = nn.Parameter(torch.empty(heads, code)), nn.Parameter(torch.empty(heads, code))
        for weights in (self.head, self.slope):
            nn.init.orthogonal_(weights, 1.0, generator=generator)
        self.encoder = nn.Linear(code, code)
        nn.init.orthogonal_(self.encoder.weight, math.sqrt(2), generator=generator)
        nn.init.zeros_(self.encoder.bias)
        self.policy = ActorCritic(code + 2 * heads, heads, width=width, generator=generator)

    def forward(
        self, observation: Float[Tensor, "game features"], legal: Bool[Tensor, "game head"]
    ) -> tuple[Float[Tensor, "game head"], Float[Tensor, " game"]]:
        """Masked logits and values."""
        tried, rewards = observation.split(len(self.head), 1)
        seen = (self.head + rewards[:, :, None] * self.slope).tanh() * tried[:, :, None]
        code = self.encoder(seen.sum(1) / tried.sum(1, keepdim=True).clamp_min(1)).tanh()
        return self.policy(torch.cat([code, observation], 1), legal)


class PerHead(nn.Module):
    """Features of every head to its logit, with shared weights; each head also receives the mean over heads.

    A linear path from features to logit lets a linear weighting be learned quickly.
    """

    def __init__(self, features: int, *, width: int = 32, generator: torch.Generator | None = None):
        super().__init__()
        self.single, self.context = nn.Linear(features, width), nn.Linear(width, width, bias=False)
        self.mixed = nn.Linear(width, width)
        self.actor, self.critic = nn.Linear(width, 1), nn.Linear(width, 1)
        self.straight = nn.Linear(features, 1, bias=False)
        nn.init.zeros_(self.straight.weight)
        root = math.sqrt(2)
        gains = {self.single: root, self.mixed: root, self.context: root, self.actor: 0.01, self.critic: 1.0}
        for layer, gain in gains.items():
            nn.init.orthogonal_(layer.weight, gain, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(
        self, observation: Float[Tensor, "game head features"], legal: Bool[Tensor, "game head"]
    ) -> tuple[Float[Tensor, "game head"], Float[Tensor, " game"]]:
        """Masked logits and values."""
        single = self.single(observation).tanh()
        hidden = (self.mixed(single) + self.context(single.mean(1))[:, None]).tanh()
        logits = (self.actor(hidden) + self.straight(observation))[:, :, 0]
        return logits.masked_fill(~legal, MASKED), self.critic(hidden.mean(1))[:, 0]


def draw_candidates(logits: Float[Tensor, "game head"], k: int, *, generator: torch.Generator) -> Int[Tensor, "game k"]:
    """`k` distinct heads for each game, in the order drawn."""
    uniform = torch.rand(logits.shape, generator=generator).clamp_min(torch.finfo(torch.float32).tiny)
    return (logits - (-uniform.log()).log()).topk(k, 1).indices


def draw_log_prob(logits: Float[Tensor, "game head"], candidates: Int[Tensor, "game k"]) -> Float[Tensor, " game"]:
    """Log-probability of an ordered draw without replacement; `NO_HEAD` at its end is ignored."""
    total = logits.new_zeros(len(logits))
    for place in range(candidates.shape[1]):
        head = candidates[:, place : place + 1]
        log_prob = logits.log_softmax(1).gather(1, head.clamp_min(0))[:, 0]
        total = total + torch.where(head[:, 0] == NO_HEAD, torch.zeros_like(log_prob), log_prob)
        if place + 1 < candidates.shape[1]:
            logits = logits.scatter(1, head.clamp_min(0), MASKED)
    return total


def entropy(logits: Float[Tensor, "game head"]) -> Float[Tensor, " game"]:
    """Entropy of the next action, in nats."""
    log_prob = logits.log_softmax(1)
    return -(log_prob.exp() * log_prob).sum(1)
