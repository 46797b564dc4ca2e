"""MLPs as tables: what an MLP writes is looked up by words of the prompt, in place of its weights.

A table has, for a word of a role, what the MLP writes at that role and at the position whose answer is read: the mean
over a few prompts that programs were fitted to, with the word in the place of theirs. At a role an MLP is looked up by
the word that stands there; where the answer is read, by the word of one role. A role whose word is the answer is none
of these: its table would carry the answer in. Elsewhere the MLP has its counterfactual value. Words that no fitting
prompt has are entered in the same way, so that a table says something of every word.

Which MLPs are tables, and of which role, other fitting prompts decide; it is graded on prompts that report.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.discovery.shares import KeptShare, Shares, share_between
from vesalius.documents.running import LEAST_NEEDED, LOOKS_UP, Lookup
from vesalius.intervene import Batch, Plan, activations, run
from vesalius.intervene.engine import Cost
from vesalius.intervene.values import Values
from vesalius.intervene.written_tokens import last_norm, raised_and_lowered
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer

#: Prompts that a table is the mean over, at most half of those that fit; words shown of one, and prompts run at once.
MAKERS, SHOWN, AT_ONCE = 3, 3, 64
Words = Mapping[str, Int[Tensor, " prompt"]]


class Tables:
    """What MLPs write for words of roles, entered when a word is first asked for."""

    def __init__(self, model: Transformer, mlps: Sequence[Component], makers: Prompts, cost: Cost) -> None:
        self.model, self.mlps, self.makers, self.cost = model, list(mlps), makers, cost
        self.entries: dict[tuple[str, int], Float[Tensor, "mlp 2 d_model"]] = {}

    @cached_property
    def places(self) -> list[str]:
        """The roles at which tables are looked up: those that are not where the answer is read."""
        return [role for role, place in self.makers.roles.items() if not torch.equal(place, self.makers.position)]

    @cached_property
    def classes(self) -> list[str]:
        """The roles whose word may be looked up where the answer is read: of several with one word the first, and none
        whose word is the answer.
        """
        words = words_of(self.makers)
        several = {tuple(words[role].tolist()): role for role in reversed(self.places)}
        answers = [role for role, its in words.items() if float((its == self.makers.correct).float().mean()) > 0.5]
        return [role for role in self.places if role in several.values() and role not in answers]

    def of(self, role: str, words: Int[Tensor, " word"]) -> Float[Tensor, "word mlp 2 d_model"]:
        """What the MLPs write at a role and where the answer is read, for each word."""
        if missing := [word for word in dict.fromkeys(words.tolist()) if (role, word) not in self.entries]:
            self._enter(role, torch.tensor(missing))
        return torch.stack([self.entries[role, word] for word in words.tolist()])

    def _enter(self, role: str, words: Int[Tensor, " word"]) -> None:
        makers = self.makers
        n, places = len(makers), torch.stack([makers.roles[role], makers.position], 1)
        own, new = words_of(makers)[role][None, :, None], words[:, None, None]
        tokens = torch.where(makers.tokens == own, new, makers.tokens)
        # A prompt in which the word stands already says something else once it stands there twice.
        clear = ((makers.tokens != new) | (own == new)).all(-1)
        weight = torch.where(clear.any(1, keepdim=True), clear, True).float()
        weight = weight / weight.sum(1, keepdim=True)
        rows = torch.arange(len(words) * n) % n
        written = written_at(self.model, self.mlps, tokens.flatten(0, 1), makers.mask[rows], places[rows])
        self.cost.rows += len(words) * n
        mean = torch.einsum("wn,wn...->w...", weight, written.unflatten(0, (len(words), n)))
        self.entries |= {(role, int(word)): entry for word, entry in zip(words, mean, strict=True)}

    def put(
        self, values: Values, prompts: Prompts, by: Mapping[Component, str], words: Words, *, mean: bool = False
    ) -> Values:
        """Replacements in which MLPs write what their tables have for the words of prompts, or the mean of the table;
        `by` is the role that each is looked up by where the answer is read.
        """
        rows, mlps = torch.arange(len(prompts)), list(values.mlp)

        def entry(role: str, place: int, mlp: Component) -> Float[Tensor, "prompt d_model"]:
            found = self.of(role, words[role])[:, self.mlps.index(mlp), place]
            return self.of(role, words[role].unique())[:, self.mlps.index(mlp), place].mean(0) if mean else found

        for mlp, end in by.items():
            table = mlps[mlp.layer].clone()
            for role in self.places:
                table[rows, prompts.roles[role]] = entry(role, 0, mlp).to(table)
            table[rows, prompts.position] = entry(end, 1, mlp).to(table)
            mlps[mlp.layer] = table
        return replace(values, mlp=tuple(mlps), prompts=None)


@dataclass(frozen=True)
class Lookups:
    """The MLPs that are tables, with the role that each is looked up by where the answer is read."""

    tables: Tables
    by: Mapping[Component, str]

    def values(self, shares: Shares, words: Words, *, mean: bool = False) -> Values:
        """Replacements in which MLPs write what their tables have for these words on the prompts of `shares`, or the
        mean of their tables.
        """
        assert shares.material.prompts is not None
        return self.tables.put(shares.replacement.values, shares.material.prompts, self.by, words, mean=mean)

    def alone(self, shares: Shares, words: Words, *, mean: bool = False) -> Float[Tensor, " prompt"]:
        """The score of each prompt with these MLPs replaced so, and all else as it is."""
        model, choices = shares.model, shares.replacement.choices
        plan = Plan.grid(model.config, [tuple(self.by)], choices=choices, positions=shares.material.where)
        return run(shares.recordings, plan, self.values(shares, words, mean=mean), cost=self.tables.cost).cpu()

    def graded(self, shares: Shares, tokenizer: Tokenizer | None, seed: int) -> list[Lookup]:
        """Each table alone in the intact model, on prompts that did not choose it."""
        assert shares.material.prompts is not None
        words, rng, found = words_of(shares.material.prompts), random.Random(f"lookups/{seed}"), []
        for mlp, end in self.by.items():
            one = Lookups(self.tables, {mlp: end})
            own, mean = one.alone(shares, words), one.alone(shares, words, mean=True)
            other = one.alone(shares, shuffled_words(words, rng))
            found.append(
                Lookup(
                    mlp=str(mlp),
                    by=end,
                    kept=share_between(mean, own, shares.full).metric(),
                    shuffled=share_between(mean, other, shares.full).metric(),
                    needed=needed(shares, mean).metric(),
                    examples=() if tokenizer is None else self._examples(shares.material.prompts, tokenizer, mlp, end),
                )
            )
        return found

    def _examples(
        self, prompts: Prompts, tokenizer: Tokenizer, mlp: Component, end: str
    ) -> tuple[tuple[str, str], ...]:
        """Some words with the answer that the MLP's entry for each raises most of all tokens beyond the mean of the
        table; none of a word whose entry raises what is not an answer.
        """
        words = words_of(prompts)[end].unique()
        model, entries = self.tables.model, self.tables.of(end, words)[:, self.tables.mlps.index(mlp), 1]
        raised = raised_and_lowered(model, last_norm(model, entries - entries.mean(0)), top=1)[0][:, 0]
        said = torch.isin(raised, prompts.question.answers.cpu()).nonzero()[:, 0].tolist()
        return tuple((tokenizer.piece(int(words[one])), tokenizer.piece(int(raised[one]))) for one in said[:SHOWN])


def find_lookups(
    model: Transformer, mlps: Sequence[Component], fit: Trial, roles: Collection[str], cost: Cost
) -> Lookups | None:
    """The MLPs that are tables: made of a few prompts that fit, by words at some of their roles, and chosen on the
    others; None where none is.
    """
    half = min(MAKERS, len(fit.batch) // 2)
    if fit.prompts is None or not mlps or not half:
        return None
    makers = fit.prompts.take(slice(0, half))
    makers = replace(makers, roles={role: place for role, place in makers.roles.items() if role in roles})
    tables, choosing = Tables(model, mlps, makers, cost), fit.take(slice(half, None))
    if not tables.classes:
        return None
    shares = Shares(model, choosing)
    assert choosing.prompts is not None
    prompts, held = choosing.prompts, {}
    words, end_places = words_of(prompts), prompts.position[:, None]
    own = written_at(model, mlps, prompts.tokens, prompts.mask, end_places)[:, :, 0]
    for place, mlp in enumerate(mlps):
        entries = [tables.of(role, words[role])[:, place, 1] for role in tables.classes]
        missed = [(one - own[:, place]).square().sum() for one in entries]
        end = tables.classes[int(torch.stack(missed).argmin())]
        one = Lookups(tables, {mlp: end})
        mean = one.alone(shares, words, mean=True)
        costs = needed(shares, mean)
        if costs.value < LEAST_NEEDED or (costs.low or 0.0) <= 0:
            continue
        if share_between(mean, one.alone(shares, words), shares.full).value >= LOOKS_UP:
            held[mlp] = end
    cost.rows += shares.cost.rows + len(prompts)
    return Lookups(tables, held) if held else None


def written_at(
    model: Transformer,
    mlps: Sequence[Component],
    tokens: Int[Tensor, "row pos"],
    mask: Bool[Tensor, "row pos"],
    places: Int[Tensor, "row place"],
) -> Float[Tensor, "row mlp place d_model"]:
    """What MLPs write at places of texts in the intact model, without their output bias."""
    written = []
    for part in torch.arange(len(tokens)).split(AT_ONCE):
        batch = Batch(tokens[part], mask[part]).to(model.device)
        values, at = activations(model, batch), (torch.arange(len(part))[:, None], places[part])
        written.append(torch.stack([values.output(mlp)[at].float().cpu() for mlp in mlps], 1))
    return torch.cat(written)


def words_of(prompts: Prompts) -> dict[str, Int[Tensor, " prompt"]]:
    """The token at each role of prompts."""
    return {role: prompts.tokens.gather(1, place[:, None])[:, 0] for role, place in prompts.roles.items()}


def shuffled_words(words: Words, rng: random.Random) -> dict[str, Int[Tensor, " prompt"]]:
    """For each prompt the words of another one that differs in as many of them as any."""
    rows = torch.stack(list(words.values()), 1)
    differ = (rows[:, None] != rows[None]).sum(-1)
    most = [rng.choice((one == one.max()).nonzero()[:, 0].tolist()) for one in differ]
    return {role: of[most] for role, of in words.items()}


def needed(shares: Shares, mean: Float[Tensor, " prompt"]) -> KeptShare:
    """What the mean of a table in an MLP's place costs, as a share of what the behaviour is worth."""
    return share_between(shares.nothing, shares.nothing + shares.full - mean, shares.full)
