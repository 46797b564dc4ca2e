"""The splits share no word, no template, no token id."""

import re

import pytest

from tests.behaviours.word_tokenizer import POOLS, SERIES, TEMPLATES, byte_tokenizer, word_tokenizer
from vesalius.behaviours import SPLITS, behaviour, behaviours, builtin
from vesalius.behaviours import builtin as words
from vesalius.behaviours.prompts import Material, fill, select_split
from vesalius.errors import BadInput

EVERYTHING = [*POOLS, *SERIES, words.CAPITALS, words.CENTURIES, builtin.STYLES, *TEMPLATES]


@pytest.mark.parametrize("pool", EVERYTHING)
def test_splits_partition_every_pool(pool: tuple) -> None:
    assert len(set(pool)) == len(pool)
    parts = [select_split(pool, split) for split in SPLITS]
    assert sorted(item for part in parts for item in part) == sorted(pool)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_pools_are_large() -> None:
    assert len(words.NAMES) >= 60
    assert len(builtin.IOI_TEMPLATES) >= 9
    assert len(words.PARAMETERS) >= 60
    assert len({country for country, _ in words.CAPITALS}) >= 60
    assert len({capital for _, capital in words.CAPITALS}) == len(words.CAPITALS)


def test_words_of_different_kinds_do_not_meet() -> None:
    assert not set(words.PARAMETERS) & {*words.DESCRIPTIONS, *words.FUNCTIONS}
    assert not set(words.NAMES) & {
        word for template in builtin.IOI_TEMPLATES for word in re.findall("[A-Za-z]+", template)
    }


UNDIVIDED = ("greater-than", "addition", "mechrl-induction", "mechrl-ioi", "mechrl-docstring")


@pytest.mark.parametrize("name", [b.name for b in behaviours() if b.name not in UNDIVIDED])
def test_answers_of_the_splits_are_disjoint(name: str) -> None:
    """Ten digits cannot be split, so greater-than splits its centuries (below) and addition its sums instead; the
    published batches of MechRL are not split.
    """
    tokenizer = word_tokenizer()
    answers = []
    for split in SPLITS:
        prompts = behaviour(name).sample(tokenizer, 60, seed=1, split=split, n_ctx=128, d_vocab=tokenizer.size)
        answers.append({*prompts.correct.tolist(), *prompts.wrong.tolist()})
    assert not answers[0] & answers[1]
    assert not answers[0] & answers[2]
    assert not answers[1] & answers[2]


def test_induction_prompts_of_two_splits_share_no_token_but_the_first() -> None:
    tokenizer = word_tokenizer()
    seen = [
        set(
            behaviour("induction")
            .sample(tokenizer, 40, seed=0, split=s, n_ctx=32, d_vocab=tokenizer.size)
            .tokens.flatten()
            .tolist()
        )
        for s in SPLITS
    ]
    assert seen[0] & seen[1] == seen[1] & seen[2] == seen[0] & seen[2] == {tokenizer.bos}


def test_years_of_the_splits_are_in_different_centuries() -> None:
    tokenizer = word_tokenizer()
    centuries = []
    for split in SPLITS:
        prompts = behaviour("greater-than").sample(tokenizer, 60, seed=0, split=split, n_ctx=64, d_vocab=tokenizer.size)
        centuries.append({text[-2:] for text in prompts.texts})
    assert [len(part) for part in centuries] == [3, 3, 3]
    assert len(set.union(*centuries)) == 9


def test_words_the_tokenizer_cuts_are_dropped() -> None:
    """With words of at most four letters whole, "Mary" stays and "Sarah" goes."""
    material = Material("ioi", word_tokenizer(longest=4), "train", 9999)
    names = material.words(words.NAMES, at_least=1)
    assert names == [word for word in select_split(words.NAMES, "train") if len(word) <= 4]
    assert "Mary" in names


@pytest.mark.parametrize("name", ["ioi", "docstring", "capitals", "successor"])
def test_too_few_words_name_behaviour_and_tokenizer(name: str) -> None:
    with pytest.raises(
        BadInput, match=rf"behaviour {name}: the tokenizer of 257 tokens leaves 0 .* are needed"
    ) as error:
        behaviour(name).sample(byte_tokenizer(), 4, seed=0, n_ctx=128, d_vocab=257)
    assert "\n" not in str(error.value)


def test_too_small_a_vocabulary_for_induction() -> None:
    tokenizer = word_tokenizer()
    with pytest.raises(
        BadInput, match=r"behaviour induction: .* leaves 30 ordinary tokens in the validation split and 32 are needed"
    ):
        behaviour("induction").sample(tokenizer, 4, seed=0, split="validation", n_ctx=64, d_vocab=92)


def test_years_cut_otherwise_are_refused() -> None:
    tokenizer = word_tokenizer("pairs", longest=1)
    assert builtin.year_form(tokenizer) == "pairs"
    assert builtin.year_form(byte_tokenizer()) == "digits"
    tokenizer._backend.pre_tokenizer = None  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="' 1732' is not in this tokenizer's vocabulary"):
        builtin.year_form(tokenizer)


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(
        BadInput, match="behaviour 'arithmetic' does not exist; choose one of induction, induction-out, ioi"
    ):
        behaviour("arithmetic")
    with pytest.raises(BadInput, match="split 'dev' does not exist; choose one of train, validation, test"):
        behaviour("ioi").sample(word_tokenizer(), 4, seed=0, split="dev", n_ctx=64, d_vocab=9999)


def test_fill_remembers_where_fields_end() -> None:
    filled = fill("When {a} met {b}.", {"a": "Ann", "b": "Bo"})
    assert filled.text == "When Ann met Bo."
    assert {field: filled.text[:end] for field, end in filled.ends.items()} == {"a": "When Ann", "b": "When Ann met Bo"}
