"""A specimen: a model with its vocabulary, its input distribution, a few examples and its component list; never the
answer.

Three vocabularies exist. A *finite* one lists every input token and every output value (benchmark circuits and
anything made by `vesalius train`); a *text* one is a tokenizer. Both turn inputs into token ids with BOS in front and
logits back into outputs, so that their callers need not handle BOS or PAD. A model without a tokenizer has its token
*ids* as its vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.view import (
    Answer,
    Facts,
    HeadMap,
    Several,
    Sheet,
    View,
    Viewable,
    join_first,
    subject_of,
    title_of,
)
from vesalius.errors import BadInput, choices, note, quoted
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.values import JsonObject, rounded

Token = str | int | float
Value = str | int | float | bool | None | tuple
Kind = Literal["benchmark", "trained", "natural"]


class Vocabulary(Protocol):
    """How inputs become token ids and logits become outputs."""

    @property
    def max_len(self) -> int:
        """Longest input, without BOS."""
        ...

    @property
    def min_len(self) -> int:
        """Shortest input."""
        ...

    def tokenize(self, inputs: Sequence[Any]) -> Int[Tensor, "batch pos"]:
        """Token ids with BOS first, padded on the right."""
        ...

    def lengths(self, inputs: Sequence[Any]) -> list[int]:
        """How many tokens each input has, without BOS."""
        ...

    def decode(self, logits: Float[Tensor, "batch pos out"]) -> list[list[Value]]:
        """The output at every position after BOS."""
        ...

    def summary(self) -> list[Token] | JsonObject:
        """What `vesalius show` prints."""
        ...


@dataclass(frozen=True)
class FiniteVocabulary:
    """A list of tokens and a list of outputs (rounded, see `vesalius.values`); `outputs` None: one number per position.

    `min_len` to `max_len` are the lengths the model was accepted on; other lengths are refused.
    """

    tokens: tuple[Token, ...]
    outputs: tuple[Value, ...] | None
    max_len: int
    min_len: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", rounded(self.outputs))

    @property
    def bos(self) -> int:
        """BOS follows the listed tokens; PAD follows BOS."""
        return len(self.tokens)

    @property
    def pad(self) -> int:
        """The id that fills short rows; it is never attended to."""
        return len(self.tokens) + 1

    @cached_property
    def _codes(self) -> dict[Token, int]:
        return {rounded(token): code for code, token in enumerate(self.tokens)}

    def tokenize(self, inputs: Sequence[Sequence[Token]]) -> Int[Tensor, "batch pos"]:
        """Token ids with BOS first, padded on the right to the longest input."""
        lengths = self.lengths(inputs)
        longest = max(lengths)
        return torch.tensor(
            [[self.bos, *map(self._code, tokens), *[self.pad] * (longest - len(tokens))] for tokens in inputs]
        )

    def lengths(self, inputs: Sequence[Sequence[Token]]) -> list[int]:
        """How many tokens each input has; empty and overlong ones are refused."""
        example = list(self.tokens[:3])
        for tokens in require_list(inputs, f"lists of tokens such as {[example]}"):
            if isinstance(tokens, str) or not isinstance(tokens, Sequence):
                raise BadInput(f"input {tokens!r} is not a list of tokens; write for example {example}")
            if not self.min_len <= len(tokens) <= self.max_len:
                lengths = f"{self.min_len} to {self.max_len}"
                raise BadInput(f"an input of {len(tokens)} tokens does not fit: this specimen takes {lengths}")
        return [len(tokens) for tokens in inputs]

    def decode(self, logits: Float[Tensor, "batch pos out"]) -> list[list[Value]]:
        """The output value at every position after BOS (meaningless past an input's end)."""
        if self.outputs is None:
            return logits[:, 1:, 0].tolist()
        return [[self.outputs[code] for code in row] for row in logits[:, 1:].argmax(-1).tolist()]

    def summary(self) -> list[Token]:
        """Every token."""
        return list(self.tokens)

    def _code(self, token: Token) -> int:
        code = self._codes.get(rounded(token)) if isinstance(token, Token) and not isinstance(token, bool) else None
        if code is None:
            raise BadInput(f"token {token!r} is not in this specimen's vocabulary: {choices(map(repr, self.tokens))}")
        return code


@dataclass(frozen=True)
class TextVocabulary:
    """A tokenizer's vocabulary; inputs are texts or lists of single-token strings, outputs the likeliest next
    tokens.
    """

    tokenizer: Tokenizer
    context: int
    pad: int = 0
    min_len: int = 1

    @property
    def max_len(self) -> int:
        """The context, less BOS."""
        return self.context - (self.tokenizer.bos is not None)

    def tokenize(self, inputs: Sequence[str | Sequence[str]]) -> Int[Tensor, "batch pos"]:
        """Token ids with BOS first (where the model has one), padded on the right. The text of a special token is read
        as that token; a text that begins with BOS has it twice, which a note says.
        """
        rows = [self._ids(text) for text in self._check_inputs(inputs)]
        if self.tokenizer.bos is not None and any(row[1:2] == [self.tokenizer.bos] for row in rows):
            note(f"a text begins with {self.bos_text}, which is put before every text: the model reads it twice")
        width = max(map(len, rows))
        return torch.tensor([row + [self.pad] * (width - len(row)) for row in rows])

    @property
    def bos_text(self) -> str | None:
        """The token that is put before every text."""
        return None if self.tokenizer.bos is None else self.tokenizer.decode([self.tokenizer.bos])

    def lengths(self, inputs: Sequence[str | Sequence[str]]) -> list[int]:
        """Tokens of each input, without BOS."""
        return [len(self._ids(text)) - (self.tokenizer.bos is not None) for text in self._check_inputs(inputs)]

    def decode(self, logits: Float[Tensor, "batch pos out"]) -> list[list[Value]]:
        """The likeliest next token at every position after BOS."""
        first = int(self.tokenizer.bos is not None)
        return [[self.tokenizer.piece(token) for token in row] for row in logits[:, first:].argmax(-1).tolist()]

    def summary(self) -> JsonObject:
        """The vocabulary's size; it is too long to list."""
        return {"kind": "text", "size": self.tokenizer.size}

    def _check_inputs(self, inputs: Sequence[str | Sequence[str]]) -> Sequence[str | Sequence[str]]:
        return require_list(inputs, "texts such as ['Hello']")

    def _ids(self, text: str | Sequence[str]) -> list[int]:
        if isinstance(text, str):
            ids = self.tokenizer.encode(text)
        elif not isinstance(text, Sequence):
            raise BadInput(f"input {text!r} is neither a text nor a list of tokens; write for example 'Hello'")
        else:
            start = [] if self.tokenizer.bos is None else [self.tokenizer.bos]
            ids = start + [self.tokenizer.token(str(token)) for token in text]
        if not 0 < len(ids) <= self.context:
            raise BadInput(f"a prompt of {len(ids)} tokens does not fit: this model takes 1 to {self.context}")
        return ids


@dataclass(frozen=True)
class IdVocabulary:
    """Token ids as they are, for a model without a tokenizer: inputs are lists of ids, outputs the likeliest ids."""

    size: int
    context: int
    min_len: int = 1

    @property
    def max_len(self) -> int:
        """The context."""
        return self.context

    def tokenize(self, inputs: Sequence[Sequence[int]]) -> Int[Tensor, "batch pos"]:
        """The ids, padded on the right with 0."""
        width = max(self.lengths(inputs))
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in inputs])

    def lengths(self, inputs: Sequence[Sequence[int]]) -> list[int]:
        """How many ids each input has; anything but ids of this vocabulary is refused."""
        for ids in require_list(inputs, "lists of token ids such as [[1, 2]]"):
            if isinstance(ids, str) or not isinstance(ids, Sequence) or not all(type(i) is int for i in ids):
                raise BadInput(f"input {ids!r} is not a list of token ids; this model has no tokenizer, write [1, 2]")
            if outside := [i for i in ids if not 0 <= i < self.size]:
                raise BadInput(f"token id {outside[0]} is outside this model's vocabulary of {self.size}")
            if not 1 <= len(ids) <= self.context:
                raise BadInput(f"an input of {len(ids)} tokens does not fit: this model takes 1 to {self.context}")
        return [len(ids) for ids in inputs]

    def decode(self, logits: Float[Tensor, "batch pos out"]) -> list[list[Value]]:
        """The likeliest id at every position."""
        return logits.argmax(-1).tolist()

    def summary(self) -> JsonObject:
        """The vocabulary's size."""
        return {"kind": "ids", "size": self.size}


