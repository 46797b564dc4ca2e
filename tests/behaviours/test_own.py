"""Behaviours of one's own: what becomes of each row, where rows come from, and that splits share nothing."""

import random

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import byte_tokenizer, word_tokenizer
from vesalius.behaviours.builtin import NAMES
from vesalius.behaviours.metrics import LOG_PROBABILITY
from vesalius.behaviours.own import ALL_ROWS, LEAST_TO_DIVIDE, RowBehaviour
from vesalius.behaviours.prompts import OTHER_PROMPT
from vesalius.behaviours.registry import find_behaviour
from vesalius.documents.performance import RANDOM_TOKENS
from vesalius.errors import LONGEST_MESSAGE, BadInput

TOKENIZER = word_tokenizer()
SIZES = {"n_ctx": 32, "d_vocab": TOKENIZER.size}
GOOD = {
    "prompt": "The capital of France is",
    "answer": " Paris",
    "wrong": " Rome",
    "counterfactual": "The capital of Italy is",
}


def own(*rows: dict, **options) -> RowBehaviour:
    made = ves.Behaviour.from_rows(list(rows), **options)
    assert isinstance(made, RowBehaviour)
    return made


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"counterfactual": "The capital of New Zealand is"}, "6 tokens against 7"),
        ({"counterfactual": GOOD["prompt"]}, "identical pair"),
        ({"answer": "Paris"}, "starts without a space: did you mean ' Paris'?"),
        ({"wrong": None, "answer": [" Paris", " Rome"]}, "no wrong answer: give one, or `metric` log-probability"),
        ({"wrong": " Paris"}, "' Paris' is both right and wrong"),
        ({"wrong": " Paris Rome"}, "' Paris Rome' begins with ' Paris': give a wrong answer that parts from the right"),
        ({"answer": None}, "has no answer"),
        ({"answer": ""}, "has no answer"),
        ({"answer": {"a": 1}}, "answer is neither a text nor a list of texts"),
        ({"prompt": ""}, "has no prompt"),
        ({"counterfactual": 7}, "the counterfactual is int, not a text"),
        ({"roles": {"country": "Spain"}}, "role 'country': 'Spain' is not in the prompt"),
        ({"roles": {"country": [20, 99]}}, "characters 20 to 99 are not in the prompt"),
        ({"split": "exam"}, "split 'exam' does not exist: use train, validation or test"),
        ({"prompt": "the " * 40 + "capital is"}, "43 tokens against 6"),
        ({"prompt": "the " * 40 + "capital is", "counterfactual": None}, "43 tokens; the model's context holds 32"),
        ({"answer": None, "answer_ids": 99999}, "answer token 99999 is outside the model's vocabulary"),
        ({"answer": 4}, 'answer 4 is a number: write the text that follows the prompt, such as " 4"'),
        ({"wrong": [" Rome", 2.5]}, 'wrong 2.5 is a number: write the text that follows the prompt, such as " 2.5"'),
        ({"answer_ids": "Paris"}, "answer_ids is neither a token id nor a list of them"),
        ({"prompt": ["The capital of France is"]}, "the prompt is list, not a text"),
        ({"prompt": " \n"}, "has no prompt"),
    ],
)
def test_a_dropped_row_says_why(change: dict, reason: str) -> None:
    fates = own(GOOD, {**GOOD, **change}, metric="logit-difference").check(TOKENIZER, **SIZES)
    assert [fate.kept for fate in fates] == [True, False]
    assert fates[0].reason is None
    assert reason in fates[1].reason


def test_a_report_quotes_little_of_a_row_of_a_hundred_thousand_characters() -> None:
    long = own({**GOOD, "wrong": " Paris" + " Rome" * 20_000}, metric="logit-difference").check(TOKENIZER, **SIZES)
    reason = long[0].as_data()["reason"]
    assert len(reason) <= LONGEST_MESSAGE
    assert reason.startswith("' Paris Rome")
    assert reason.endswith("give a wrong answer that parts from the right one at a token")


def test_what_would_align_and_what_repeats() -> None:
    rows = [GOOD, {**GOOD, "counterfactual": "The capital of New Zealand is"}, GOOD, {**GOOD, "counterfactual": None}]
    fates = own(*rows).check(TOKENIZER, **SIZES)
    assert fates[1].suggestion == "instead of 'New Zealand' one of 1 token, as 'France' has, would align"
    assert fates[2].reason == "duplicate: the same as row 1"
    assert fates[3].kept
    assert fates[3].suggestion == "no counterfactual: a prompt of 6 tokens would align"


def test_braces_are_text_and_lists_keep_their_single_tokens() -> None:
    row = {
        "prompt": "The {Paris} of {} is",
        "answer": [" Mary John", " Paris", " Rome", "Paris"],
        "wrong": [" Lima", " Oslo", " Mary John Mary"],
    }
    [fate] = own(row).check(TOKENIZER, **SIZES)
    assert fate.prompt.text == row["prompt"]
    assert [TOKENIZER.decode([token]) for token in fate.prompt.answers] == [" Paris", " Rome"]
    assert [TOKENIZER.decode([token]) for token in fate.prompt.wrongs] == [" Lima", " Oslo"]
    assert fate.reason == (
        "kept without answer ' Mary John' (2 tokens) and answer 'Paris' (starts without a space: did you mean "
        "' Paris'?) and wrong ' Mary John Mary' (3 tokens)"
    )


