"""Text to token ids and back, for natural models only.

A thin wrapper around the `tokenizers` library that knows the beginning-of-sequence token and whether a word is a single
token, which every behaviour with an answer token needs.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from vesalius.errors import BadInput
from vesalius.files import write_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


_BEFORE = "a"  # any text; a word is read as it stands behind it


def _ids_before(backend: "Backend") -> list[int]:
    """The ids of `_BEFORE` in a tokenizer that puts a space before every text; none in any other."""
    plain, spaced = (backend.encode(text, add_special_tokens=False).ids for text in (_BEFORE, f" {_BEFORE}"))
    return plain if len(spaced) == len(plain) + 1 and spaced[1:] == plain else []


class Tokenizer:
    """Encodes text; `bos` is put first by `encode` where the model has one."""

    def __init__(self, backend: "Backend", *, bos: int | None) -> None:
        self._backend, self.bos = backend, bos
        unknown = getattr(backend.model, "unk_token", None) if backend is not None else None
        self._unknown = None if unknown is None else backend.token_to_id(unknown)
        self._before = [] if backend is None else _ids_before(backend)

    @classmethod
    def from_directory(cls, directory: Path, *, bos: int | None) -> "Tokenizer":
        """Read `tokenizer.json`, or GPT-2's older `vocab.json` with `merges.txt`."""
        from tokenizers import Tokenizer as Backend
        from tokenizers import decoders, models, pre_tokenizers

        tokenizer_json, vocab, merges = (directory / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
        try:
            if tokenizer_json.exists():
                return cls(Backend.from_file(str(tokenizer_json)), bos=bos)
            if vocab.exists() and merges.exists():
                backend = Backend(models.BPE.from_file(str(vocab), str(merges)))
                backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
                backend.decoder = decoders.ByteLevel()
                return cls(backend, bos=bos)
        except Exception as error:  # the library raises bare Exception for every malformed file
            raise BadInput(f"{directory}: the tokenizer files are damaged ({error}); download them again") from None
        raise BadInput(f"{directory}: no tokenizer.json and no vocab.json with merges.txt")

    def encode(self, text: str, *, bos: bool = True) -> list[int]:
        """Token ids of a text, after the beginning-of-sequence token if `bos`. The text of a special token, such as
        <|endoftext|>, is read as that token. Text that the vocabulary does not have is refused, rather than read as an
        unknown token.
        """
        encoding = self._backend.encode(text, add_special_tokens=False)
        if self._unknown is not None and self._unknown in encoding.ids:
            for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
                piece = text[start:end]
                if token == self._unknown and piece and piece != self._backend.id_to_token(token):
                    raise BadInput(
                        f"{piece!r} is not in this tokenizer's vocabulary of {self.size}; it would be read as "
                        f"{self._backend.id_to_token(token)}"
                    )
        return [self.bos, *encoding.ids] if bos and self.bos is not None else encoding.ids

    def continuing(self, text: str) -> list[int]:
        """Token ids of a text that continues another one. Where the tokenizer puts a space before every text of its
        own (Llama 2, Mistral), " John" alone would be a space and "John"; after other text it is one token.
        """
        if self._before:
            ids = self.encode(_BEFORE + text, bos=False)
            if ids[: len(self._before)] == self._before:
                return ids[len(self._before) :]
        return self.encode(text, bos=False)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included."""
        return self._backend.decode(list(ids), skip_special_tokens=False)

    def piece(self, token: int) -> str:
        """The text that one token adds after other text, with the space it begins with."""
        return self.decode([*self._before, token]).removeprefix(_BEFORE if self._before else "")

    def token(self, word: str) -> int:
        """The id of a word that is one token (mind the leading space); the error says how a longer word splits."""
        ids = self.continuing(word)
        if len(ids) != 1:
            raise BadInput(
                f"{word!r} is {len(ids)} tokens here ({[self.piece(i) for i in ids]}); a single token is needed"
            )
        return ids[0]

    def is_single(self, word: str) -> bool:
        """Whether a word is one token."""
        try:
            return len(self.continuing(word)) == 1
        except BadInput:  # not in the vocabulary at all
            return False

    def save(self, directory: Path) -> None:
        """Write `tokenizer.json`, which `from_directory` reads."""
        write_text(directory / "tokenizer.json", self._backend.to_str(pretty=True))

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return self._backend.get_vocab_size()

    @cached_property
    def ordinary_ids(self) -> Sequence[int]:
        """Ids that decode to text on their own: no special tokens, no broken bytes."""
        special = {i for i, token in self._backend.get_added_tokens_decoder().items() if token.special}
        return tuple(i for i in range(self.size) if i not in special and "\ufffd" not in self.decode([i]))
