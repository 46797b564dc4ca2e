"""Why a head finds a role: its attention score there as a sum over pairs of upstream sources, on a few prompts.

On each prompt the head is taken at one query (the answer position where the role is seen from there, else the last one
that has the role) and at the role's key that gets most of its attention. What a pair of sources adds to the score of
that key, beyond what it adds on average to the other keys, is why the head attends there and not elsewhere
(`intervene.attending`). The sum is exact, and says nothing of what would happen without a term: so leading pairs are
compared with path patching to the counterfactual prompt, and of every leading source it is measured how much of the
head's attention leaves the role once its path into the queries or keys carries its counterfactual value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.laboratory.natural import NaturalLab
from vesalius.explanations.laboratory.runs import AttentionPort, HeadPaths
from vesalius.intervene.attending import BIASES, POSITION, TOKEN, AttentionParts
from vesalius.values import JsonObject

#: Prompts that are taken apart, leading pairs of each that are compared with path patching, and terms that are named.
PROMPTS, CONFIRMED, NAMED = 4, 20, 3
DIGITS = 4


@dataclass(frozen=True)
class ScoreTerms:
    """What makes a head attend to a role: `pairs[prompt, i, j]` is what source i at the query and source j at the key
    add to the score, beyond other keys. `agreement` is Pearson's correlation of `n_confirmed` leading pairs with path
    patching, None where there are too few.
    """

    head: Component
    role: str
    sources: tuple[str, ...]
    pairs: Float[Tensor, "prompt source source"]
    agreement: float | None
    n_confirmed: int

    @cached_property
    def at(self) -> Mapping[AttentionPort, Float[Tensor, "prompt source"]]:
        """What every source adds at the query (`q`) and at the key (`k`), with all sources of the other side."""
        return {"q": self.pairs.sum(2), "k": self.pairs.sum(1)}

    @property
    def score(self) -> float:
        """The score of the role's key beyond that of other keys: the sum of all pairs."""
        return float(self.pairs.sum((1, 2)).mean())

    def leading(self, port: AttentionPort) -> list[tuple[str, float]]:
        """The sources at the query or at the key that add most, on average over the prompts."""
        values = self.at[port].mean(0)
        return [(self.sources[i], float(values[i])) for i in values.argsort(descending=True)[:NAMED].tolist()]

    def leading_pairs(self) -> list[tuple[str, str, float]]:
        """The pairs that add most: at the query, at the key, and what they add."""
        values, wide = self.pairs.mean(0), len(self.sources)
        order = values.flatten().argsort(descending=True)[:NAMED].tolist()
        return [(self.sources[i // wide], self.sources[i % wide], float(values.flatten()[i])) for i in order]


def score_terms(lab: NaturalLab, head: Component, role: str) -> ScoreTerms | None:
    """The terms of a head's score at a role; None where no prompt has the role with other keys beside it."""
    chosen = [
        (row, *place) for row in range(min(PROMPTS, lab.n)) if (place := _place(lab, head, role, row)) is not None
    ]
    if not chosen:
        return None
    sources: tuple[str, ...] = ()
    pairs, expected, patched = [], [], []
    for row, query, key, rivals in chosen:
        length = int(lab.prompts.mask[row].sum())  # padding is on the right
        clean, source = (tokens[[row], :length] for tokens in (lab.runs.batch.tokens, lab.runs.source.tokens))
        ran = lab.runs.run_of(row)
        other = AttentionParts(lab.model, source, head, query, key, ran=lab.runs.run_of(row, source=True))
        parts = AttentionParts(lab.model, clean, head, query, key, other, ran=ran)
        sources = parts.sources
        pairs.append(AttentionParts(lab.model, clean, head, query, key, rivals=rivals, ran=ran).pairs_beyond.cpu())
        changed, wide, biases = parts.expected_pairs, len(sources), sources.index(BIASES)
        for i in changed.abs().flatten().argsort(descending=True)[:CONFIRMED].tolist():
            pair = (i // wide, i % wide)
            if biases not in pair:  # those of the projections are not in the stream, so that none are taken out
                expected.append(float(changed[pair]))
                patched.append(parts.patched_pair(*pair))
    both = torch.tensor([expected, patched], dtype=torch.float64)
    related = len(expected) > 2 and not bool((both.std(1) == 0).any())
    agreement = round(float(torch.corrcoef(both)[0, 1]), DIGITS) if related else None
    return ScoreTerms(head, role, sources, torch.stack(pairs), agreement, len(expected))


def attention_lost(lab: NaturalLab, terms: ScoreTerms, source: str, port: AttentionPort) -> float | None:
    """The attention that leaves the role once a source's path carries its counterfactual value, on all prompts; None
    of what is the same on every prompt.
    """
    if source in (BIASES, POSITION):
        return None
    sender = None if source == TOKEN else Component.parse(source)
    lost = HeadPaths(lab.runs, terms.head).mass_lost(sender, port, lab.target(terms.role))
    lost = lost[~lost.isnan()]
    return round(float(lost.mean()), DIGITS) if len(lost) else None


def terms_record(lab: NaturalLab, terms: ScoreTerms) -> JsonObject:
    """The terms for JSON: leading sources at the query and at the key, each with the attention that its path is worth,
    and leading pairs.
    """
    ports: tuple[AttentionPort, ...] = ("q", "k")
    sides = {
        port: [
            {"source": source, "adds": round(value, DIGITS), "attention_lost": attention_lost(lab, terms, source, port)}
            for source, value in terms.leading(port)
        ]
        for port in ports
    }
    pairs = [{"query": a, "key": b, "adds": round(value, DIGITS)} for a, b, value in terms.leading_pairs()]
    agreed = {"agreement": terms.agreement, "n_confirmed": terms.n_confirmed, "n": len(terms.pairs)}
    return {
        "role": terms.role,
        "score": round(terms.score, DIGITS),
        "at_query": sides["q"],
        "at_key": sides["k"],
        "pairs": pairs,
        **agreed,
    }


def _place(lab: NaturalLab, head: Component, role: str, row: int) -> tuple[int, int, tuple[int, ...]] | None:
    """The query and the key of a role on one prompt, and the keys beside it: those of other tokens that the head sees
    from there, without BOS.
    """
    target = lab.target(role)[row].cpu()
    queries = target.any(-1).nonzero()[:, 0].tolist()
    if not queries:
        return None
    answer = int(lab.prompts.position[row])
    query = answer if answer in queries else queries[-1]
    weights = lab.runs.pattern(head.layer)[row, head.head or 0, query].cpu()
    key = int(weights.masked_fill(~target[query], -1.0).argmax())
    seen = (weights > 0) & ~target[query]
    rivals = tuple(place for place in seen.nonzero()[:, 0].tolist() if place >= lab.runs.first)
    return (query, key, rivals) if rivals else None
