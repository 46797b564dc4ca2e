"""Where a head attends: token roles as sets of (query, key) pairs, and interventions on one head's attention.

General roles exist in every prompt: BOS, the position itself, the previous token, earlier copies of the current token
(*duplicate*), and the tokens right after such copies (*induction*). A behaviour adds its own, such as IO and S1, for
the answer position as the query.

*Composition*: the path from one earlier component into the head's queries or keys alone carries the counterfactual
value; everything else stays clean. What the head then attends to needs one layer's arithmetic, no forward pass, so all
earlier components can be tested. *Cutting* removes keys from the head's attention and scales the rest to sum to one.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.known_heads import Target, general_roles, masses
from vesalius.errors import BadInput
from vesalius.explanations.laboratory.runs import Runs
from vesalius.intervene.probes import HeadInputs

AttentionPort = Literal["q", "k"]
PORTS: tuple[AttentionPort, ...] = ("q", "k")
PORT_WORDS = {"q": "queries", "k": "keys", "v": "values"}
#: Roles that a head attends to where it has nothing to find.
SINKS = ("BOS", "first token")
#: General roles, and the name of a head that attends to them.
NAMES = {"induction": "induction head", "duplicate": "duplicate-token head", "previous": "previous-token head"}
MEANINGS = {
    "induction": "the token after an earlier copy of the current one",
    "duplicate": "earlier copies of the current token",
    "previous": "the previous token",
    "self": "its own position",
    "BOS": "BOS",
    "first token": "the first token",
}


def require_heads(parts: Sequence[Component]) -> None:
    """Refuse MLPs where attention is asked for."""
    for part in parts:
        if not part.is_head:
            raise BadInput(f"{part} is an MLP, which has no attention; name heads such as L0H0")


def everywhere(runs: Runs) -> dict[str, Target]:
    """The general roles with every position but BOS as a query."""
    return everywhere_in(runs, runs.prompts.tokens)


def everywhere_in(runs: Runs, tokens: Int[Tensor, "prompt pos"]) -> dict[str, Target]:
    """The general roles in other tokens with the prompts' shape, such as the counterfactual prompts."""
    return general_roles(tokens, runs.prompts.mask, first=runs.first)


def at_answer(runs: Runs) -> dict[str, Target]:
    """The general roles and the behaviour's own, with the answer position as the only query."""
    prompts = runs.prompts
    is_answer = runs.answer_only[:, :, None]
    targets = {name: target & is_answer for name, target in everywhere(runs).items()}
    for role, where in prompts.roles.items():
        if bool((where == prompts.position).all()):
            continue  # the answer position itself
        target = torch.zeros_like(is_answer.expand(-1, -1, is_answer.shape[1]))
        target[torch.arange(len(runs)), prompts.position, where] = True
        targets[role] = target
    return targets


def without_role(targets: Mapping[str, Target], runs: Runs) -> Target:
    """Keys that the answer position can attend to and that have none of these roles."""
    place = torch.arange(runs.prompts.tokens.shape[1])
    visible = runs.answer_only[:, :, None] & runs.prompts.mask[:, None, :] & (place[None, :] <= place[:, None])
    return visible & ~torch.stack(list(targets.values())).any(0)


def shuffled(target: Target) -> Target:
    """Control: each prompt with the target keys of another prompt."""
    n = target.shape[1]
    return target.roll(1, 0) & torch.ones(n, n, dtype=torch.bool).tril()


def random_keys(target: Target, runs: Runs, *, seed: int) -> Target:
    """For each query a random choice of as many keys, outside the target and BOS."""
    place = torch.arange(target.shape[1])
    is_query = target.any(-1, keepdim=True)
    allowed = is_query & runs.prompts.mask[:, None, :] & (place[None, :] <= place[:, None]) & (place >= runs.first)
    return as_many_others(target, allowed, seed)


def as_many_others(target: Target, allowed: Target, seed: int) -> Target:
    """For each query a random choice of as many keys outside the target."""
    order = torch.rand(target.shape, generator=torch.Generator().manual_seed(seed))
    order = order.masked_fill(~(allowed & ~target), 2.0)
    rank = order.argsort(-1).argsort(-1)
    return (rank < target.sum(-1, keepdim=True)) & allowed & ~target


class HeadPaths:
    """The paths into one head on a set of prompts."""

    def __init__(self, runs: Runs, head: Component) -> None:
        self.runs, self.head = runs, head
        self._inputs = HeadInputs(runs.model, runs.batch, runs.resid(head.layer), head)

    def pattern_without(self, sender: Component | None, port: AttentionPort) -> Float[Tensor, "prompt 1 query key"]:
        """The head's attention when `sender`'s path into its queries or keys carries the counterfactual value."""
        return self._inputs.patterns_with(self.runs.change(sender), (port,))[port][:, None]

    def mass_lost(self, sender: Component | None, port: AttentionPort, target: Target) -> Float[Tensor, " prompt"]:
        """How much attention leaves the target without the sender's path; NaN where a prompt has no target."""
        return self.masses_lost(self.runs.change(sender), target, (port,))[port]

    def masses_lost(
        self, change: Float[Tensor, "prompt pos d_model"], target: Target, ports: Sequence[AttentionPort] = PORTS
    ) -> dict[AttentionPort, Float[Tensor, " prompt"]]:
        """The same for a change of what the head reads, into its queries and into its keys."""
        clean = masses(self.runs.pattern(self.head.layer)[:, [self.head.head]], target)[:, 0]
        patterns = self._inputs.patterns_with(change, ports)
        return {port: clean - masses(patterns[port][:, None], target)[:, 0] for port in ports}

    @torch.no_grad()
    def z_without_keys(self, target: Target) -> Float[Tensor, "prompt pos d_head"]:
        """The head's z when the target keys are removed from its attention."""
        pattern = self.runs.pattern(self.head.layer)[:, self.head.head]
        remaining = pattern.masked_fill(target.to(pattern.device), 0.0)
        remaining = remaining / remaining.sum(-1, keepdim=True).clamp(min=1e-9)
        return remaining @ self._inputs.values
