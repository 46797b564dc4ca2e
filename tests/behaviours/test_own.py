"""Behaviours of one's own: what becomes of each row, where rows come from, and that splits share nothing."""

import csv
import json
import random
from pathlib import Path

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import byte_tokenizer, word_tokenizer
from vesalius.behaviours.metrics import LOG_PROBABILITY
from vesalius.behaviours.own import ALL_ROWS, LEAST_TO_DIVIDE, RowBehaviour
from vesalius.behaviours.prompts import OTHER_PROMPT, RANDOM_TOKENS
from vesalius.behaviours.registry import find_behaviour
from vesalius.behaviours.words import NAMES
from vesalius.errors import BadInput

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
        ({"answer": " Mary John"}, "' Mary John' is 2 tokens: give a list, or `metric` log-probability"),
        ({"wrong": " Mary John"}, "wrong: ' Mary John' is 2 tokens"),
        ({"wrong": None, "answer": [" Paris", " Rome"]}, "no wrong answer: give one, or `metric` log-probability"),
        ({"wrong": " Paris"}, "' Paris' is both right and wrong"),
        ({"prompt": "The capital of France is "}, "the prompt ends with a space"),
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
        ({"answer": 99999}, "answer token 99999 is outside the model's vocabulary"),
    ],
)
def test_a_dropped_row_says_why(change: dict, reason: str) -> None:
    fates = own(GOOD, {**GOOD, **change}, metric="logit-difference").check(TOKENIZER, **SIZES)
    assert [fate.kept for fate in fates] == [True, False]
    assert fates[0].reason is None
    assert reason in fates[1].reason


def test_what_would_align_and_what_repeats() -> None:
    rows = [GOOD, {**GOOD, "counterfactual": "The capital of New Zealand is"}, GOOD, {**GOOD, "counterfactual": None}]
    fates = own(*rows).check(TOKENIZER, **SIZES)
    assert fates[1].suggestion == "instead of 'New Zealand' one of 1 token, as 'France' has, would align"
    assert fates[2].reason == "duplicate: the same as row 1"
    assert fates[3].kept
    assert fates[3].suggestion == "no counterfactual: a prompt of 6 tokens would align"


def test_braces_are_text_and_lists_keep_their_single_tokens() -> None:
    row = {"prompt": "The {Paris} of {} is", "answer": [" Mary John", " Paris", " Rome"], "wrong": [" Lima", " Oslo"]}
    [fate] = own(row).check(TOKENIZER, **SIZES)
    assert fate.prompt.text == row["prompt"]
    assert [TOKENIZER.decode([token]) for token in fate.prompt.answers] == [" Paris", " Rome"]
    assert [TOKENIZER.decode([token]) for token in fate.prompt.wrongs] == [" Lima", " Oslo"]
    assert fate.reason == "kept without ' Mary John': more than one token"


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