def test_wrong_answers_that_a_metric_can_do_without_are_said_as_well() -> None:
    row = {**GOOD, "answer": " Mary John", "wrong": " Rome Lima"}
    [fate] = own(row, metric=LOG_PROBABILITY).check(TOKENIZER, **SIZES)
    assert fate.prompt.forced == tuple(TOKENIZER.token(word) for word in (" Mary", " John"))
    assert fate.reason == "kept without wrong ' Rome Lima' (2 tokens)"
    several = own({**row, "answer": [" Mary John", " John Mary"]}, metric=LOG_PROBABILITY)
    assert several.check(TOKENIZER, **SIZES)[0].reason == (
        "none of 2 answers is one token: give one, scored by teacher forcing"
    )


@pytest.mark.parametrize(("role", "place"), [("he", 3), ("John", 20), ([0, 3], 3), ("Johnson", 11)])
def test_a_role_is_a_whole_word_before_a_part_of_one(role: object, place: int) -> None:
    letters = byte_tokenizer()  # token i is character i - 1, after <bos>
    row = {"prompt": "The Johnson and John are", "answer": " ", "roles": {"name": role}}
    [fate] = own(row).check(letters, n_ctx=64, d_vocab=letters.size)
    assert (fate.prompt.roles["name"], fate.reason) == (place, None)


@pytest.mark.parametrize("name", ["BOS", "first token", "self", "previous", "induction", "elsewhere", "", "end"])
def test_a_role_with_the_name_of_a_place_that_every_prompt_has_is_said(name: str) -> None:
    """A head that attends to John, called `BOS` in the row, would be called a sink; `end` was replaced in silence."""
    row = {"prompt": "Mary and John and", "answer": " Mary", "wrong": " John", "roles": {name: "John"}}
    [fate] = own(row).check(TOKENIZER, **SIZES)
    assert fate.reason == f"kept without role {name!r} (the name means a place that every prompt has: choose another)"
    assert fate.prompt.roles == {"end": len(fate.prompt.tokens) - 1}


def test_a_role_without_one_place_is_said() -> None:
    row = {"prompt": "Mary and John and Mary and", "answer": " John", "wrong": " Mary"}
    twice, inside = own({**row, "roles": {"one": "Mary"}}, {**GOOD, "roles": {"piece": "Fran"}}).check(
        TOKENIZER, **SIZES
    )
    assert twice.reason == "kept without role 'one' ('Mary' occurs 2 times: give [start, end])"
    assert inside.reason == "kept without role 'piece' (it ends inside a token)"
    assert set(twice.prompt.roles) == set(inside.prompt.roles) == {"end"}


def test_a_misspelt_field_is_refused_and_a_foreign_one_is_not() -> None:
    with pytest.raises(BadInput, match="row 1: field 'anwser' is not known; did you mean 'answer'"):
        own({"prompt": "a", "anwser": " b"})
    assert own({**GOOD, "difficulty": 3}).check(TOKENIZER, **SIZES)[0].kept


def test_roles_are_token_positions() -> None:
    row = {**GOOD, "roles": {"country": "France", "noun": [4, 11]}}
    [fate] = own(row).check(TOKENIZER, **SIZES)
    # <bos> The capital of France is
    assert fate.prompt.roles == {"country": 4, "noun": 2, "end": 5}


def test_few_rows_are_not_divided_and_many_are() -> None:
    rows = [{**GOOD, "prompt": f"The capital of {name} is"} for name in NAMES[:LEAST_TO_DIVIDE]]
    few, many = own(*rows[:-1]), own(*rows)
    assert (few.divided, few.splits()) == (False, (ALL_ROWS,))
    assert len(few.sample(TOKENIZER, 99, seed=0, split="train", **SIZES)) == LEAST_TO_DIVIDE - 1
    texts = [set(many.sample(TOKENIZER, 99, seed=0, split=split, **SIZES).texts) for split in many.splits()]
    assert [len(part) for part in texts] == [4, 4, 4]
    assert len(set.union(*texts)) == LEAST_TO_DIVIDE


def test_rows_that_name_splits_keep_them_and_another_serves_for_an_empty_one() -> None:
    one, two = {**GOOD, "split": "train"}, {**GOOD, "prompt": "The capital of Spain is", "split": "dev"}
    made = own(one, two)
    assert made.splits() == ("train", "validation")
    assert made.sample(TOKENIZER, 9, seed=0, split="validation", **SIZES).texts == ["The capital of Spain is"]
    assert made.sample(TOKENIZER, 9, seed=0, split="test", **SIZES).texts == ["The capital of Spain is"]
    assert made.limits(TOKENIZER, **SIZES) == [
        "no row of the test split can be used, so that the validation rows serve as such"
    ]
    assert not own(one, {**two, "split": "train"}).divided, "one name for all rows divides nothing"


