"""What heads read in place of their own values: each token alone, or what the variables of a prompt determine.

Alone, a token stands after BOS. A variable is whatever the words at a prompt's roles determine, its places included: it
is read off a donor, another prompt with the same words at the same roles in the same order, and everything else
different. What a head reads at a role, or at the position whose answer is read, is then the donor's; elsewhere the
token alone. Of a word of several tokens the last one is the donor's too. A prompt without a donor has tokens alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.prompts import Prompts
from vesalius.components import Component
from vesalius.explanations.running.rules import Tokens
from vesalius.intervene.engine import Cost
from vesalius.model.transformer import Transformer

AT_ONCE = 256


@dataclass(frozen=True)
class Values:
    """What each key-value head of some layers reads, for every prompt and position; `layers` are their numbers."""

    table: Float[Tensor, "layer prompt pos kv d_head"]
    layers: Sequence[int]
    group: int

    @property
    def vectors(self) -> Float[Tensor, "vector pos d_head"]:
        """One row for every layer, key-value head and prompt."""
        return self.table.permute(0, 3, 1, 2, 4).flatten(0, 2)

    def place(self, head: Component) -> Int[Tensor, " prompt"]:
        """The rows of a head."""
        assert head.head is not None
        _, n, _, kv, _ = self.table.shape
        return (self.layers.index(head.layer) * kv + head.head // self.group) * n + torch.arange(n)


def token_values(
    model: Transformer, tokens: Tokens, heads: Sequence[Component], prefix: Sequence[int], cost: Cost
) -> Values:
    """What heads read where each token stands alone after `prefix`."""
    first, layers = len(prefix), sorted({head.layer for head in heads})
    distinct, where = tokens.ids.unique(return_inverse=True)
    alone = torch.cat([torch.tensor(prefix).expand(len(distinct), first).long(), distinct[:, None]], 1)
    table = _read(model, alone, layers)
    cost.rows += len(alone) * alone.shape[1] / tokens.ids.shape[1]
    here = table[:, where, -1]
    if first:  # BOS has nothing before it
        here[:, :, :first] = table[:, :1, :first].expand(-1, len(where), -1, -1, -1)
    return Values(here, layers, model.config.n_heads // table.shape[3])


def variable_values(model: Transformer, alone: Values, prompts: Prompts, cost: Cost) -> Values | None:
    """What heads read where the words at a prompt's roles are given and nothing else; None without any donor."""
    places = torch.stack([*prompts.roles.values(), prompts.position], 1)
    rows, of = donors(prompts)
    if not len(rows):
        return None
    tokens = prompts.tokens[of].clone()
    roles = places[:, :-1]
    tokens.scatter_(1, roles[of], prompts.tokens[rows].gather(1, roles[rows]))
    table = alone.table.clone()
    read = _read(model, tokens, alone.layers)
    cost.rows += len(rows)
    for place in range(places.shape[1]):
        table[:, rows, places[rows, place]] = read[:, torch.arange(len(rows)), places[of, place]]
    return replace(alone, table=table)


def donors(prompts: Prompts) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Prompts that have a donor, and the donor of each: of those whose roles stand in the same order the one that
    shares the fewest of its other tokens.
    """
    if not prompts.roles:
        return torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.long)
    roles = torch.stack(list(prompts.roles.values()), 1)
    order = [row.argsort(stable=True).tolist() for row in roles]
    others = prompts.mask.scatter(1, roles, value=False)
    rest = [set(tokens[here].tolist()) for tokens, here in zip(prompts.tokens, others, strict=True)]
    rows, of = [], []
    for row, kind in enumerate(order):
        like = [other for other, its in enumerate(order) if its == kind and other != row]
        if like:
            rows.append(row)
            of.append(min(like, key=lambda other: (len(rest[row] & rest[other]), other)))
    return torch.tensor(rows, dtype=torch.long), torch.tensor(of, dtype=torch.long)


@torch.no_grad()
def _read(
    model: Transformer, tokens: Int[Tensor, "prompt pos"], layers: Sequence[int]
) -> Float[Tensor, "layer prompt pos kv d_head"]:
    """The values of every key-value head of some layers."""
    names, found = [f"blocks.{layer}.attn.hook_v" for layer in layers], []
    for part in tokens.split(AT_ONCE):
        choose = torch.zeros(len(part), 1, dtype=torch.long, device=model.device)
        _, cache = model.run_with_cache(part.to(model.device), names=names, choose=choose)
        found.append(torch.stack([cache[name].cpu() for name in names]))
    return torch.cat(found, 1)
