"""Prompts of a behaviour: aligned clean and counterfactual prompts with one question each.

Row i of every field is the same prompt. A counterfactual has the same length, padding and positions as its clean
prompt, so an activation at a position of one can be patched into the same position of the other.

Most questions have one right and one wrong answer of one token each. A question may have several right or wrong answers
(`answers`, `wrongs`), none that is wrong (`wrong` is -1), or a right answer of several tokens (`forced`): then all but
its last token follow the prompt, and every token of it is read where it is predicted (teacher forcing).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.behaviours.metrics import NONE, BehaviourMetric, Question, compares_answers, margin, metric_readout
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Readout
from vesalius.intervene.signed import signed
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer

#: Where a counterfactual comes from: the row itself, a prompt of the same length whose right answer is this one's wrong
#: one, another prompt of the same length, or random tokens (`RANDOM_TOKENS`).
GIVEN, SWAPPED_PROMPT, OTHER_PROMPT = "given", "the prompt of its wrong answer", "another prompt"


@dataclass(frozen=True)
class Prompt:
    """One prompt as token ids, before padding; the answer is predicted after the last token.

    `answers` and `wrongs` hold all right and wrong answers where there are several, `forced` all tokens of an answer of
    several tokens, of which `correct` is the first. `source` says where the counterfactual comes from, `prefix` how
    many tokens at the end of both prompts are the beginning that all answers share, `kind` how the counterfactual
    differs, where its row says so.
    """

    tokens: tuple[int, ...]
    counterfactual: tuple[int, ...]
    correct: int
    wrong: int
    roles: Mapping[str, int]
    text: str
    answers: tuple[int, ...] = ()
    wrongs: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    source: str = GIVEN
    prefix: int = 0
    kind: str = ""

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.counterfactual):
            lengths = f"{len(self.tokens)} and {len(self.counterfactual)}"
            raise BadInput(
                f"prompt {self.text!r}: clean and counterfactual have {lengths} tokens; they must have the same number"
            )

    @property
    def own(self) -> tuple[int, ...]:
        """The prompt's own tokens, without the beginning of the answers."""
        return self.tokens[: len(self.tokens) - self.prefix]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for two rows that ask the same question."""
        return self.tokens, self.counterfactual, self.correct, self.wrong, self.answers, self.wrongs, self.forced


@dataclass(frozen=True)
class Prompts:
    """A batch of questions: is `correct` more likely than `wrong` (-1: than any other token) after `position`?

    `mask` is True at real tokens (padding is on the right), `position` is the last token of the prompt, `roles` names
    further positions of interest. `answers`, `wrongs` and `forced` are padded with -1 and None where no row needs them.
    `metric` is what `readout` measures (None: the logit difference), `sources` says where each counterfactual comes
    from (empty: all given), `kinds` how it differs (empty: no row says).
    """

    tokens: Int[Tensor, "prompt pos"]
    mask: Bool[Tensor, "prompt pos"]
    position: Int[Tensor, " prompt"]
    correct: Int[Tensor, " prompt"]
    wrong: Int[Tensor, " prompt"]
    counterfactual: Int[Tensor, "prompt pos"]
    texts: list[str]
    roles: dict[str, Int[Tensor, " prompt"]]
    answers: Int[Tensor, "prompt answer"] | None = None
    wrongs: Int[Tensor, "prompt wrong"] | None = None
    forced: Int[Tensor, "prompt step"] | None = None
    metric: BehaviourMetric | None = None
    sources: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.tokens) == 0:
            raise BadInput("the prompt list is empty; give at least one prompt")
        if not self.tokens.shape == self.mask.shape == self.counterfactual.shape:
            shapes = [tuple(x.shape) for x in (self.tokens, self.mask, self.counterfactual)]
            raise BadInput(f"tokens, mask and counterfactual have shapes {shapes}; they must be equal")

    @classmethod
    def from_rows(cls, rows: Sequence[Prompt], *, pad: int, n_ctx: int, d_vocab: int) -> "Prompts":
        """Pad rows on the right with `pad` and check that a model of this context and vocabulary can read them."""
        if not rows:
            raise BadInput("the prompt list is empty; give at least one prompt")
        lengths = torch.tensor([len(row.tokens) for row in rows])
        whole = torch.tensor([len(row.tokens) + max(0, len(row.forced) - 1) for row in rows])
        width = int(whole.max())
        roles = [role for role in rows[0].roles if all(role in row.roles for row in rows)]
        given = all(row.source == GIVEN for row in rows)
        return cls(
            tokens=_padded([(*row.tokens, *row.forced[:-1]) for row in rows], pad, width),
            mask=torch.arange(width)[None] < whole[:, None],
            position=lengths - 1,
            correct=torch.tensor([row.correct for row in rows]),
            wrong=torch.tensor([row.wrong for row in rows]),
            counterfactual=_padded([(*row.counterfactual, *row.forced[:-1]) for row in rows], pad, width),
            texts=[row.text for row in rows],
            roles={role: torch.tensor([row.roles[role] for row in rows]) for role in roles},
            answers=_sets([row.answers or (row.correct,) for row in rows]),
            wrongs=_sets([row.wrongs or (row.wrong,) for row in rows]),
            forced=_sets([row.forced or (row.correct,) for row in rows]),
            sources=() if given else tuple(row.source for row in rows),
            kinds=tuple(row.kind for row in rows) if any(row.kind for row in rows) else (),
        ).checked(n_ctx=n_ctx, d_vocab=d_vocab)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def batch(self) -> Batch:
        """The clean prompts."""
        return Batch(self.tokens, self.mask)

    @property
    def counterfactual_batch(self) -> Batch:
        """The counterfactual prompts."""
        return Batch(self.counterfactual, self.mask)

    @property
    def question(self) -> Question:
        """Where each answer is read, and the answers."""
        return Question(
            self.position,
            self.correct[:, None] if self.answers is None else self.answers,
            self.wrong[:, None] if self.wrongs is None else self.wrongs,
            self.forced,
        )

    def readout(self, model: Transformer | None = None) -> Readout:
        """The metric of each prompt, by default logit(correct) - logit(wrong) at its last token. The metric `kl`
        compares with the clean run of `model`.
        """
        return metric_readout(self.metric, self.question, model=model, batch=self.batch)

    def signed(self, readout: Readout, model: Transformer) -> Readout:
        """A readout of the metric with the logits of the right answer, the wrong one and the rest beside the score; the
        readout itself where the metric does not compare a right with a wrong answer.
        """
        if not compares_answers(self.metric):
            return readout
        question = self.question
        return signed(readout, question.answers, question.wrongs, vocabulary=model.config.d_vocab_out)

    def margin(self) -> Readout:
        """logit(correct) - logit(wrong), or minus the largest other logit where nothing is wrong, whatever the metric:
        positive where the right answer is preferred.
        """
        return margin(self.question)

    def said(self) -> Readout:
        """1 where the right answer is the likeliest of all tokens, else 0; of an answer of several tokens 1 where every
        one of them is, given those before it.
        """
        question = self.question

        def score(logits: Tensor, prompt: Tensor) -> Tensor:
            best = logits.argmax(-1)
            right = (best[:, :1] == question.answers.to(best.device)[prompt]).any(1)
            if question.forced is not None:
                forced = question.forced.to(best.device)[prompt]
                right &= ((best == forced) | (forced == NONE)).all(1)
            return right.to(logits)

        return Readout(score, question.steps, None, "right answers")

    def with_metric(self, metric: BehaviourMetric | None) -> "Prompts":
        """The same prompts, read by another metric."""
        return replace(self, metric=metric)

    def take(self, rows: slice | Int[Tensor, " n"]) -> "Prompts":
        """Some of the prompts, padded to the same width as before."""
        index = torch.arange(len(self))[rows].tolist()
        return replace(
            self,
            tokens=self.tokens[index],
            mask=self.mask[index],
            position=self.position[index],
            correct=self.correct[index],
            wrong=self.wrong[index],
            counterfactual=self.counterfactual[index],
            texts=[self.texts[i] for i in index],
            roles={role: positions[index] for role, positions in self.roles.items()},
            answers=None if self.answers is None else self.answers[index],
            wrongs=None if self.wrongs is None else self.wrongs[index],
            forced=None if self.forced is None else self.forced[index],
            sources=tuple(self.sources[i] for i in index) if self.sources else (),
            kinds=tuple(self.kinds[i] for i in index) if self.kinds else (),
        )

    def checked(self, *, n_ctx: int, d_vocab: int) -> "Prompts":
        """These prompts, or an error if they do not fit a model with this context length and vocabulary."""
        if self.tokens.shape[1] > n_ctx:
            longest = int(self.position.argmax())
            raise BadInput(
                f"prompt {longest} ({self.texts[longest][:40]!r}...) has {self.tokens.shape[1]} tokens; "
                f"the model's context holds {n_ctx}: shorten it or take a model with a longer context"
            )
        answers = [part for part in (self.answers, self.wrongs, self.forced) if part is not None]
        may_lack = torch.cat([self.wrong[:, None], *answers], 1)
        ids = torch.cat([self.tokens, self.counterfactual, self.correct[:, None], may_lack], 1)
        outside = (ids < 0) | (ids >= d_vocab)
        outside[:, -may_lack.shape[1] :] &= may_lack != NONE
        if bool(outside.any()):
            row = int(outside.any(1).int().argmax())
            token = int(ids[row][outside[row]][0])
            raise BadInput(
                f"prompt {row} has token {token}, outside the model's vocabulary of {d_vocab}; "
                f"use the model's own tokenizer"
            )
        return self


def _padded(rows: Sequence[Sequence[int]], pad: int, width: int) -> Int[Tensor, "prompt pos"]:
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])


def _sets(rows: Sequence[Sequence[int]]) -> Int[Tensor, "prompt member"] | None:
    """Token ids padded with -1; None where every row has just one."""
    width = max(map(len, rows))
    return None if width == 1 else _padded(rows, NONE, width)


# What prompts are made of: pools of words divided into splits, and templates that record where each word ends.
#
# Item i of a pool belongs to train, validation or test by i mod 3. The split of a word thus depends on the pool alone,
# never on the tokenizer or the seed, and no word is in two splits. Words that the tokenizer splits into several tokens
# are dropped afterwards.

SPLITS = ("train", "validation", "test")
Item = TypeVar("Item")


def split_index(split: str) -> int:
    """0, 1 or 2 for train, validation or test."""
    if split not in SPLITS:
        raise BadInput(f"split {split!r} does not exist; choose one of {', '.join(SPLITS)}")
    return SPLITS.index(split)


def select_split(pool: Sequence[Item], split: str) -> list[Item]:
    """The items of a pool that belong to one split: every third item, starting at the split's index."""
    return list(pool[split_index(split) :: len(SPLITS)])