def test_what_is_left_of_the_rows_is_said() -> None:
    short = own(GOOD, {**GOOD, "wrong": " Lima"}, {**GOOD, "answer": "Paris"}, name="short.jsonl")
    assert short.limits(TOKENIZER, **SIZES) == [
        "2 of 3 rows can be used with this model; `vesalius behaviours MODEL --behaviour short.jsonl` says why not the "
        "others",
        "2 rows are too few to hold some out; every step uses them all",
    ]
    assert own(GOOD).limits(TOKENIZER, **SIZES) == []
    with pytest.raises(BadInput, match="none of the rows can be used with this model; row 1: identical pair"):
        own(*[{**GOOD, "counterfactual": GOOD["prompt"]}] * 2).sample(TOKENIZER, 9, seed=0, split="test", **SIZES)


def test_missing_counterfactuals_come_from_other_prompts_or_random_tokens() -> None:
    rows = [{**GOOD, "counterfactual": None, "prompt": f"The capital of {x} is", "answer": f" {y}", "wrong": " Lima"}
            for x, y in (("France", "Paris"), ("Italy", "Rome"))]  # fmt: skip
    long = {**rows[0], "prompt": "The capital city of France is"}
    prompts = own(*rows, long).sample(TOKENIZER, 9, seed=0, split="test", **SIZES)
    by_text = dict(zip(prompts.texts, range(3), strict=True))
    france, italy = by_text["The capital of France is"], by_text["The capital of Italy is"]
    assert prompts.sources[france] == prompts.sources[italy] == OTHER_PROMPT
    assert prompts.counterfactual[france].tolist() == prompts.tokens[italy].tolist()
    place = by_text["The capital city of France is"]
    assert prompts.sources[place] == RANDOM_TOKENS
    assert prompts.counterfactual[place, 0] == TOKENIZER.bos
    assert prompts.counterfactual[place].tolist() != prompts.tokens[place].tolist()


def test_the_metric_follows_the_rows() -> None:
    assert own(GOOD).used_metric is None
    assert own(GOOD, {**GOOD, "wrong": None}).used_metric == LOG_PROBABILITY
    assert own({**GOOD, "wrong": None}, metric="kl").used_metric == "kl"
    with pytest.raises(BadInput, match="metric 'vibes' does not exist; choose one of logit-difference"):
        own(GOOD, metric="vibes")


def test_one_prompt_is_found_again_by_its_name() -> None:
    made = ves.Behaviour.from_prompt("Where is {Paris}?", [" In France", " France"], wrong=" Italy")
    again = find_behaviour(made.name)
    assert again == made
    assert made.label.startswith("where-is-paris-")
    assert find_behaviour(made, metric="kl").metric == "kl"


def test_a_function_draws_rows_that_no_two_splits_share() -> None:
    def pairs(rng: random.Random) -> dict:
        one, two = rng.sample(NAMES, 2)
        return {"prompt": f"{one} and {two} and {one} and", "answer": f" {two}", "wrong": f" {one}"}

    made, again = (ves.Behaviour.from_function(pairs) for _ in range(2))
    assert isinstance(made, RowBehaviour)
    assert made == again
    assert made.name == "pairs"
    counts = [sum(row.split == split for row in made.rows) for split in ("train", "validation", "test")]
    assert counts == [64, 64, 64]
    assert len({row.prompt for row in made.rows}) == len(made.rows)
    with pytest.raises(BadInput, match=r"function <lambda>: the row .* has no answer"):
        ves.Behaviour.from_function(lambda rng: {"prompt": "a"})
    with pytest.raises(BadInput, match="it drew no row"):
        ves.Behaviour.from_function(lambda rng: None)


def test_one_row_without_a_wrong_answer_is_named() -> None:
    mixed = own(GOOD, {**GOOD, "prompt": "The capital of Peru is", "wrong": None})
    assert mixed.used_metric == LOG_PROBABILITY
    assert mixed.notes is not None
    assert mixed.notes.startswith("row 2 has no wrong answer, so every row is measured by log-probability; add one, or")
    assert own(GOOD).notes is None
    assert own({**GOOD, "wrong": None}).notes is None
    assert mixed.with_metric("logit-difference").notes is None


def test_an_answer_may_continue_a_word_if_the_row_says_so() -> None:
    letters = byte_tokenizer()
    sizes = {"n_ctx": 32, "d_vocab": letters.size}
    row = {"prompt": "the cat", "answer": "s", "wrong": "e"}
    (fate,) = own(row).check(letters, **sizes)
    assert not fate.kept
    assert fate.reason == "starts without a space: did you mean ' s'?"
    assert fate.suggestion == 'to continue the word, give the row "as_written": true'
    (kept,) = own({**row, "as_written": True}).check(letters, **sizes)
    assert kept.prompt is not None
    assert letters.decode([kept.prompt.correct]) == "s"
    assert own({**row, "as_written": "true"}).rows[0].as_data()["as_written"] is True
    assert own({**row, "as_written": 3}).rows[0].defect == "as_written is 3, not true or false"
