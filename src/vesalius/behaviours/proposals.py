"""Proposes counterfactuals for rows that have none: which other word, in its place, turns the answer.

1. Every word of a prompt but the last is a place. Candidates for it have as many tokens: what the model itself expects
   there (one or two tokens), what stands there in other rows, and words that the user lists.
2. On a few rows all candidates are run; the best of each place, and a few words of other rows, are run on every row.
3. A candidate turns the answer where the right one becomes less likely and the wrong one likelier: a broken sentence
   lowers both. By how much it turns is the smaller of the two. And it has to keep the sentence a sentence: the model's
   log-probability of the whole prompt may fall by `MOST_BROKEN` nats, unless the word is the user's own.
4. Of words that turn nearly as much as the best the one with the likeliest sentence is taken. One that serves all rows
   alike ("Yesterday" -> "Every time") is preferred to one for each row, if it is nearly as good, since a reader can
   check it; else every row takes its best word, at one place where there is one.

Half of the rows choose; a shared substitution is measured again on the other half. What is proposed is written to a
file for its reader to look at, and never used silently: a word may ask another question instead of breaking this one.
(Gradients at the embeddings were tried instead of step 2: they ranked "Every day" 59th of 166 words.)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.metrics import NONE
from vesalius.behaviours.prompts import Prompts
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, silent

#: What the model expects at a place: so many words of one token; of two tokens so many first and second ones.
SINGLES, FIRSTS, SECONDS = 80, 80, 3
#: Rows on which all candidates are run, the best of a place that are run on every row, words of other rows beside them.
PROBED, RUN, OTHERS = 3, 6, 3
#: Substitutions for all rows that are listed; words that turn this share of the most are nearly as good.
LISTED, NEARLY = 3, 0.8
#: The prompt may become less likely by this many nats.
MOST_BROKEN = 3.0
ROWS_AT_ONCE = 32


@dataclass(frozen=True)
class Substitution:
    """One word exchanged in one row: what the score falls by (`range`), how much likelier the wrong answer gets in nats
    (None where the row names none), how much less likely the right one (`right_fall`) and the prompt (`broken`).
    `listed`: it is the user's word.
    """

    row: int
    place: int
    old: tuple[int, ...]
    new: tuple[int, ...]
    range: float = 0.0
    wrong_rise: float | None = None
    right_fall: float = 0.0
    broken: float = 0.0
    listed: bool = False

    @property
    def turn(self) -> float:
        """By how many nats both answers move, at least; the right one alone where none is wrong."""
        return self.right_fall if self.wrong_rise is None else min(self.right_fall, self.wrong_rise)

    @property
    def works(self) -> bool:
        """Whether it lowers the score because another answer becomes right, in a sentence that still holds together."""
        return self.range > 0 and self.turn > 0 and (self.listed or self.broken <= MOST_BROKEN)


@dataclass(frozen=True)
class Proposal:
    """A substitution for all rows, in all of which `old` stands: its range on the rows that chose it and on `others`
    that did not (None: there are none), by how much answers turn and prompts become less likely, and what it does to
    each row.
    """

    old: str
    new: str
    chosen_on: Metric
    others: Metric | None
    turn: float
    broken: float
    listed: bool
    rows: tuple[Substitution, ...]


@dataclass(frozen=True)
class Proposals:
    """What is proposed: the best substitutions for all rows alike, of different places first, the best of each row, and
    the counterfactual tokens of each row (None: nothing works), with the text of the change.
    """

    shared: tuple[Proposal, ...]
    rows: tuple[Substitution | None, ...]
    counterfactuals: tuple[tuple[int, ...] | None, ...]
    changes: tuple[str | None, ...]


def propose(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: Prompts,
    *,
    listed: Sequence[str] = (),
    progress: Progress = silent,
) -> Proposals:
    """Counterfactuals for prompts, whatever counterfactuals they have now."""
    if prompts.forced is not None:
        raise BadInput("counterfactuals are proposed for answers of one token; give them by hand for longer ones")
    desk = _Bench(model, tokenizer, prompts, listed)
    choosing = list(range(0, len(prompts), 2))
    progress("trying what the model expects at each word", 0, 0)
    pools = desk.pools(choosing[:: max(1, len(choosing) // PROBED)][:PROBED])
    progress("trying the best words in every row", 0, 0)
    tried = desk.run([one for row in range(len(prompts)) for one in desk.candidates(row, pools)])
    return desk.chosen(desk.shared(tried, choosing), [one for one in tried if one.works])


_Kind = TypeVar("_Kind", Substitution, Proposal)


class _Bench:
    """Prompts, their words, and runs of them with words exchanged."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, prompts: Prompts, listed: Sequence[str]) -> None:
        self.model, self.tokenizer, self.prompts = model, tokenizer, prompts
        self.readout = prompts.readout(model)
        self.listed = {tuple(tokenizer.continuing(f" {word.strip()}")) for word in listed}
        lengths = (prompts.position + 1).tolist()
        self.tokens = [tuple(row[:n]) for row, n in zip(prompts.tokens.tolist(), lengths, strict=True)]
        self.words = [self._words(row) for row in self.tokens]
        self.plain = self._figures(list(range(len(prompts))), self.tokens)

    def _words(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Start and end of every word but the last, the beginning-of-sequence token left out."""
        first = int(bool(tokens) and tokens[0] == self.tokenizer.bos)
        starts = [
            place
            for place in range(first, len(tokens))
            if place == first or not self.tokenizer.piece(tokens[place])[:1].isalnum()
        ]
        spans = list(zip(starts, [*starts[1:], len(tokens)], strict=True))
        return [
            (start, end)
            for start, end in spans[:-1]
            if any(c.isalnum() for c in self.tokenizer.decode(tokens[start:end]))
        ]

    def pools(self, rows: Sequence[int]) -> dict[int, list[tuple[int, ...]]]:
        """The words of each place that turn the answers of some rows most, of all that the model expects there."""
        turns: dict[int, dict[tuple[int, ...], float]] = {}
        for row in rows:
            expected = self._logits(self.tokens[row]).log_softmax(-1)
            found = {place: self._expected(row, place, expected) for place in range(len(self.words[row]))}
            for one in self.run([one for place, words in found.items() for one in self._fitting(row, place, words)]):
                if one.works:
                    known = turns.setdefault(one.place, {})
                    known[one.new] = known.get(one.new, 0.0) + one.turn
        return {place: sorted(known, key=lambda new: (-known[new], new))[:RUN] for place, known in turns.items()}

    def candidates(self, row: int, pools: Mapping[int, Sequence[tuple[int, ...]]]) -> list[Substitution]:
        """What is run in a row: at every place the words of the pool, the user's, and some of other rows, first of
        those whose right answer is wrong here.
        """
        right, wrong = self.prompts.correct.tolist(), int(self.prompts.wrong[row])
        others = sorted((other for other in range(len(self.tokens)) if other != row),
                        key=lambda other: (right[other] != wrong, (other - row) % len(self.tokens)))  # fmt: skip
        chosen: list[Substitution] = []
        for place in range(len(self.words[row])):
            words = dict.fromkeys(self._word(other, place) for other in others if place < len(self.words[other]))
            fitting = self._fitting(row, place, list(words))[:OTHERS]
            more = self._fitting(row, place, [*pools.get(place, ()), *sorted(self.listed)])
            chosen += list(dict.fromkeys([*more, *fitting]))
        return chosen

    def _fitting(self, row: int, place: int, words: Iterable[tuple[int, ...]]) -> list[Substitution]:
        """Substitutions by those words that can stand at a place."""
        old = self._word(row, place)
        return [
            Substitution(row, place, old, new, listed=new in self.listed)
            for new in words
            if len(new) == len(old) and new != old and self._is_word(new, old)
        ]

    def _word(self, row: int, place: int) -> tuple[int, ...]:
        start, end = self.words[row][place]
        return self.tokens[row][start:end]

    def _expected(self, row: int, place: int, expected: Float[Tensor, "pos vocab"]) -> list[tuple[int, ...]]:
        """Words of one or two tokens that the model expects at a place, and that are not much less likely there than
        what stands there.
        """
        tokens, (start, end) = self.tokens[row], self.words[row][place]
        if start == 0 or end - start > 2:
            return []
        before = expected[start - 1]
        here = float(sum(expected[at - 1, tokens[at]] for at in range(start, end)))
        firsts = before.topk(min(SINGLES if end - start == 1 else FIRSTS, len(before)))
        found = {(token,): value for token, value in zip(firsts.indices.tolist(), firsts.values.tolist(), strict=True)}
        if end - start == 2:
            rows = torch.tensor([[*tokens[:start], *first] for first in found])
            last = torch.full((len(rows), 1), rows.shape[1] - 1)
            with torch.no_grad():
                logits = self.model(rows.to(self.model.device), at=last.to(self.model.device))[:, 0].float().cpu()
            seconds = logits.log_softmax(-1).topk(SECONDS)
            found = {
                (*first, second): own + value
                for (first, own), following, values in zip(
                    found.items(), seconds.indices.tolist(), seconds.values.tolist(), strict=True
                )
                for second, value in zip(following, values, strict=True)
            }
        return [word for word, value in found.items() if value >= here - MOST_BROKEN]

    def run(self, substitutions: Sequence[Substitution]) -> list[Substitution]:
        """The substitutions with what they do."""
        if not substitutions:
            return []
        rows = [one.row for one in substitutions]
        falls = self.plain[rows] - self._figures(rows, [self._exchanged(one) for one in substitutions])
        return [
            replace(
                one,
                range=score,
                right_fall=right,
                wrong_rise=None if wrong != wrong else -wrong,  # NaN: none is named
                broken=broken,
            )
            for one, (score, right, wrong, broken) in zip(substitutions, falls.tolist(), strict=True)
        ]

    def shared(self, tried: Sequence[Substitution], choosing: Sequence[int]) -> list[Proposal]:
        """Substitutions that were tried in every row and work in most: the best of each place, then others."""
        same: dict[tuple[int, tuple[int, ...], tuple[int, ...]], list[Substitution]] = {}
        for one in tried:
            same.setdefault((one.place, one.old, one.new), []).append(one)
        of_place: dict[int, list[Proposal]] = {}
        for (place, old, new), done in same.items():
            if len(done) < len(self.tokens) or sum(one.works for one in done) < NEARLY * len(done):
                continue
            here, others = ([one for one in done if (one.row in choosing) == inside] for inside in (True, False))
            of_place.setdefault(place, []).append(
                Proposal(
                    self.tokenizer.decode(old).strip(),
                    self.tokenizer.decode(new).strip(),
                    _mean(here),
                    _mean(others) if others else None,
                    sum(one.turn for one in here) / len(here),
                    sum(one.broken for one in done) / len(done),
                    done[0].listed,
                    tuple(done),
                )
            )
        first = sorted(map(readable, of_place.values()), key=lambda one: (not one.listed, -one.turn))
        rest = [one for some in of_place.values() for one in some if one not in first]
        return [*first, *sorted(rest, key=lambda one: -one.turn)][:LISTED]

    def chosen(self, shared: Sequence[Proposal], tried: Sequence[Substitution]) -> Proposals:
        """The shared substitution for all rows if it turns nearly as much as single ones, else the best word of each
        row, at the place where such words turn most; elsewhere only where none works there.
        """
        places: dict[int, dict[int, list[Substitution]]] = {}
        for one in tried:
            places.setdefault(one.place, {}).setdefault(one.row, []).append(one)
        single: dict[int, Substitution] = {}
        for of_place in sorted(places.values(), key=lambda some: -sum(readable(one).turn for one in some.values())):
            single = {**{row: readable(some) for row, some in of_place.items()}, **single}
        reached = sum(one.turn for one in single.values()) / max(1, len(single))
        rows: list[Substitution | None] = [single.get(row) for row in range(len(self.tokens))]
        if shared and (shared[0].listed or shared[0].turn >= NEARLY * reached):
            rows = list(shared[0].rows)
        texts = [None if one is None else f"{self._text(one.old)} -> {self._text(one.new)}" for one in rows]
        return Proposals(
            tuple(shared),
            tuple(rows),
            tuple(None if one is None else self._exchanged(one) for one in rows),
            tuple(texts),
        )

    def _text(self, tokens: Sequence[int]) -> str:
        return repr(self.tokenizer.decode(list(tokens)).strip())

    def _exchanged(self, one: Substitution) -> tuple[int, ...]:
        tokens, (start, end) = self.tokens[one.row], self.words[one.row][one.place]
        return (*tokens[:start], *one.new, *tokens[end:])

    def _is_word(self, new: Sequence[int], old: Sequence[int]) -> bool:
        """Whether this is a word that begins as the other does, with a space or without, and is read back as itself."""
        text, other = (self.tokenizer.decode(list(ids)) for ids in (new, old))
        letters = text.strip()
        return (
            bool(letters)
            and all(part.isalnum() for part in letters.split())
            and text[:1].isspace() == other[:1].isspace()
        )

    @torch.no_grad()
    def _logits(self, tokens: Sequence[int]) -> Float[Tensor, "pos vocab"]:
        return self.model(torch.tensor([list(tokens)], device=self.model.device))[0].float().cpu()

    def _read(self, logits: Float[Tensor, "row 1 vocab"], rows: Int[Tensor, " row"]) -> Float[Tensor, " row"]:
        """The metric from all logits at the position where the answer is read."""
        if self.readout.choose is not None:
            logits = logits.gather(2, self.readout.choose[rows].to(logits.device)[:, None])
        return self.readout.score(logits, rows.to(logits.device))

    @torch.no_grad()
    def _figures(self, rows: Sequence[int], tokens: Sequence[tuple[int, ...]]) -> Float[Tensor, "run 4"]:
        """The score of each run, the log-probabilities of its row's right and wrong answers (NaN where there are none),
        and that of its tokens.
        """
        figures = torch.empty(len(rows), 4, dtype=torch.float64)
        order = sorted(range(len(rows)), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), ROWS_AT_ONCE):
            for same in _of_one_length(order[start : start + ROWS_AT_ONCE], tokens):
                batch = torch.tensor([list(tokens[i]) for i in same], device=self.model.device)
                asked, logits = torch.tensor([rows[i] for i in same]), self.model(batch).float()
                figures[same, 0] = self._read(logits[:, -1:], asked).double().cpu()
                last, question = logits[:, -1].log_softmax(-1).cpu(), self.prompts.question
                for column, ids in ((1, question.answers[asked]), (2, question.wrongs[asked])):
                    each = last.gather(1, ids.clamp(min=0)).masked_fill(ids == NONE, -torch.inf)
                    figures[same, column] = each.logsumexp(1).masked_fill((ids == NONE).all(1), torch.nan).double()
                follows = logits[:, :-1].gather(2, batch[:, 1:, None])[..., 0] - logits[:, :-1].logsumexp(-1)
                figures[same, 3] = follows.sum(1).double().cpu()
        return figures


def readable(some: Sequence[_Kind]) -> _Kind:
    """Of words that turn nearly as much as the best, the one with which the prompt is likeliest; the user's first."""
    most = max(one.turn for one in some)
    return min(some, key=lambda one: (not one.listed, one.turn < NEARLY * most, one.broken))


def _of_one_length(places: Sequence[int], tokens: Sequence[tuple[int, ...]]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for place in places:
        groups.setdefault(len(tokens[place]), []).append(place)
    return list(groups.values())


def _mean(done: Sequence[Substitution]) -> Metric:
    return Metric.of_mean(torch.tensor([one.range for one in done], dtype=torch.float64))
