"""Text as rows of tokens: what is trained on, and what is held out.

Articles, not rows, are held out, as for control text: every third one (`test`) is measured on and never trained on. A
row is BOS, where the model has one, and consecutive tokens of one article; the rest of an article is a shorter row.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.behaviours.controls import Corpus, corpus_named
from vesalius.errors import BadInput
from vesalius.intervene import Batch
from vesalius.model.specimen import Specimen, TextVocabulary

#: A row has at least so many tokens of text: one is predicted from nothing.
SHORTEST = 2


@dataclass(frozen=True)
class Rows:
    """Rows of tokens, padded at their ends; `counted` are the tokens of text, without BOS and padding."""

    tokens: Int[Tensor, "row pos"]
    mask: Bool[Tensor, "row pos"]
    counted: Bool[Tensor, "row pos"]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n_tokens(self) -> int:
        """Tokens of text."""
        return int(self.counted.sum())

    def take(self, rows: Int[Tensor, " some"] | slice) -> "Rows":
        """Some of the rows."""
        return Rows(self.tokens[rows], self.mask[rows], self.counted[rows])

    def batch(self) -> Batch:
        """The rows as prompts."""
        return Batch(self.tokens, self.mask)

    def parts(self, rows: int) -> Iterator["Rows"]:
        """Some rows at a time."""
        for start in range(0, len(self), rows):
            yield self.take(slice(start, start + rows))

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]], *, bos: int | None) -> "Rows":
        """Rows of given tokens of text."""
        first = [] if bos is None else [bos]
        width = len(first) + max(map(len, texts))
        tokens, mask = (
            torch.zeros(len(texts), width, dtype=torch.long),
            torch.zeros(len(texts), width, dtype=torch.bool),
        )
        for i, text in enumerate(texts):
            row = torch.tensor([*first, *text])
            tokens[i, : len(row)], mask[i, : len(row)] = row, True
        counted = mask.clone()
        counted[:, : len(first)] = False
        return cls(tokens, mask, counted)


@dataclass(frozen=True)
class Texts:
    """The rows to train on, those held out, and a digest of both."""

    train: Rows
    held_out: Rows
    sha256: str


def read_corpora(names: Sequence[str]) -> Corpus:
    """The articles of all texts in order; those that several have count once."""
    corpora = [corpus_named(name) for name in names]
    articles = {article.text: article for corpus in corpora for article in corpus.articles}
    return Corpus("+".join(corpus.name for corpus in corpora), tuple(articles.values()))


def rows_of(specimen: Specimen, corpus: Corpus, *, context: int) -> Texts:
    """The rows of a corpus for a model, refused where there is too little of it."""
    if not isinstance(specimen.vocabulary, TextVocabulary):
        raise BadInput(f"specimen {specimen.name!r} reads no text; transcoders are trained on models that do")
    tokenizer = specimen.vocabulary.tokenizer
    bos = tokenizer.bos
    width = min(context, specimen.model.config.n_ctx) - (bos is not None)
    if width < SHORTEST:
        raise BadInput(f"context={context} leaves {width} token of text beside BOS; give {SHORTEST + 1} or more")
    parts = {}
    for name, splits in {"train": ("train", "validation"), "held out": ("test",)}.items():
        texts = []
        for article in (one for split in splits for one in corpus.split(split)):
            ids = tokenizer.encode(article.text, bos=False)
            texts += [ids[start : start + width] for start in range(0, len(ids), width)]
        if not (texts := [text for text in texts if len(text) >= SHORTEST]):
            raise BadInput(f"text {corpus.name}: holds no {SHORTEST} tokens in a row to be {name}; give more of it")
        parts[name] = Rows.of(texts, bos=bos)
    digest = hashlib.sha256()
    for rows in parts.values():
        digest.update(rows.tokens.numpy().tobytes())
    return Texts(parts["train"], parts["held out"], digest.hexdigest())
