"""Tokenizers rebuilt from the vocabulary inside a GGUF file: byte-level BPE, and SentencePiece BPE."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vesalius.errors import BadInput

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

#: Types of tokens in a GGUF file.
_CONTROL, _USER_DEFINED = 3, 4
_SPACE = "\u2581"
#: How text is split before merging, by llama.cpp's name; the default of byte-level BPE is GPT-2's rule.
_GPT2 = ("default", "", "gpt-2", "olmo", "phi-2", "mpt", "jina-en")
_DIGIT_BY_DIGIT = ("smollm", "starcoder", "refact", "command-r")
_LETTERS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {
    "qwen2": _LETTERS % "",
    "llama-bpe": _LETTERS % "{1,3}",
    "llama3": _LETTERS % "{1,3}",
    "smaug-bpe": _LETTERS % "{1,3}",
}
_SPLITS |= {"dbrx": _LETTERS % "{1,3}", "olmo2": _LETTERS % "{1,3}"}


def rebuild(field: Callable[..., Any], *, where: str) -> "Backend":
    """The tokenizer of a GGUF file whose metadata `field(name)` reads."""
    kind = field("tokenizer.ggml.model")
    words, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    if kind == "gpt2":
        backend = _byte_level(words, field("tokenizer.ggml.merges"), field("tokenizer.ggml.pre", default=""), where)
    elif kind == "llama":
        prefix = bool(field("tokenizer.ggml.add_space_prefix", default=True))
        backend = _sentencepiece(words, field("tokenizer.ggml.scores"), prefix=prefix)
    else:
        raise BadInput(f"{where}: tokenizers of kind {kind!r} are not supported; give a tokenizer of your own")
    _add_special(backend, words, kinds, both=kind == "llama")
    return backend


def _byte_level(words: Sequence[str], merges: Sequence[str], pre: str, where: str) -> "Backend":
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    pairs = [(first, second) for first, _, second in (pair.partition(" ") for pair in merges)]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, pairs))
    steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if pre in _DIGIT_BY_DIGIT:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    elif pre in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[pre]), behavior="isolated")
        steps = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    elif pre not in _GPT2:
        raise BadInput(f"{where}: the rule {pre!r} for splitting text is not known; give a tokenizer of your own")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(words: Sequence[str], scores: Sequence[float], *, prefix: bool) -> "Backend":
    """SentencePiece's BPE: pieces with higher scores are merged first; unknown characters become bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocabulary = {word: i for i, word in enumerate(words)}
    merges = []
    for word, score in zip(words, scores, strict=True):
        splits = [(word[:cut], word[cut:]) for cut in range(1, len(word))]
        inside = [(a, b) for a, b in splits if a in vocabulary and b in vocabulary]
        inside.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        merges += [(score, pair) for pair in inside]
    merges.sort(key=lambda merge: -merge[0])
    unknown = next((word for word in ("<unk>", "[UNK]") if word in vocabulary), None)
    pairs = [pair for _, pair in merges]
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    replace: Any = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), replace]) if prefix else replace
    steps: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return tokenizer


def _add_special(backend: "Backend", words: Sequence[str], kinds: Sequence[int], *, both: bool) -> None:
    from tokenizers import AddedToken

    pairs = list(zip(words, map(int, kinds), strict=True))
    backend.add_special_tokens([AddedToken(word, special=True) for word, kind in pairs if kind == _CONTROL])
    if both:
        own = [AddedToken(word, normalized=False) for word, kind in pairs if kind == _USER_DEFINED]
        backend.add_tokens(own)
