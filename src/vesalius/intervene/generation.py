"""Continue a prompt under interventions: the likeliest next token each time, with sites replaced and directions added.

Each token costs a clean run, a run of the source where values are patched, and the edited part of a run: prompts are
short, and the runs are those of every other experiment on sites. Sites without positions are replaced at every token,
those that are written included; patched ones at the tokens of the prompt, which the source has as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.intervene.ablations import Ablation, Zero
from vesalius.intervene.exchanging import END
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import Recordings
from vesalius.intervene.sites import PlacedSite, SiteValues, site_scores
from vesalius.intervene.values import Batch
from vesalius.model.transformer import Transformer
from vesalius.sites import OF_HEADS, Activation, Site

#: The log-probabilities of the next token after some tokens.
Next = Callable[[Int[Tensor, "1 pos"]], Float[Tensor, " vocab"]]


@dataclass(frozen=True)
class Steering:
    """A direction that is added at a site, `strength` times."""

    site: Site
    direction: Float[Tensor, " width"]
    strength: float = 1.0

    def along(self, direction: Float[Tensor, " width"]) -> "Steering":
        """The same steering along another direction."""
        return Steering(self.site, direction, self.strength)


@dataclass(frozen=True)
class Changes:
    """What a prompt is continued under. `source` are the tokens that values are patched from, as many as the
    prompt's.
    """

    edits: Sequence[Site] = ()
    kind: Ablation = field(default_factory=Zero)
    source: Int[Tensor, "1 pos"] | None = None
    steering: Steering | None = None

    def next(self, model: Transformer, prompt: Int[Tensor, "1 pos"]) -> Next:
        """The next token after the prompt and what follows it, under these changes."""
        return lambda tokens: self._log_probabilities(model, tokens, prompt.shape[1])

    def _log_probabilities(self, model: Transformer, tokens: Tensor, length: int) -> Float[Tensor, " vocab"]:
        width = tokens.shape[1]
        edits = [
            PlacedSite(site, _where(site, length, width, all_of_prompt=self.source is not None)) for site in self.edits
        ]
        source = torch.cat([self.source, tokens[:, length:]], 1) if self.source is not None else None
        batch, other = Batch(tokens), None if source is None else Batch(source)
        values = SiteValues.make(model, self.kind, batch, [tuple(edits)], counterfactual=other)
        placed = [*edits, *self._steered(length, width)]
        readout = Readout(lambda logits, row: logits[:, 0], torch.tensor([[width - 1]]))
        scores = site_scores(Recordings(model, batch, readout), values, tuple(placed))
        return _likely(scores[0], "under this change; take less strength or another direction")

    def _steered(self, length: int, width: int) -> list[PlacedSite]:
        if self.steering is None:
            return []
        one = self.steering
        return [PlacedSite(one.site, _where(one.site, length, width), one.strength * one.direction)]


def _where(site: Site, length: int, width: int, *, all_of_prompt: bool = False) -> Tensor | None:
    """The positions of a site in a prompt of `length` tokens with what follows it; None: all of them."""
    if not site.at and not all_of_prompt:
        return None
    mask = torch.zeros(1, width, dtype=torch.bool)
    for at in site.at or range(length):
        at = -1 if at == END else at
        if not isinstance(at, int) or not -length <= at < length:
            raise BadInput(
                f"site {site}: the prompt has positions 0 to {length - 1}, or -1 (the last token, also {END}) and down"
            )
        mask[0, at if at >= 0 else length + at] = True
    return mask


def _likely(logits: Float[Tensor, " vocab"], where: str) -> Float[Tensor, " vocab"]:
    likely = logits.float().log_softmax(-1)
    if bool(likely.isnan().any()):
        raise BadInput(f"the logits are not numbers {where}")
    return likely


def clean_next(model: Transformer) -> Next:
    """The next token as the model has it."""

    def log_probabilities(tokens: Int[Tensor, "1 pos"]) -> Float[Tensor, " vocab"]:
        at = torch.tensor([[tokens.shape[1] - 1]], device=model.device)
        return _likely(model(tokens, at=at)[0, 0], "on this prompt; check the model's weights for overflow").cpu()

    return log_probabilities


@torch.no_grad()
def greedy(next_token: Next, prompt: Int[Tensor, "1 pos"], n: int) -> list[int]:
    """The `n` likeliest tokens after a prompt, one after the other."""
    tokens = prompt
    for _ in range(n):
        tokens = torch.cat([tokens, next_token(tokens).argmax().to(tokens).view(1, 1)], 1)
    return tokens[0, prompt.shape[1] :].tolist()


def divergence(one: Float[Tensor, " vocab"], other: Float[Tensor, " vocab"]) -> float:
    """KL(one || other) of two distributions given as log-probabilities, in nats."""
    return max(0.0, float((one.exp() * (one - other)).sum()))


def steering_width(model: Transformer, site: Site) -> int:
    """How long a direction at a site is; refuses sites that have no one vector at a position."""
    place, config = site.place, model.config
    if not isinstance(place, Activation) or place.kind == "pattern" or (place.kind in OF_HEADS and place.head is None):
        raise BadInput(
            f"`steer` {site}: a direction is added to a stream or to what one head has; take L{site.layer}.resid, "
            f"L{site.layer}.mlp_post or L{site.layer}H0.q"
        )
    if place.kind in OF_HEADS:
        return config.d_head if place.kind in ("q", "k") else config.d_value
    return config.d_mlp if place.kind in ("mlp_pre", "mlp_post") else config.d_model


@torch.no_grad()
def contrast_direction(
    model: Transformer, site: Site, toward: Sequence[Tensor], away: Sequence[Tensor]
) -> Float[Tensor, " width"]:
    """The mean of a site's values at the last token of some texts, less that of others."""
    place = site.place
    assert isinstance(place, Activation)

    def mean(texts: Sequence[Tensor]) -> Tensor:
        values = []
        for tokens in texts:
            last = torch.tensor([[0]], device=model.device)
            value = model.run_with_cache(tokens, names=place.hook, choose=last)[1][place.hook][0, -1].cpu().float()
            values.append(value if place.head is None else value[place.head])
        return torch.stack(values).mean(0)

    return mean(toward) - mean(away) if away else mean(toward)


def random_directions(direction: Float[Tensor, " width"], n: int, seed: int) -> Float[Tensor, "n width"]:
    """Directions drawn at random, each as long as this one."""
    drawn = torch.randn(n, len(direction), generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=1, keepdim=True) * direction.norm()
