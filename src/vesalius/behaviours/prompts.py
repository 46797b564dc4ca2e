"""Prompts of a behaviour: aligned clean and counterfactual prompts with one question each.

Row i of every field is the same prompt. A counterfactual differs from its clean prompt in a few tokens only: same
length, same padding, same positions, so an activation at a position of one can be patched into the same position of
the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.intervene import Batch, Readout, logit_difference


@dataclass(frozen=True)
class Prompt:
    """One prompt as token ids, before padding; the answer is predicted after the last token."""

    tokens: tuple[int, ...]
    counterfactual: tuple[int, ...]
    correct: int
    wrong: int
    roles: Mapping[str, int]
    text: str

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.counterfactual):
            lengths = f"{len(self.tokens)} and {len(self.counterfactual)}"
            raise BadInput(
                f"prompt {self.text!r}: clean and counterfactual have {lengths} tokens; they must have the same number"
            )

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
        """Equal for two rows that ask the same question."""
        return self.tokens, self.counterfactual, self.correct, self.wrong


@dataclass(frozen=True)
class Prompts:
    """A batch of questions with two candidate answers: is `correct` more likely than `wrong` after `position`?

    `mask` is True at real tokens (padding is on the right), `position` is the last real token, `roles` names further
    positions of interest.
    """

    tokens: Int[Tensor, "prompt pos"]
    mask: Bool[Tensor, "prompt pos"]
    position: Int[Tensor, " prompt"]
    correct: Int[Tensor, " prompt"]
    wrong: Int[Tensor, " prompt"]
    counterfactual: Int[Tensor, "prompt pos"]
    texts: list[str]
    roles: dict[str, Int[Tensor, " prompt"]]

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
        width = max(len(row.tokens) for row in rows)
        padded = [[*row.tokens, *[pad] * (width - len(row.tokens))] for row in rows]
        counterfactual = [[*row.counterfactual, *[pad] * (width - len(row.tokens))] for row in rows]
        lengths = torch.tensor([len(row.tokens) for row in rows])
        return cls(
            tokens=torch.tensor(padded),
            mask=torch.arange(width)[None] < lengths[:, None],
            position=lengths - 1,
            correct=torch.tensor([row.correct for row in rows]),
            wrong=torch.tensor([row.wrong for row in rows]),
            counterfactual=torch.tensor(counterfactual),
            texts=[row.text for row in rows],
            roles={role: torch.tensor([row.roles[role] for row in rows]) for role in rows[0].roles},
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

    def readout(self) -> Readout:
        """logit(correct) - logit(wrong) at the last real token of each prompt."""
        return logit_difference(self.position, self.correct, self.wrong)

    def take(self, rows: slice | Int[Tensor, " n"]) -> "Prompts":
        """Some of the prompts, padded to the same width as before."""
        index = torch.arange(len(self))[rows].tolist()
        return Prompts(
            tokens=self.tokens[index],
            mask=self.mask[index],
            position=self.position[index],
            correct=self.correct[index],
            wrong=self.wrong[index],
            counterfactual=self.counterfactual[index],
            texts=[self.texts[i] for i in index],
            roles={role: positions[index] for role, positions in self.roles.items()},
        )

    def checked(self, *, n_ctx: int, d_vocab: int) -> "Prompts":
        """These prompts, or an error if they do not fit a model with this context length and vocabulary."""
        if self.tokens.shape[1] > n_ctx:
            longest = int(self.position.argmax())
            raise BadInput(
                f"prompt {longest} ({self.texts[longest][:40]!r}...) has {self.tokens.shape[1]} tokens; "
                f"the model's context holds {n_ctx}: shorten it or take a model with a longer context"
            )
        answers = torch.stack([self.correct, self.wrong], 1)
        ids = torch.cat([self.tokens, self.counterfactual, answers], 1)
        outside = (ids < 0) | (ids >= d_vocab)
        if bool(outside.any()):
            row = int(outside.any(1).int().argmax())
            token = int(ids[row][outside[row]][0])
            raise BadInput(
                f"prompt {row} has token {token}, outside the model's vocabulary of {d_vocab}; "
                f"use the model's own tokenizer"
            )
        return self
