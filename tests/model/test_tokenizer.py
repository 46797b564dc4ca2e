"""Words as they stand behind other text, where a tokenizer puts a space of its own before every text."""

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from vesalius.model.tokenizer import Tokenizer

PIECES = ["▁", "a", "J", "o", "▁a", "▁J", "▁Jo"]


def llama_like(*, prefix: bool) -> Tokenizer:
    """Seven pieces; with `prefix`, as in Llama 2, "Jo" and " Jo" are written "▁Jo" and "▁▁Jo"."""
    merges = [("▁", "a"), ("▁", "J"), ("▁J", "o")]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(PIECES)}, merges))
    replace = normalizers.Replace(" ", "▁")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prefix else replace
    steps = [decoders.Replace("▁", " "), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return Tokenizer(backend, bos=None)


def test_a_word_behind_other_text_is_one_token() -> None:
    tokenizer = llama_like(prefix=True)
    assert tokenizer.encode("Jo a") == [PIECES.index("▁Jo"), PIECES.index("▁a")]
    assert tokenizer.encode(" Jo") == [PIECES.index("▁"), PIECES.index("▁Jo")]
    assert tokenizer.token(" Jo") == PIECES.index("▁Jo")
    assert tokenizer.is_single(" Jo")
    assert tokenizer.continuing("Jo") == [PIECES.index("J"), PIECES.index("o")]
    assert [tokenizer.piece(i) for i in range(len(PIECES))] == [" ", "a", "J", "o", " a", " J", " Jo"]


def test_other_tokenizers_read_a_word_as_before() -> None:
    tokenizer = llama_like(prefix=False)
    assert tokenizer.token(" Jo") == tokenizer.encode(" Jo")[0] == PIECES.index("▁Jo")
    assert not tokenizer.is_single("Jo")
    assert [tokenizer.piece(i) for i in range(len(PIECES))] == [" ", "a", "J", "o", " a", " J", " Jo"]
