"""Rows from files: our own, and those of other tools of the field.

| file                          | is read as                                                                           |
|-------------------------------|--------------------------------------------------------------------------------------|
| `.jsonl`                      | one row per line                                                                     |
| `.json`                       | a list of rows, `{"rows": [...]}`, or a list for each split; auto-circuit's          |
|                               | `{"prompts": [{clean, ...}]}`                                                        |
| `.csv`, `.tsv`                | a row per line, cells separated by commas, semicolons or tabs; lists as JSON; EAP's  |
|                               | `clean, corrupted, correct_idx, incorrect_idx`                                       |
| `.toml`                       | templates (`templates`)                                                              |
| `.parquet`, `.arrow`          | a table of rows (extra `datasets`)                                                   |
| a directory                   | a Hugging Face dataset: as `save_to_disk` writes it, or parquet files; the name of a |
|                               | folder or file gives the split                                                       |
| a hub id, `org/name`          | the parquet files of that dataset, downloaded                                        |

Rows of other tools are recognised in each of these.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vesalius.behaviours.behaviour import MAKERS
from vesalius.behaviours.metrics import LOG_PROBABILITY, BehaviourMetric
from vesalius.behaviours.own import RowBehaviour, from_rows
from vesalius.behaviours.rows import SPLIT_NAMES, Row
from vesalius.behaviours.templates import from_templates
from vesalius.errors import BadInput, Failed, choices, quoted
from vesalius.files import parse_json, why_not_text

# Rows of other tools of the field in our own form.
#
# | tool         | is recognised by                                                                                    |
# |--------------|-----------------------------------------------------------------------------------------------------|
# | EAP          | `clean` and `corrupted`; the answers are token ids, `correct_idx` and `incorrect_idx` (or those of  |
# |              | its other tasks)                                                                                    |
# | auto-circuit | `clean` and `corrupt`, with `answers` and `wrong_answers`                                           |
# | MIB          | `choices` with `answerKey`, or a field `..._counterfactual`                                         |

#: Token ids of the right and the wrong answer in EAP's files, by task.
EAP_IDS = (
    ("correct_idx", "incorrect_idx"),
    ("answers_idx", "corrupted_answers_idx"),
    ("country_idx", "corrupted_country_idx"),
    ("clean_answer_idx", "corrupted_answer_idx"),
)
#: MIB's counterfactuals in the order of preference; any other follows.
MIB_COUNTERFACTUALS = ("abc_counterfactual", "symbol_counterfactual", "random_counterfactual")


class _Defect(Exception):
    """What makes a row unusable in its own tool's terms."""


def own_form(row: object, number: int) -> object:
    """A row of another tool in our own form; others as they are."""
    if not isinstance(row, Mapping):
        return row
    try:
        if "clean" in row:
            return _of_eap(row) if "corrupted" in row else _of_auto_circuit(row)
        if any(str(name).endswith("_counterfactual") for name in row) or {"choices", "answerKey"} <= set(row):
            return _of_mib(row)
    except _Defect as defect:
        return Row(number, str(row.get("prompt", row.get("clean", ""))), defect=str(defect))
    return row


def missing_ids_note(rows: Sequence[object], path: str) -> str | None:
    """What is said of a file of EAP with the right answers' ids alone."""
    theirs = [row for row in rows if isinstance(row, Mapping) and {"clean", "corrupted"} <= set(row)]
    for right, wrong in EAP_IDS:
        if theirs and all(right in row and wrong not in row and "answer" not in row for row in theirs):
            return (
                f"{path}: no column {wrong!r}, so answers are measured by {LOG_PROBABILITY}; EAP's greater-than file, "
                f"where {right} is a year and not a token id, is the built-in behaviour greater-than"
            )
    return None


