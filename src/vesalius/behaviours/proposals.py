"""Proposes counterfactuals for rows that have none: which other word, in its place, turns the answer.

1. Every word of a prompt but the last is a place. Candidates for it have as many tokens: what the model itself expects
   there (one or two tokens), what stands there in other rows, and words that the user lists.
2. The gradient of the score at the embeddings ranks the candidates of a place; the best few are run exactly.
3. A candidate counts only where the wrong answer becomes likelier, and where the rest of the prompt still follows: a
   broken sentence lowers the right answer as well, but says nothing about the behaviour.
4. A substitution that serves all rows alike ("Yesterday" -> "In this") is preferred to one for each row, if it is
   nearly as good: it is one contrast that a reader can check.

Half of the rows choose; a shared substitution is measured again on the other half. What is proposed is written to a
file for its reader to look at, and never used silently: a word may ask another question instead of breaking this one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.metrics import NONE
from vesalius.behaviours.prompts import Prompts
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.intervene import Batch
from vesalius.intervene.attribution import embedding_change, embedding_slopes
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, silent
from vesalius.statistics import interval_or_none

#: What the model expects at a place: so many words of one token; of two tokens so many first and second ones.
SINGLES, FIRSTS, SECONDS = 50, 14, 6
#: Candidates of a place that are run, rows that choose at most, and places of which the best is listed.
RUN, CHOOSING, LISTED = 6, 12, 3
#: A shared substitution is preferred where its range is at least this share of what single ones reach.
NEARLY = 0.8
#: The rest of the prompt may become less likely by this many nats in all; shared substitutions that are tried.
MOST_BROKEN, MOST_SHARED = 4.0, 12
ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class Substitution:
    """One word exchanged in one row: what the score falls by (`range`), how much likelier the wrong answer gets in nats
    (None where the row names none), and how much less likely the rest of the prompt (`broken`).
    """

    row: int
    start: int
    old: tuple[int, ...]
    new: tuple[int, ...]
    range: float
    wrong_rise: float | None
    broken: float = 0.0

    @property
    def works(self) -> bool:
        """Whether it lowers the score because another answer becomes right, in a sentence that still holds together."""
        return self.range > 0 and (self.wrong_rise is None or self.wrong_rise > 0) and self.broken <= MOST_BROKEN


@dataclass(frozen=True)
class Proposal:
    """A substitution for all rows in which `old` stands at this place: its range on the rows that chose it and on
    `others` that did not (None: there are none).
    """

    old: str
    new: str
    chosen_on: Metric
    others: Metric | None


@dataclass(frozen=True)
class Proposals:
    """What is proposed: the best substitutions of different places for all rows alike, the best of each row, and the
    counterfactual tokens of each row (None: nothing works), with the text of the change.
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
    desk = _Bench(model, tokenizer, prompts)
    choosing = list(range(0, len(prompts), 2))[:CHOOSING] if len(prompts) > 1 else [0]
    progress("reading what the model expects at each word", 0, 0)
    candidates = desk.candidates(choosing, listed)
    progress("trying the best words of each place", 0, len(candidates))
    tried = [one for one in desk.run(candidates) if one.works]
    shared = desk.shared(tried, choosing)
    rest = [row for row in range(len(prompts)) if row not in choosing]
    progress("trying them on the other rows", 0, len(rest))
    single = {**desk.best(tried), **desk.best([one for one in desk.run(desk.candidates(rest, listed)) if one.works])}
    return desk.chosen(shared, single)