@dataclass(frozen=True)
class Filled:
    """A filled template; `ends[field]` is the number of characters up to and including that field's value."""

    text: str
    ends: Mapping[str, int]


def fill(template: str, fields: Mapping[str, str]) -> Filled:
    """Replace each `{field}` by its value and record where the value ends."""
    text, ends = "", {}
    for literal, field, _, _ in Formatter().parse(template):
        text += literal
        if field is not None:
            text += fields[field]
            ends[field] = len(text)
    return Filled(text, ends)


@dataclass(frozen=True)
class Material:
    """One split's pools for one tokenizer; `behaviour` is the name used in error messages."""

    behaviour: str
    tokenizer: Tokenizer
    split: str
    d_vocab: int

    def share(self, pool: Sequence[Item]) -> list[Item]:
        """This split's part of a pool."""
        return select_split(pool, self.split)

    def words(self, pool: Sequence[str], *, at_least: int) -> list[str]:
        """This split's words that are one token after a space; refuses a tokenizer with too few of them."""
        words = [word for word in self.share(pool) if self.tokenizer.is_single(f" {word}")]
        self.require(len(words), at_least, what="single-token words")
        return words

    def ids(self, *, at_least: int) -> list[int]:
        """This split's token ids that are text on their own: every third of the vocabulary."""
        start = split_index(self.split)
        ids = [
            i
            for i in self.tokenizer.ordinary_ids
            if i % len(SPLITS) == start and i < self.d_vocab and i != self.tokenizer.bos
        ]
        self.require(len(ids), at_least, what="ordinary tokens")
        return ids

    def require(self, n: int, needed: int, *, what: str) -> None:
        """Refuse, naming behaviour and tokenizer, if there are too few items to make prompts."""
        if n < needed:
            raise BadInput(
                f"behaviour {self.behaviour}: the tokenizer of {self.tokenizer.size} tokens leaves {n} {what} "
                f"in the {self.split} split and {needed} are needed; choose another behaviour or model"
            )

    def prompt(
        self, clean: Filled, counterfactual: Filled, *, correct: str, wrong: str, roles: Mapping[str, str]
    ) -> Prompt | None:
        """Tokenize a pair of prompts; None if the two do not align or an answer is not exactly one further token.

        `roles` maps the name of a role to the template field whose last token has it. A role "end", the last token,
        is always added.
        """
        aligned = self.aligned(clean, counterfactual, roles)
        if aligned is None:
            return None
        tokens, other_tokens, positions = aligned
        answers = [self._continuation(clean.text, tokens, answer) for answer in (correct, wrong)]
        if None in answers:
            return None
        correct_id, wrong_id = (answer for answer in answers if answer is not None)
        return Prompt(tuple(tokens), tuple(other_tokens), correct_id, wrong_id, positions, clean.text)

    def aligned(
        self, clean: Filled, counterfactual: Filled, roles: Mapping[str, str]
    ) -> tuple[list[int], list[int], dict[str, int]] | None:
        """The tokens of a pair of prompts and the place of each role; None if the two do not align."""
        tokens, other_tokens = self.tokenizer.encode(clean.text), self.tokenizer.encode(counterfactual.text)
        places = {role: self._last_token(clean, tokens, field) for role, field in roles.items()}
        other_places = {role: self._last_token(counterfactual, other_tokens, field) for role, field in roles.items()}
        if len(tokens) != len(other_tokens) or None in places.values() or places != other_places:
            return None
        positions = {role: place for role, place in places.items() if place is not None}
        return tokens, other_tokens, {**positions, "end": len(tokens) - 1}

    def _continuation(self, text: str, tokens: list[int], answer: str) -> int | None:
        """The answer's token, if appending the answer appends exactly one token and changes no other."""
        longer = self.tokenizer.encode(text + answer)
        return longer[-1] if longer[:-1] == tokens else None

    def _last_token(self, text: Filled, tokens: list[int], field: str) -> int | None:
        """Position of a field's last token, if the tokenizer has a boundary where the field ends."""
        before = self.tokenizer.encode(text.text[: text.ends[field]])
        return len(before) - 1 if before == tokens[: len(before)] else None