def _of_eap(row: Mapping[str, object]) -> dict[str, object]:
    """EAP names answers by token ids; text columns of our own names come first."""
    ours = {name: row[name] for name in ("answer", "wrong", "roles", "split") if name in row}
    if "answer" not in ours:
        for right, wrong in EAP_IDS:
            if right in row:
                ours |= {"answer_ids": row[right], "wrong_ids": row.get(wrong)}
                break
        else:
            raise _Defect("has no answer: give columns correct_idx and incorrect_idx, or answer and wrong")
    return {"prompt": row["clean"], "counterfactual": row["corrupted"], **ours}


def _of_auto_circuit(row: Mapping[str, object]) -> dict[str, object]:
    ours = {"prompt": row["clean"], "counterfactual": row.get("corrupt"), "split": row.get("split")}
    return {**ours, "answer": row.get("answers"), "wrong": row.get("wrong_answers")}


def _of_mib(row: Mapping[str, object]) -> dict[str, object]:
    """MIB's choices are words without the space between prompt and answer."""
    prompt, metadata = row.get("prompt"), row.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    right, wrong = _mib_answers(row, known)
    lead = "" if isinstance(prompt, str) and prompt[-1:].isspace() else " "
    nested = {
        str(name): value
        for name, value in row.items()
        if str(name).endswith("_counterfactual") and isinstance(value, Mapping)
    }
    order = [*(name for name in MIB_COUNTERFACTUALS if name in nested), *sorted(nested)]
    return {
        "prompt": prompt,
        "answer": _spaced(right, lead),
        "wrong": _spaced(wrong, lead),
        "counterfactual": nested[order[0]].get("prompt") if order else row.get("counterfactual"),
        "split": row.get("split"),
    }


def _mib_answers(row: Mapping[str, object], metadata: Mapping[str, object]) -> tuple[list[object], list[object]]:
    options, key = row.get("choices"), row.get("answerKey")
    if isinstance(options, Mapping):  # multiple choice: {"label": ["A", "B"], "text": [...]}
        options = options.get("label") or options.get("text")
    if isinstance(options, Iterable) and not isinstance(options, str) and key is not None:
        answers = list(options)
        place = _place(key, answers)
        return [answers[place]], [one for i, one in enumerate(answers) if i != place]
    right = row.get("answer", metadata.get("indirect_object", metadata.get("answer")))
    wrong = row.get("wrong", metadata.get("subject"))
    return ([] if right is None else [right]), ([] if wrong is None else [wrong])


def _place(key: object, options: Sequence[object]) -> int:
    """Which choice the answer key names: one of them, or its place from 0."""
    if key in options:
        if not isinstance(key, int):
            return options.index(key)
    elif isinstance(key, str) and key.isdecimal():  # a CSV holds texts only
        key = int(key)
    if not isinstance(key, int) or not 0 <= key < len(options):
        raise _Defect(f"answerKey {quoted(key, 40)} is none of its {len(options)} choices, which count from 0")
    return key


def _spaced(words: Iterable[object], lead: str) -> list[object]:
    return [word if not isinstance(word, str) or word[:1].isspace() else f"{lead}{word}" for word in words]


TEXT_ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".toml")
TABLE_ENDINGS = (".parquet", ".arrow")
ENDINGS = (*TEXT_ENDINGS, *TABLE_ENDINGS)
#: What separates the cells of a .csv file: the first that gives a column of prompts.
SEPARATORS = (",", ";", "\t")
#: The number of a dataset's file, and how many there are: `train-00000-of-00003.parquet`.
_SHARD = re.compile(r"(?<=[-_.])(\d{5})-of-(\d{5})(?=\.)")


def read_behaviour(path: str | Path, *, metric: BehaviourMetric | None = None) -> RowBehaviour:
    """A behaviour from a file, a dataset's directory or a hub id."""
    file = Path(path).expanduser()
    if file.suffix.lower() == ".toml" and file.is_file():
        return from_templates(file, metric=metric)
    rows = read_rows(path)
    ours = [own_form(row, number) for number, row in enumerate(rows, 1)]
    return from_rows(ours, name=str(path), metric=metric, source=str(path), note=missing_ids_note(rows, str(path)))


