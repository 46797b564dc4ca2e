"""Splits of rows share no prompt, and rows without a counterfactual find one in a time that grows with the rows."""

import pickle

import pytest

from tests.behaviours.test_own import GOOD, SIZES, TOKENIZER, own
from tests.behaviours.word_tokenizer import word_tokenizer
from vesalius.behaviours import encoding as counterfactuals
from vesalius.behaviours import own as row_behaviours
from vesalius.behaviours.builtin import NAMES
from vesalius.behaviours.encoding import partners
from vesalius.behaviours.own import LEAST_TO_DIVIDE
from vesalius.behaviours.prompts import Prompt


def test_rows_with_the_same_prompt_are_in_the_same_split() -> None:
    """Each prompt twice, with another wrong answer, one after the other and far apart."""
    prompts = [f"The capital of {name} is" for name in NAMES[:LEAST_TO_DIVIDE]]
    rows = [{**GOOD, "prompt": prompt, "wrong": wrong} for wrong in (" Rome", " Lima") for prompt in prompts]
    for ordered in (rows, sorted(rows, key=lambda row: row["prompt"])):
        made = own(*ordered)
        split_of: dict[str, str] = {}
        for fate in made.check(TOKENIZER, **SIZES):
            assert fate.kept
            assert split_of.setdefault(fate.row.prompt, fate.split) == fate.split
        texts = [set(made.sample(TOKENIZER, 99, seed=0, split=split, **SIZES).texts) for split in made.splits()]
        assert sorted(map(len, texts)) == [4, 4, 4]
        assert len(set.union(*texts)) == LEAST_TO_DIVIDE
        assert made.notes is None


def test_many_rows_of_few_prompts_are_not_divided() -> None:
    prompts = [f"The capital of {name} is" for name in NAMES[: LEAST_TO_DIVIDE - 1]]
    rows = [{**GOOD, "prompt": prompt, "wrong": wrong} for wrong in (" Rome", " Lima") for prompt in prompts]
    assert len(rows) > LEAST_TO_DIVIDE
    assert not own(*rows).divided


def test_a_prompt_in_two_splits_is_said() -> None:
    train, test = {**GOOD, "split": "train"}, {**GOOD, "split": "test", "wrong": " Lima"}
    other = {**GOOD, "prompt": "The capital of Spain is", "split": "test"}
    made = own(train, other, test, {**GOOD, "wrong": " Oslo"})
    fates = made.check(TOKENIZER, **SIZES)
    assert [fate.reason for fate in fates] == [
        "kept, though row 3 of the test split has the same prompt",
        None,
        "kept, though row 1 of the train split has the same prompt",
        None,
    ]
    assert [fate.split for fate in fates] == ["train", "test", "test", "train"], (
        "a row without a split follows its prompt"
    )
    assert made.notes is not None
    assert made.notes.startswith("1 prompt is in more than one split, first of row 1 (train) and row 3 (test)")
    same = own(train, other, {**test, "wrong": GOOD["wrong"]})
    assert same.notes is None, "a duplicate is dropped, so nothing is shared"


def prompt(tokens: tuple[int, ...], correct: int) -> Prompt:
    return Prompt(tokens, tokens, correct, -1, {}, "")


def nearest(prompts: list[Prompt]) -> list[int | None]:
    """The same by trying every other prompt."""
    n, found = len(prompts), []
    for i, one in enumerate(prompts):
        others = [(i + step) % n for step in range(1, n)]
        fits = [j for j in others if prompts[j].tokens != one.tokens and prompts[j].correct != one.correct]
        found.append(fits[0] if fits else None)
    return found


@pytest.mark.parametrize(
    "pairs",
    [
        [(1, 1)],
        [(1, 1), (2, 1), (3, 1)],
        [(1, 1), (1, 2), (1, 3)],
        [(1, 1), (1, 2), (2, 1), (2, 2)],
        [(1, 1), (2, 2), (3, 2), (4, 2), (1, 2), (5, 1), (1, 1)],
        [(i % 3, i % 4) for i in range(12)],
        [(i * i % 7, i // 2 % 3) for i in range(23)],
    ],
)
def test_the_partner_is_the_next_prompt_that_differs(pairs: list[tuple[int, int]]) -> None:
    prompts = [prompt((9, tokens), correct) for tokens, correct in pairs]
    assert partners(prompts) == nearest(prompts)


def test_partners_are_found_in_a_number_of_steps_that_grows_with_the_rows() -> None:
    """A thousand rows of one answer before one of another: trying each in turn would be half a million steps."""
    looked_at: list[int] = []

    class Counted(list):
        def __getitem__(self, place):
            looked_at.append(place)
            return super().__getitem__(place)

    n = 1000
    rows = Counted([prompt((9, i), 1) for i in range(n - 1)] + [prompt((9, n), 2)])
    assert partners(rows) == [n - 1] * (n - 1) + [0]
    assert len(looked_at) < 10 * n


def test_rows_are_encoded_once_for_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    made = own(*({**GOOD, "prompt": f"The capital of {name} is"} for name in NAMES[:12]))
    tokenizer, asked = word_tokenizer(), []
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda text, **more: asked.append(text) or encode(text, **more))
    for split in made.splits():
        made.sample(tokenizer, 2, seed=0, split=split, **SIZES)
    # The prompt, the counterfactual, and the prompt with each of two answers.
    assert len(asked) == 4 * 12
    made.check(tokenizer, n_ctx=5, d_vocab=tokenizer.size)
    assert len(asked) == 8 * 12, "another model's rows are another matter"
    assert pickle.loads(pickle.dumps(made)) == made
    assert "_checked" not in pickle.loads(pickle.dumps(made)).__dict__


def test_only_what_is_drawn_gets_random_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**GOOD, "counterfactual": None, "prompt": f"The capital of {name} is"} for name in NAMES[:9]]
    made, calls = own(*rows), []
    drawn = counterfactuals.random_tokens
    monkeypatch.setattr(row_behaviours, "random_tokens", lambda *given: calls.append(1) or drawn(*given))
    made.sample(TOKENIZER, 2, seed=0, split="test", **SIZES)
    assert len(calls) == 2, "all nine have the same answer, so none is another's counterfactual"
