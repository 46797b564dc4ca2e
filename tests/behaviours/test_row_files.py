"""Rows from files: every format gives the same prompts, and what cannot be read is refused in one line."""

import csv
import json
from pathlib import Path

import pytest

import vesalius as ves
from tests.behaviours.test_own import GOOD, SIZES, TOKENIZER, own
from vesalius.behaviours.metrics import LOG_PROBABILITY
from vesalius.behaviours.own import RowBehaviour, ids_note
from vesalius.behaviours.registry import find_behaviour
from vesalius.errors import BadInput


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
        ("digits.jsonl", f'{{"prompt": "a", "answer": {"9" * 5000}}}', "JSON (a number has thousands of digits)"),
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


def read(path: Path, text: str, *, newline: str | None = None) -> RowBehaviour:
    path.write_text(text, encoding="utf-8", newline=newline)
    made = ves.Behaviour.from_file(path)
    assert isinstance(made, RowBehaviour)
    return made


LINE = json.dumps(GOOD)
CSV = "prompt,answer,wrong,counterfactual\n" + ",".join(GOOD.values()) + "\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("semicolons.csv", CSV.replace(",", ";")),
        ("tabs.csv", CSV.replace(",", "\t")),
        ("bom.csv", "\ufeff" + CSV),
        ("windows.csv", CSV.replace("\n", "\r\n")),
        ("quoted.csv", CSV.replace("The capital of France is", '"The capital of France is"')),
        ("spaces.csv", CSV.replace("prompt,answer", " prompt ,answer")),
        ("trailing.csv", CSV.replace("\n", ",,\n")),
        ("blank.csv", CSV.replace("\n", "\n\n")),
        ("UPPER.CSV", CSV),
        ("blank.jsonl", f"\n{LINE}\n\n"),
        ("bom.jsonl", f"\ufeff{LINE}\r\n"),
        ("list.jsonl", f"[\n{LINE}\n]"),
        ("one.json", LINE),
        ("splits.json", json.dumps({"train": [GOOD], "Test": []})),
    ],
)
def test_files_as_people_write_them(tmp_path: Path, name: str, text: str) -> None:
    made = read(tmp_path / name, text, newline="")
    [fate] = made.check(TOKENIZER, **SIZES)
    assert fate.prompt == own(GOOD).check(TOKENIZER, **SIZES)[0].prompt


def test_rows_line_by_line_in_a_json_file(tmp_path: Path) -> None:
    assert len(read(tmp_path / "lines.json", f"{LINE}\n{LINE}\n").rows) == 2


def test_a_line_of_a_text_that_is_none_of_json(tmp_path: Path) -> None:
    """U+2028 ends a line for Python, and is an ordinary character of a JSON text."""
    made = read(tmp_path / "a.jsonl", json.dumps({**GOOD, "prompt": "one\u2028two is"}, ensure_ascii=False))
    assert [row.prompt for row in made.rows] == ["one\u2028two is"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "twice.csv",
            "prompt,answer,answer,wrong,wrong\na,b,c,d,e\n",
            "column 'answer', 'wrong' occurs more than once",
        ),
        ("twice.json", '[{"prompt": "a", "prompt": "b"}]', "field 'prompt' occurs more than once"),
        ("open.csv", 'prompt,answer\n"a,b\nc,d\n', "open.csv line 3: not readable as CSV"),
        ("python.csv", "prompt,answer\na,\"[' b', ' c']\"\n", "row 1: column 'answer': \"[' b', ' c']\" is not JSON"),
        ("nan.jsonl", '{"prompt": "a", "answer": NaN}', "line 1: not readable as JSON (NaN is not a JSON number)"),
        ("nested.json", '{"data": {"rows": []}}', "no list of rows"),
        ("none.json", '{"train": []}', "there are no rows"),
    ],
)
def test_what_would_be_lost_silently_is_refused(tmp_path: Path, name: str, text: str, reason: str) -> None:
    with pytest.raises(BadInput) as error:
        read(tmp_path / name, text)
    assert reason in str(error.value)


def test_a_file_of_another_encoding_says_which_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(CSV.encode("utf-16"))
    with pytest.raises(BadInput, match="save it as UTF-8"):
        ves.Behaviour.from_file(tmp_path / "a.csv")


def test_a_comma_too_many_is_the_fate_of_its_row(tmp_path: Path) -> None:
    made = read(tmp_path / "a.csv", CSV + "The capital, of Italy is, Rome, Lima,a\n")
    fates = made.check(TOKENIZER, **SIZES)
    assert [fate.kept for fate in fates] == [True, False]
    assert fates[1].reason == "has 5 cells and 4 columns: put a text that holds a separator into double quotes"


def test_answers_as_token_ids_say_what_they_mean_here(tmp_path: Path) -> None:
    paris, rome = (TOKENIZER.token(word) for word in (" Paris", " Rome"))
    pair = f"{GOOD['prompt']},{GOOD['counterfactual']}"
    both = read(tmp_path / "eap.csv", f"clean,corrupted,correct_idx,incorrect_idx\n{pair},{paris},{rome}\n")
    assert (both.note, both.used_metric) == (None, None)
    assert both.description == f"Complete 'The capital of France is' with token {paris}."
    assert ids_note(both, TOKENIZER).startswith("answers are token ids: row 1 asks for ' Paris' against ' Rome' with")
    alone = read(tmp_path / "one.csv", f"clean,corrupted,correct_idx\n{pair},{paris}\n")
    assert alone.used_metric == LOG_PROBABILITY
    assert "no column 'incorrect_idx', so answers are measured by log-probability" in alone.note
    neither = read(tmp_path / "none.csv", f"clean,corrupted\n{pair}\n").check(TOKENIZER, **SIZES)
    assert neither[0].reason == "has no answer: give columns correct_idx and incorrect_idx, or answer and wrong"
    assert ids_note(own(GOOD), TOKENIZER) is None


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (0, None),
        ("0", None),
        ("Paris", None),
        (2, "answerKey 2 is none of its 2 choices"),
        (-1, "answerKey -1 is none of its 2 choices"),
        ("Oslo", "answerKey 'Oslo' is none of its 2 choices, which count from 0"),
    ],
)
def test_the_answer_key_of_mib_names_a_choice(tmp_path: Path, key: object, reason: str | None) -> None:
    row = {"prompt": GOOD["prompt"], "choices": ["Paris", "Rome"], "answerKey": key, "answer": " Lima"}
    [fate] = read(tmp_path / "mib.jsonl", json.dumps(row)).check(TOKENIZER, **SIZES)
    if reason is None:
        assert TOKENIZER.decode([fate.prompt.correct, fate.prompt.wrong]) == " Paris Rome"
    else:
        assert fate.reason.startswith(reason)


def test_a_dataset_without_one_of_its_files_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.Table.from_pylist([GOOD])
    for number in (0, 2):
        parquet.write_table(table, tmp_path / f"train-{number:05}-of-00003.parquet")
    with pytest.raises(BadInput, match="train-00001-of-00003: no such file, one of 3 of this dataset"):
        find_behaviour(tmp_path)
    parquet.write_table(table, tmp_path / "train-00001-of-00003.parquet")
    whole = find_behaviour(tmp_path)
    assert isinstance(whole, RowBehaviour)
    assert len(whole.rows) == 3