MAKERS["file"] = read_behaviour


def read_rows(path: str | Path) -> Sequence[object]:
    """The rows of a file, a dataset's directory or a hub id, as they are."""
    file = Path(path).expanduser()
    if file.is_dir():
        return _read_directory(file)
    if file.is_file():
        return _read_file(file)
    if file.suffix.lower() in ENDINGS or str(path).count("/") != 1 or str(path).startswith((".", "~", "/")):
        raise BadInput(f"behaviour {path}: no such file; give a file of rows ({', '.join(ENDINGS)}) or a directory")
    return _read_directory(_download(str(path)))


def _read_file(file: Path) -> Sequence[object]:
    ending = file.suffix.lower()
    if ending in TABLE_ENDINGS:
        return _read_table(file)
    if ending not in TEXT_ENDINGS:
        raise BadInput(f"{file}: {file.suffix or 'this kind of file'} is not read; give {', '.join(ENDINGS)}")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: not readable as text ({why_not_text(error)}); save it as UTF-8") from None
    except OSError as error:
        raise BadInput(f"{file}: not readable as text ({why_not_text(error)})") from None
    if not text.strip():
        raise BadInput(f"{file}: is empty; write one row per prompt")
    if ending in (".csv", ".tsv"):
        return _read_csv(text, file)
    if _is_one_row_per_line(text, ending):
        lines = enumerate(text.split("\n"), 1)  # not splitlines: a JSON text may hold other ends of lines
        return [parse_json(line, source=f"{file} line {i}", unique=True) for i, line in lines if line.strip()]
    return _rows_of_json(parse_json(text, source=file, unique=True), file)


def _is_one_row_per_line(text: str, ending: str) -> bool:
    """A list in a .jsonl file and rows line by line in a .json file are read as what they are."""
    if ending == ".jsonl":
        return not text.lstrip().startswith("[")
    lines = [line.strip() for line in text.strip().split("\n", 2)]
    return len(lines) > 1 and lines[0].endswith("}") and lines[1].startswith("{")


def _rows_of_json(data: object, file: Path) -> list[object]:
    if isinstance(data, Mapping):
        lists = [name for name in ("rows", "prompts", "data") if isinstance(data.get(name), list)]
        if not lists and "prompt" in data:
            return [data]
        splits = [name for name in data if str(name).lower() in SPLIT_NAMES and isinstance(data[name], list)]
        if not lists and splits:
            return [
                {"split": name, **row} if isinstance(row, Mapping) else row for name in splits for row in data[name]
            ]
        data = data[lists[0]] if lists else None
    if not isinstance(data, list):
        raise BadInput(f'{file}: no list of rows; write [{{"prompt": ..., "answer": ...}}, ...]')
    return data