class _Bench:
    """Prompts with the gradient of their score, and runs of them with words exchanged."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, prompts: Prompts) -> None:
        self.model, self.tokenizer, self.prompts = model, tokenizer, prompts
        self.readout = prompts.readout(model)
        lengths = (prompts.position + 1).tolist()
        self.tokens = [tuple(row[:n]) for row, n in zip(prompts.tokens.tolist(), lengths, strict=True)]
        self.words = [self._words(row) for row in self.tokens]
        every = list(range(len(prompts)))
        self.full, self.wrong = self._scores(every, self.tokens)
        self.slopes = [
            embedding_slopes(model, Batch(torch.tensor([list(row)])), self.readout.take(torch.tensor([place])))[0]
            for place, row in enumerate(self.tokens)
        ]

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

    def candidates(self, rows: Sequence[int], listed: Sequence[str]) -> list[Substitution]:
        """The best few words for every place of some rows, by slope; their ranges are not known yet."""
        chosen: list[Substitution] = []
        for row in rows:
            tokens = self.tokens[row]
            expected = self._logits(tokens)
            for place, (start, end) in enumerate(self.words[row]):
                old, words = tokens[start:end], set()
                if start > 0 and len(old) == 1:
                    words |= {(token,) for token in expected[start - 1].topk(SINGLES).indices.tolist()}
                elif start > 0 and len(old) == 2:
                    words |= self._two_tokens(tokens, start, expected[start - 1])
                words |= {self.tokens[other][a:b] for other in range(len(self.tokens)) if other != row
                          for a, b in self.words[other][place : place + 1]}  # fmt: skip
                words |= {tuple(self.tokenizer.continuing(f" {word.strip()}")) for word in listed}
                usable = [new for new in words if len(new) == len(old) and new != old and self._is_word(new, old)]
                slopes = {new: self._first_order(row, start, old, new) for new in usable}
                best = sorted(usable, key=lambda new: (slopes[new], new))[:RUN]
                chosen += [Substitution(row, start, old, new, 0.0, None) for new in best]
        return chosen

    def run(self, substitutions: Sequence[Substitution]) -> list[Substitution]:
        """The substitutions with their ranges."""
        if not substitutions:
            return []
        rows = [one.row for one in substitutions]
        scores, wrong = self._scores(rows, [self._exchanged(one) for one in substitutions])
        done = [
            replace(
                one,
                range=float(self.full[one.row] - scores[i]),
                wrong_rise=None if bool(wrong[i].isnan()) else float(wrong[i] - self.wrong[one.row]),
            )
            for i, one in enumerate(substitutions)
        ]
        return [replace(one, broken=self._broken(one)) if one.works else one for one in done]

    @torch.no_grad()
    def _broken(self, one: Substitution) -> float:
        """By how many nats the rest of the prompt becomes less likely."""
        end, tokens = one.start + len(one.old), self.tokens[one.row]
        both = torch.tensor([tokens, self._exchanged(one)], device=self.model.device)
        logits = self.model(both)[:, end - 1 : -1].float().log_softmax(-1)
        follows = logits.gather(2, both[:, end:, None])[..., 0].sum(1)
        return float(follows[0] - follows[1])

    def shared(self, tried: Sequence[Substitution], choosing: Sequence[int]) -> list[tuple[Proposal, tuple[int, ...]]]:
        """Substitutions tried on every row in which their word stands, the best of each place, best first."""
        ranges: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
        for one in tried:
            ranges[one.old, one.new] = ranges.get((one.old, one.new), 0.0) + one.range
        keys = sorted(ranges, key=lambda key: -ranges[key])[:MOST_SHARED]
        best: dict[tuple[int, ...], tuple[Proposal, tuple[int, ...]]] = {}
        for old, new in keys:
            at = {row: place for row in range(len(self.tokens)) if (place := self._place(row, old)) is not None}
            if set(at) != set(range(len(self.tokens))):
                continue
            done = self.run([Substitution(row, at[row], old, new, 0.0, None) for row in at])
            here, others = ([one for one in done if (one.row in choosing) == inside] for inside in (True, False))
            if sum(one.works for one in done) < NEARLY * len(done):
                continue
            proposal = Proposal(
                self.tokenizer.decode(old).strip(),
                self.tokenizer.decode(new).strip(),
                _metric([one.range for one in here]),
                _metric([one.range for one in others]) if others else None,
            )
            known = best.get(old)
            if known is None or (proposal.chosen_on.value or 0) > (known[0].chosen_on.value or 0):
                best[old] = proposal, new
        return sorted(best.values(), key=lambda pair: -(pair[0].chosen_on.value or 0))[:LISTED]

    @staticmethod
    def best(tried: Sequence[Substitution]) -> dict[int, Substitution]:
        """The substitution with the largest range for each row."""
        best: dict[int, Substitution] = {}
        for one in tried:
            if one.row not in best or one.range > best[one.row].range:
                best[one.row] = one
        return best

    def chosen(self, shared: Sequence[tuple[Proposal, tuple[int, ...]]], single: dict[int, Substitution]) -> Proposals:
        """The shared substitution for all rows if it is nearly as good as single ones, else the best of each row."""
        reached = sum(one.range for one in single.values()) / max(1, len(single))
        rows: list[Substitution | None] = [single.get(row) for row in range(len(self.tokens))]
        if shared and (shared[0][0].chosen_on.value or 0) >= NEARLY * reached:
            proposal, new = shared[0]
            old = next(one for one in self._spans(0) if self.tokenizer.decode(one).strip() == proposal.old)
            places = [self._place(row, old) for row in range(len(self.tokens))]
            rows = list(
                self.run([Substitution(r, p, old, new, 0.0, None) for r, p in enumerate(places) if p is not None])
            )
        texts = [None if one is None else f"{self._text(one.old)} -> {self._text(one.new)}" for one in rows]
        return Proposals(
            tuple(proposal for proposal, _ in shared),
            tuple(rows),
            tuple(None if one is None else self._exchanged(one) for one in rows),
            tuple(texts),
        )

    def _spans(self, row: int) -> list[tuple[int, ...]]:
        return [self.tokens[row][start:end] for start, end in self.words[row]]

    def _place(self, row: int, old: tuple[int, ...]) -> int | None:
        """Where a word stands first in a row."""
        return next((start for start, end in self.words[row] if self.tokens[row][start:end] == old), None)

    def _text(self, tokens: Sequence[int]) -> str:
        return repr(self.tokenizer.decode(list(tokens)).strip())

    def _exchanged(self, one: Substitution) -> tuple[int, ...]:
        tokens = self.tokens[one.row]
        return (*tokens[: one.start], *one.new, *tokens[one.start + len(one.old) :])

    def _is_word(self, new: Sequence[int], old: Sequence[int]) -> bool:
        """Whether this is a word that begins as the other does, with a space or without, and is read back as itself."""
        text, other = (self.tokenizer.decode(list(ids)) for ids in (new, old))
        letters = text.strip()
        return (
            bool(letters)
            and all(part.isalnum() for part in letters.split())
            and text[:1].isspace() == other[:1].isspace()
        )

    def _two_tokens(
        self, tokens: tuple[int, ...], start: int, expected: Float[Tensor, " vocab"]
    ) -> set[tuple[int, ...]]:
        """Words of two tokens that the model expects: the likeliest first tokens, and what follows each of them."""
        firsts = expected.topk(FIRSTS).indices.tolist()
        rows = torch.tensor([[*tokens[:start], first] for first in firsts])
        with torch.no_grad():
            last = torch.full((len(rows), 1), rows.shape[1] - 1)
            logits = self.model(rows.to(self.model.device), at=last.to(self.model.device))[:, 0].cpu()
        return {
            (a, b) for a, seconds in zip(firsts, logits.topk(SECONDS).indices.tolist(), strict=True) for b in seconds
        }

    def _first_order(self, row: int, start: int, old: Sequence[int], new: Sequence[int]) -> float:
        change = embedding_change(self.model, old, new)
        return float((self.slopes[row][start : start + len(old)] * change).sum())

    @torch.no_grad()
    def _logits(self, tokens: Sequence[int]) -> Float[Tensor, "pos vocab"]:
        return self.model(torch.tensor([list(tokens)], device=self.model.device))[0].float().cpu()

    def _read(self, logits: Float[Tensor, "row 1 vocab"], rows: Int[Tensor, " row"]) -> Float[Tensor, " row"]:
        """The metric from all logits at the position where the answer is read."""
        if self.readout.choose is not None:
            logits = logits.gather(2, self.readout.choose[rows].to(logits.device)[:, None])
        return self.readout.score(logits, rows.to(logits.device))

    @torch.no_grad()
    def _scores(
        self, rows: Sequence[int], tokens: Sequence[tuple[int, ...]]
    ) -> tuple[Float[Tensor, " run"], Float[Tensor, " run"]]:
        """The score of each run, and the log-probability of its row's wrong answers (NaN where there are none)."""
        scores, wrongs = torch.empty(len(rows)), torch.full((len(rows),), torch.nan)
        order = sorted(range(len(rows)), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), ROWS_AT_ONCE):
            for same in _of_one_length(order[start : start + ROWS_AT_ONCE], tokens):
                batch = torch.tensor([list(tokens[i]) for i in same], device=self.model.device)
                asked = torch.tensor([rows[i] for i in same])
                logits = self.model(batch, at=self.prompts.position[asked][:, None].to(self.model.device))
                scores[same] = self._read(logits, asked).float().cpu()
                ids = self.prompts.question.wrongs[asked]
                log_probs = logits[:, 0].float().log_softmax(-1).cpu().gather(1, ids.clamp(min=0))
                total = log_probs.masked_fill(ids == NONE, -torch.inf).logsumexp(1)
                wrongs[same] = total.masked_fill((ids == NONE).all(1), torch.nan)
        return scores, wrongs


def _of_one_length(places: Sequence[int], tokens: Sequence[tuple[int, ...]]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for place in places:
        groups.setdefault(len(tokens[place]), []).append(place)
    return list(groups.values())


def _metric(values: Sequence[float]) -> Metric:
    tensor = torch.tensor(values, dtype=torch.float64)
    low, high = interval_or_none(tensor)
    return Metric(value=float(tensor.mean()), low=low, high=high, n=len(values))
