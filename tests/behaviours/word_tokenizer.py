"""Tokenizers one can check on paper.

`word_tokenizer`: every word with its leading space is one token; numbers fall into single digits, or into pairs of
digits as GPT-2 has them.
`byte_tokenizer`: every byte is a token, so no word is.
"""

import re

from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from vesalius.behaviours import builtin, mechrl
from vesalius.behaviours import builtin as words
from vesalius.model.tokenizer import Tokenizer

BOS, UNKNOWN = 0, 1
NUMBER = {"digits": r"\d", "pairs": r" ?\d\d|\d"}
SERIES = (words.DAYS, words.MONTHS, words.NUMBERS, words.LETTERS)
POOLS = (words.NAMES, words.PLACES, words.OBJECTS, words.PARAMETERS, words.FUNCTIONS, words.DESCRIPTIONS, words.PERIODS)
TEMPLATES = (
    *(builtin.IOI_TEMPLATES, builtin.GREATER_THAN_TEMPLATES),
    *(builtin.CAPITALS_TEMPLATES, builtin.SUCCESSOR_TEMPLATES),
)


def word_tokenizer(numbers: str = "digits", *, longest: int = 99) -> Tokenizer:
    """The tokenizer of all pools and templates; words of more than `longest` letters are cut."""
    pattern = NUMBER[numbers] + rf"| ?[A-Za-z]{{1,{longest}}}|[^\w\s]|\s"
    pieces = [piece for text in _texts() for start in ("", " ") for piece in re.findall(pattern, start + text)]
    vocabulary = {"<bos>": BOS, "<unk>": UNKNOWN}
    for piece in pieces:
        vocabulary.setdefault(piece, len(vocabulary))
    backend = Backend(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.add_special_tokens(["<bos>", "<unk>"])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    backend.decoder = decoders.Fuse()
    return Tokenizer(backend, bos=BOS)


def byte_tokenizer() -> Tokenizer:
    """256 bytes and a beginning-of-sequence token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE({"<bos>": BOS, **{symbol: i + 1 for i, symbol in enumerate(alphabet)}}, []))
    backend.add_special_tokens(["<bos>"])
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, bos=BOS)


def _texts() -> list[str]:
    texts = [word for pool in (*POOLS, *SERIES) for word in pool]
    texts += [word for pair in words.CAPITALS for word in pair]
    for templates in TEMPLATES:
        texts += templates
    texts += [builtin._template(*style) for style in builtin.STYLES]
    texts += ["\n", "+-=", *(f"{i:02}" for i in range(100)), *"0123456789{}"]
    return [*texts, *mechrl.OBJECTS, *mechrl.IOI_TEMPLATES, *mechrl.DESCRIPTIONS, mechrl.docstring_template(1, 1)]