@dataclass(frozen=True, repr=False)
class Specimen(Viewable):
    """A model with everything needed to study it. `components` is the localised circuit where it is known, else every
    head and MLP; `source` is the name or path that it was loaded by, `dtype` its number format (None: float32, for
    which nothing was asked or changed), `behaviour_source` the behaviour itself where it is not one of the built-in
    ones. `tokenizer` is the directory of a tokenizer that was given (`IN_PYTHON` for one in memory), `revision` that of
    a hub id.
    """

    id: str
    name: str
    kind: Kind
    model: Transformer
    vocabulary: Vocabulary
    components: tuple[Component, ...]
    examples: tuple[JsonObject, ...]
    draw: Callable[[int, int], list[Any]]
    behaviour: str | None = None
    source: str | None = field(default=None, compare=False)
    dtype: str | None = field(default=None, compare=False)
    tokenizer: str | None = field(default=None, compare=False)
    revision: str | None = field(default=None, compare=False)
    behaviour_source: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", Several(self.components))

    def tokenize(self, inputs: Sequence[object]) -> Int[Tensor, "batch pos"]:
        """Token ids of inputs (lists of tokens; texts for natural models), BOS first, padded on the right."""
        return self.vocabulary.tokenize(inputs)

    def decode(self, logits: Float[Tensor, "batch pos out"]) -> list[list[Value]]:
        """Outputs at every position after BOS; cut each to its input's length."""
        return self.vocabulary.decode(logits)

    def pieces(self, ids: Int[Tensor, " pos"]) -> tuple[str, ...]:
        """Token ids as texts, each by itself."""
        if isinstance(self.vocabulary, TextVocabulary):
            return tuple(map(self.vocabulary.tokenizer.piece, ids.tolist()))
        names = getattr(self.vocabulary, "tokens", ())
        return tuple(str(names[token]) if token < len(names) else "BOS" for token in ids.tolist())

    def sample(self, n: int, seed: int = 0) -> list[Any]:
        """`n` inputs from the specimen's distribution, the same for the same seed."""
        if n < 1:
            raise BadInput(f"cannot sample {n} inputs; ask for at least one")
        return self.draw(n, seed)

    @torch.no_grad()
    def predict(self, inputs: Sequence[object]) -> list[list[Value]]:
        """The model's decoded outputs, one per token of each input."""
        lengths = self.vocabulary.lengths(inputs)
        tokens = self.tokenize(inputs)
        offset = tokens.shape[1] - max(lengths)
        mask = torch.arange(tokens.shape[1])[None] < torch.tensor(lengths)[:, None] + offset
        outputs: list[list[Value]] = []
        for rows in torch.arange(len(tokens)).split(64):
            logits = self.model(tokens[rows].to(self.model.device), mask=mask[rows].to(self.model.device))
            outputs += self.decode(logits.cpu())
        return [[json_value(value) for value in row[:length]] for row, length in zip(outputs, lengths, strict=True)]

    def describe(self) -> JsonObject:
        """The entry of `vesalius specimens`."""
        config = self.model.config
        shape = {
            "id": self.id,
            "name": self.name,
            "kind": self.kind,
            "components": [str(component) for component in self.components],
            "layers": config.n_layers,
            "heads": config.n_heads,
            "d_model": config.d_model,
        }
        return shape | ({"wrapped": self.wrapping} if self.wrapping else {})

    @property
    def wrapping(self) -> str | None:
        """How and why the layers of transformers run in the place of ours; None where they do not."""
        return getattr(self.model, "wrapping", None)

    def require_patterns(self, verb: str) -> None:
        """Refuse a model that has layers without patterns of attention, for a verb that reads those of every layer."""
        if self.model.config.mixers:
            raise BadInput(
                f"specimen {self.name!r}: {self.wrapping}; {verb} needs the patterns of every layer; sweep, what-if "
                "and discover do not"
            )

    def view(self) -> View:
        """Its shape, and which components are its circuit."""
        config, parts = self.model.config, self.components
        behaviour = f", behaviour {title_of(self.behaviour)}" if self.behaviour else ""
        same = self.name == self.id or config.wrapped
        name = self.name if same else f"{self.name} (id {self.id})"
        whole, inside = len(parts) == len(self.model.components), set(parts)
        circuit = f"all {len(parts)} components" if whole else f"circuit: {join_first(map(str, parts), 8)}"
        rows = [
            (str(part), part.layer, "head" if part.is_head else "MLP", part in inside) for part in self.model.components
        ]
        subject = subject_of(self.name, self.behaviour)
        return View(
            f"{subject}: circuit of {len(parts)} of {len(rows)} components",
            Answer(
                f"Specimen {name}, {self.kind}{behaviour}: {config.n_layers} layers, {config.n_heads} heads, "
                f"d_model {config.d_model}"
            ),
            [
                Facts(
                    [
                        ("", f"{circuit}; {_vocabulary_words(self.vocabulary)}"),
                        *([("wrapped", self.wrapping)] if self.wrapping else []),
                    ]
                ),
                HeadMap({}, config.n_layers, config.n_heads, marked=list(map(str, parts)), title="The circuit"),
                Sheet(("component", "layer", "kind", "circuit"), rows, title="Components"),
            ],
        )