def _read_csv(text: str, file: Path) -> list[object]:
    separator = "\t" if file.suffix.lower() == ".tsv" else _separator(text)
    reader = csv.reader(io.StringIO(text), delimiter=separator, strict=True)
    try:
        lines = [cells for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise BadInput(f"{file} line {reader.line_num}: not readable as CSV ({error})") from None
    columns = [name.strip() for name in lines[0]]
    if twice := [name for name, times in Counter(columns).items() if name and times > 1]:
        raise BadInput(f"{file}: column {', '.join(map(quoted, twice))} occurs more than once; give each its own name")
    if not {"prompt", "clean"} & set(columns):
        raise BadInput(f"{file}: no column 'prompt' among {choices(sorted(columns))}; name the columns")
    return [_csv_row(columns, cells, number, file) for number, cells in enumerate(lines[1:], 1)]


def _separator(text: str) -> str:
    """What separates the cells: the first that gives a column of prompts, else a comma."""
    header = text.lstrip().split("\n", 1)[0]
    for separator in SEPARATORS:
        if {"prompt", "clean"} & {name.strip(' "\r') for name in header.split(separator)}:
            return separator
    return SEPARATORS[0]


def _csv_row(columns: list[str], cells: list[str], number: int, file: Path) -> object:
    if any(cell.strip() for cell in cells[len(columns) :]):
        return Row(
            number,
            defect=f"has {len(cells)} cells and {len(columns)} columns: put a text that holds a separator into "
            "double quotes",
        )
    named = zip(columns, cells, strict=False)
    return {name: _cell(name, value, f"{file} row {number}") for name, value in named if name and value}


def _cell(name: str, value: str, where: str) -> object:
    """A cell; lists and objects are JSON, and columns of token ids are numbers."""
    if name.endswith(("_idx", "_ids")):
        try:
            return parse_json(value, source=where)
        except BadInput:
            raise BadInput(f"{where}: column {name!r} holds token ids, not {quoted(value)}") from None
    nested = name in ("answer", "wrong", "roles", "choices", "metadata") or name.endswith("_counterfactual")
    if not nested or value[:1] + value.rstrip()[-1:] not in ("[]", "{}"):
        return value
    try:
        return parse_json(value, source=where)
    except BadInput:
        raise BadInput(
            f'{where}: column {name!r}: {quoted(value, 60)} is not JSON; write lists as [" one", " two"]'
        ) from None


def _read_directory(directory: Path) -> list[object]:
    """A dataset's tables; the name of a file or of its folder gives the split."""
    files = sorted(file for file in directory.rglob("*") if file.suffix in TABLE_ENDINGS)
    files = [file for file in files if not file.name.startswith("cache-")]
    if not files:
        own = sorted(file.name for file in directory.iterdir() if file.suffix in TEXT_ENDINGS)
        raise BadInput(
            f"{directory}: no .parquet or .arrow file in it"
            + (f"; give the file itself, such as {directory / own[0]}" if own else "")
        )
    # Refuse a dataset that lacks one of its numbered files.
    numbered = [(file, shard) for file in files if (shard := _SHARD.search(file.name))]
    present = {file.with_name(file.name[: shard.end()]) for file, shard in numbered}
    for start, count in {(file.with_name(file.name[: shard.start()]), shard[2]) for file, shard in numbered}:
        for number in range(int(count)):
            name = start.with_name(f"{start.name}{number:05}-of-{count}")
            if name not in present:
                raise BadInput(f"{name}: no such file, one of {int(count)} of this dataset; download it again")
    rows: list[object] = []
    for file in files:
        split = _split_name(file, directory)
        rows += [{"split": split, **row} if split else row for row in _read_table(file)]
    return rows


def _split_name(file: Path, directory: Path) -> str | None:
    """`train-00000-of-00001.parquet` and `train/data-00000-of-00001.arrow` are of the train split."""
    for name in (file.name.split("-")[0].split(".")[0], *(part.name for part in file.relative_to(directory).parents)):
        if name.lower() in SPLIT_NAMES:
            return name
    return None


def _read_table(file: Path) -> list[dict[str, object]]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise BadInput(f"{file}: tables are read with pyarrow; run: pip install 'vesalius[datasets]'") from None
    try:
        if file.suffix == ".parquet":
            return parquet.read_table(file).to_pylist()
        with arrow.memory_map(str(file)) as data:
            try:
                return arrow.ipc.open_stream(data).read_all().to_pylist()
            except arrow.ArrowInvalid:
                data.seek(0)
                return arrow.ipc.open_file(data).read_all().to_pylist()
    except (arrow.ArrowException, OSError) as error:
        raise BadInput(f"{file}: not readable as a table ({str(error).splitlines()[0]})") from None


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, repo_type="dataset", allow_patterns=["*.parquet", "*.arrow"]))
    except Exception as error:  # the library raises many kinds, and all mean that there is no dataset
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise Failed(f"behaviour {name}: neither a file nor a dataset that can be downloaded ({first})") from None