def test_rows_that_name_splits_keep_them_and_an_empty_split_is_named() -> None:
    one, two = {**GOOD, "split": "train"}, {**GOOD, "prompt": "The capital of Spain is", "split": "dev"}
    made = own(one, two)
    assert made.splits() == ("train", "validation")
    assert made.sample(TOKENIZER, 9, seed=0, split="validation", **SIZES).texts == ["The capital of Spain is"]
    with pytest.raises(
        BadInput, match="none of the rows of the test split can be used with this model, 2 are in other"
    ):
        made.sample(TOKENIZER, 9, seed=0, split="test", **SIZES)
    assert not own(one, {**two, "split": "train"}).divided, "one name for all rows divides nothing"


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


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same two rows in every format."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("rows")
    rows = [GOOD, {**GOOD, "prompt": GOOD["counterfactual"], "counterfactual": GOOD["prompt"], "answer": " Rome",
                   "wrong": " Paris"}]  # fmt: skip
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    (folder / "b.json").write_text(json.dumps(rows))
    (folder / "c.json").write_text(json.dumps({"rows": rows}))
    pairs = {"clean": "prompt", "corrupt": "counterfactual", "answers": "answer", "wrong_answers": "wrong"}
    auto = [
        {theirs: [row[ours]] if "answer" in theirs else row[ours] for theirs, ours in pairs.items()} for row in rows
    ]
    (folder / "auto.json").write_text(json.dumps({"prompts": auto}))
    mib = [
        {
            "prompt": row["prompt"],
            "choices": [row["wrong"].strip(), row["answer"].strip()],
            "answerKey": 1,
            "random_counterfactual": {"prompt": row["counterfactual"], "answerKey": 0},
            "metadata": {"kind": "capital"},
        }
        for row in rows
    ]
    (folder / "mib.jsonl").write_text("\n".join(map(json.dumps, mib)))
    with (folder / "d.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["prompt", "answer", "wrong", "counterfactual", "split"])
        writer.writeheader()
        writer.writerows({**row, "answer": json.dumps([row["answer"]])} for row in rows)
    with (folder / "eap.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", "clean", "corrupted", "correct_idx", "incorrect_idx"])
        for i, row in enumerate(rows):
            ids = [TOKENIZER.token(row[name]) for name in ("answer", "wrong")]
            writer.writerow([i, row["prompt"], row["counterfactual"], *ids])
    table = arrow.Table.from_pylist(rows)
    parquet.write_table(table, folder / "e.parquet")
    (folder / "saved" / "train").mkdir(parents=True)
    (folder / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    saved = str(folder / "saved" / "train" / "data-00000-of-00001.arrow")
    with arrow.OSFile(saved, "wb") as sink, arrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    (folder / "hub" / "data").mkdir(parents=True)
    for split, part in (("train", table.slice(0, 1)), ("test", table.slice(1))):
        parquet.write_table(part, folder / "hub" / "data" / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.mark.parametrize(
    "name", ["a.jsonl", "b.json", "c.json", "auto.json", "mib.jsonl", "d.csv", "eap.csv", "e.parquet", "saved", "hub"]
)
def test_every_format_gives_the_same_prompts(formats: Path, name: str) -> None:
    made = ves.Behaviour.from_file(formats / name)
    assert isinstance(made, RowBehaviour)
    fates = made.check(TOKENIZER, **SIZES)
    expected = own(GOOD).check(TOKENIZER, **SIZES)[0].prompt
    first = next(fate.prompt for fate in fates if fate.prompt.text == GOOD["prompt"])
    assert [fate.kept for fate in fates] == [True, True]
    assert first == expected
    if name == "hub":
        assert {fate.row.prompt: fate.split for fate in fates} == {
            GOOD["prompt"]: "train",
            GOOD["counterfactual"]: "test",
        }


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("empty.jsonl", "", "is empty; write one row per prompt"),
        ("half.jsonl", '{"prompt": "a"}\n{"prompt": ', "half.jsonl line 2: not readable as JSON"),
        ("object.json", '{"title": 3}', "no list of rows"),
        ("none.json", "[]", "there are no rows"),
        ("columns.csv", "question,answer\na,b\n", "no column 'prompt' among answer, question"),
        ("ids.csv", "clean,corrupted,correct_idx\na,b,Paris\n", "column 'correct_idx' holds token ids, not 'Paris'"),
        ("rows.yaml", "- a", ".yaml is not read; give .jsonl, .json, .csv"),
        ("bad.parquet", "PAR0", "not readable as a table"),
        ("bad.toml", "templates = [", "not readable as TOML"),
        ("missing.jsonl", None, "no such file; give a file of rows"),
        ("folder", "", "no .parquet or .arrow file in it"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, name: str, text: str | None, reason: str) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif text is not None:
        path.write_text(text)
    with pytest.raises(BadInput) as error:
        find_behaviour(str(path))
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


TEMPLATES = {
    "templates": [
        "The capital of {a.country} is",
        "The capital city of {a.country} is",
        "{{Now}} of {a.country|upper}",
    ],
    "answer": " {a.capital}",
    "wrong": " {b.capital}",
    "counterfactual": {"a": "b"},
    "slots": {"a": "places", "b": "places"},
    "words": {"places": [{"country": f"C{i}", "capital": f"P{i}"} for i in range(12)]},
    "rows": 6,
}


def test_templates_share_no_word_and_no_template_between_splits() -> None:
    made = ves.Behaviour.from_templates(TEMPLATES)
    assert isinstance(made, RowBehaviour)
    assert made.note is None
    seen: dict[str, str] = {}
    for row in made.rows:
        template = row.prompt.split("C")[0]
        right, wrong = (str(texts[0]).strip()[1:] for texts in (row.answers, row.wrongs))
        numbers = {right, wrong}
        assert len(numbers) == 2, "slots of one list draw different words"
        for thing in (template, *numbers):
            assert seen.setdefault(thing, row.split) == row.split
        assert all(int(number) % 3 == ("train", "validation", "test").index(row.split) for number in numbers)
        assert row.counterfactual == row.prompt.replace(f"C{right}", f"C{wrong}")
        start, end = row.roles["a"]
        assert row.prompt[start:end] == f"C{right}"
    assert [sum(row.split == split for row in made.rows) for split in ("train", "validation", "test")] == [6, 6, 6]
    assert any(row.prompt.startswith("{Now} of C") for row in made.rows)


def test_short_lists_serve_every_split_and_it_is_said() -> None:
    made = ves.Behaviour.from_templates({**TEMPLATES, "words": {"places": TEMPLATES["words"]["places"][:4]}})
    assert isinstance(made, RowBehaviour)
    assert "the words of places are too few to divide" in made.note


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"templates": "The {c} is"}, "no slot 'c'; there are a, b"),
        ({"answer": " {a}"}, "{a} does not fit"),
        ({"answer": " {a.mayor}"}, "{a.mayor} does not fit"),
        ({"answer": " {a.capital|loud}"}, "'loud' is not a form of a word; use lower, upper, capitalize"),
        ({"answer": None}, "answer must be a text or a list of texts"),
        ({"slots": {"a": "towns"}}, "slot 'a': no list 'towns' in [words]; there are places"),
        ({"counterfactual": {"a": "z"}}, "counterfactual: no slot 'z'"),
        ({"colour": "red"}, "'colour' is not known here"),
        (
            {"words": {"places": TEMPLATES["words"]["places"][:1]}},
            "2 slots draw different words from places, which has 1",
        ),
        ({"rows": 0}, "rows = 0 is not a number of rows"),
    ],
)
def test_bad_templates(change: dict, reason: str) -> None:
    with pytest.raises(BadInput) as error:
        ves.Behaviour.from_templates({**TEMPLATES, **change})
    assert reason in str(error.value)


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