def _vocabulary_words(vocabulary: Vocabulary) -> str:
    summary = vocabulary.summary()
    if isinstance(summary, list):
        tokens = join_first(map(str, summary), 8)
        return f"vocabulary of {len(summary)} tokens ({tokens}), inputs of {vocabulary.min_len} to {vocabulary.max_len}"
    kind = "text vocabulary" if summary["kind"] == "text" else "vocabulary"
    return f"{kind} of {summary['size']} tokens, context of {vocabulary.max_len}"


def require_list(inputs: object, wanted: str) -> Sequence[Any]:
    """The inputs of a prediction, which must be a list of at least one."""
    if isinstance(inputs, str) or not isinstance(inputs, Sequence):
        raise BadInput(f"input {quoted(inputs, 60)} is not a list; give a list of {wanted}")
    if not len(inputs):
        raise BadInput(f"the list of inputs is empty; give a list of {wanted}")
    return inputs


def listed_tokens(specimen: Specimen, who: str) -> FiniteVocabulary:
    """The specimen's vocabulary, which must list its tokens; `who` asks for it."""
    vocabulary = specimen.vocabulary
    if isinstance(vocabulary, FiniteVocabulary):
        return vocabulary
    if isinstance(vocabulary, IdVocabulary):
        raise BadInput(
            f"specimen {specimen.name!r} has no tokenizer: token ids alone cannot be explained; give it a tokenizer "
            "and a behaviour in text, as in ves.load(model, tokenizer=..., behaviour=...)"
        )
    raise BadInput(f"specimen {specimen.name!r} has a text vocabulary; {who} needs listed tokens")


def json_value(value: Value) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, tuple):
        return [json_value(part) for part in value]
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)
