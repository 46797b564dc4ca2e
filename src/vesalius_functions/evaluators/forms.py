"""How a unit test is put to a language model, and how its choice is read from the logits.

Every form gives each of the three examples a score; the highest is the choice, and training makes the right one
likelier in a softmax over the three.

- `letters`: one prompt with all three examples, scored by the logits of the letters A, B and C.
- `single`: a prompt per example that asks whether it belongs, scored by the logit of yes less that of no.
- `likelihood`: how much likelier the description makes the example's output (or its input, where there is no output).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.errors import BadInput, choices
from vesalius.model.tokenizer import Tokenizer
from vesalius_functions.agents.commands import said_input
from vesalius_functions.box import Example

#: Characters of a description, and of an input or an output, that are read.
LONGEST_DESCRIPTION, LONGEST_VALUE = 1_200, 160
LETTERS = ("A", "B", "C")

#: A model, or a model with an adapter: logits of tokens, with the options of `Transformer.forward`.
Run = Callable[..., Tensor]
Scores = Float[Tensor, "test choice"]


@dataclass(frozen=True)
class Asked:
    """The prompts of one test as token ids; of `likelihood` the last `spans` tokens of each are what is scored."""

    rows: tuple[tuple[int, ...], ...]
    spans: tuple[int, ...] = ()

    @property
    def longest(self) -> int:
        """Tokens of its longest prompt."""
        return max(map(len, self.rows))


class Form(ABC):
    """One way to put a test to a model."""

    NAME: ClassVar[str]

    def __init__(self, tokenizer: Tokenizer, context: int) -> None:
        self.tokenizer, self.context = tokenizer, context

    @abstractmethod
    def asked(self, description: str, examples: Sequence[Example]) -> Asked:
        """The prompts of a test."""

    @abstractmethod
    def scores(self, run: Run, tests: Sequence[Asked]) -> Scores:
        """The scores of the three examples of each test."""

    def ids(self, text: str) -> tuple[int, ...]:
        """A prompt as token ids; one that is too long keeps its end, where the question is."""
        ids = self.tokenizer.encode(text)
        return tuple(ids if len(ids) <= self.context else ids[:1] + ids[1 - self.context :])

    def choice_tokens(self, words: Sequence[str]) -> Int[Tensor, " word"]:
        """The ids of words that are read as answers."""
        return torch.tensor([self.tokenizer.token(f" {word}") for word in words])


class Letters(Form):
    """All three examples in one prompt."""

    NAME = "letters"

    def asked(self, description: str, examples: Sequence[Example]) -> Asked:
        """One prompt."""
        offered = "\n".join(f"{letter}: {said(one)}" for letter, one in zip(LETTERS, examples, strict=True))
        text = f"{described(description)}\n{offered}\nThe example of this function is"
        return Asked((self.ids(text),))

    def scores(self, run: Run, tests: Sequence[Asked]) -> Scores:
        """The logits of the letters."""
        return _last(run, [test.rows[0] for test in tests], self.choice_tokens(LETTERS))


class Single(Form):
    """Each example on its own."""

    NAME = "single"

    def asked(self, description: str, examples: Sequence[Example]) -> Asked:
        """A prompt per example."""
        before = described(description)
        return Asked(tuple(self.ids(f"{before}\n{said(one)}\nDoes this fit the function? Answer:") for one in examples))

    def scores(self, run: Run, tests: Sequence[Asked]) -> Scores:
        """How far yes is above no."""
        logits = _last(run, [row for test in tests for row in test.rows], self.choice_tokens(("yes", "no")))
        return (logits[:, 0] - logits[:, 1]).view(len(tests), -1)


class Likelihood(Form):
    """What an example says, with the description and without."""

    NAME = "likelihood"

    def asked(self, description: str, examples: Sequence[Example]) -> Asked:
        """Two prompts per example: all with the description first, then all without."""
        before = described(description)
        rows, spans = [], []
        for start in (f"{before}\n", ""):
            for one in examples:
                given, result = _halves(one)
                answer = self.tokenizer.continuing(f" {result}")[: self.context // 2]
                prompt = self.tokenizer.encode(start + given)
                room = self.context - len(answer)
                prompt = prompt if len(prompt) <= room else prompt[:1] + prompt[1 - room :]
                rows.append((*prompt, *answer))
                spans.append(len(answer))
        return Asked(tuple(rows), tuple(spans))

    def scores(self, run: Run, tests: Sequence[Asked]) -> Scores:
        """The difference of the two log-probabilities."""
        spans = torch.tensor([span for test in tests for span in test.spans])
        tokens, mask, lengths = _padded([row for test in tests for row in test.rows])
        # The token at a place is predicted from the place before it; rows with shorter answers repeat their last place.
        steps = torch.arange(int(spans.max()))[None]
        inside = steps < spans[:, None]
        at = torch.minimum((lengths - spans)[:, None] + steps, lengths[:, None] - 1) - 1
        logits = run(tokens, mask=mask, at=at)
        wanted = tokens.gather(1, at + 1).to(logits.device)
        log_p = logits.log_softmax(-1).gather(2, wanted[:, :, None])[:, :, 0]
        total = (log_p * inside.to(log_p)).sum(1).view(len(tests), 2, -1)
        return total[:, 0] - total[:, 1]


FORMS: dict[str, type[Form]] = {form.NAME: form for form in (Letters, Single, Likelihood)}


def form_named(name: str, tokenizer: Tokenizer, context: int) -> Form:
    """A form for a model's tokenizer and context."""
    if name not in FORMS:
        raise BadInput(f"`form` {name!r:.40}: is not one; choose from {choices(FORMS)}")
    return FORMS[name](tokenizer, context)


def described(description: str) -> str:
    """A description on one line, so that it cannot go on as the prompt does."""
    return f"Function: {_plain(' '.join(description.split()), LONGEST_DESCRIPTION)}"


def said(example: Example) -> str:
    """An example as a prompt holds it."""
    given, result = _halves(example)
    return f"{given} {result}"


def _halves(example: Example) -> tuple[str, str]:
    """What is given and what follows from it; an input without an output follows from nothing."""
    given = _plain(said_input(example.input), LONGEST_VALUE)
    if example.output is None:
        return "Input:", given
    return f"Input: {given} Output:", _plain(said_input(example.output), LONGEST_VALUE)


def _plain(text: str, longest: int) -> str:
    """A text without special tokens, cut."""
    return text.replace("<|", "< |")[:longest]


def _last(run: Run, rows: Sequence[Sequence[int]], words: Int[Tensor, " word"]) -> Float[Tensor, "row word"]:
    """The logits of words after the last token of each row."""
    tokens, mask, lengths = _padded(rows)
    choose = words[None].expand(len(rows), -1)
    return run(tokens, mask=mask, at=lengths[:, None] - 1, choose=choose)[:, 0]


def _padded(
    rows: Sequence[Sequence[int]],
) -> tuple[Int[Tensor, "row pos"], Bool[Tensor, "row pos"], Int[Tensor, " row"]]:
    """Rows of one length with zeros behind them, where the tokens are, and how many."""
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row)
    return tokens, torch.arange(tokens.shape[1])[None] < lengths[:, None], lengths
