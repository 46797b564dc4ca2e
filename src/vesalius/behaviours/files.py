"""Rows from files: our own, and those of other tools of the field.

| file                          | is read as                                                                           |
|-------------------------------|--------------------------------------------------------------------------------------|
| `.jsonl`                      | one row per line                                                                     |
| `.json`                       | a list of rows, or `{"rows": [...]}`; auto-circuit's `{"prompts": [{clean, ...}]}`   |
| `.csv`, `.tsv`                | a row per line; lists as JSON; EAP's `clean, corrupted, correct_idx, incorrect_idx`  |
| `.toml`                       | templates (`templates`)                                                              |
| `.parquet`, `.arrow`          | a table of rows (extra `datasets`)                                                   |
| a directory                   | a Hugging Face dataset: as `save_to_disk` writes it, or parquet files; the name of a |
|                               | folder or file gives the split                                                       |
| a hub id, `org/name`          | the parquet files of that dataset, downloaded                                        |

Rows of MIB (`prompt`, `choices`, `answerKey`, `..._counterfactual`, `metadata`) are recognised in each of these.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vesalius.behaviours.behaviour import MAKERS
from vesalius.behaviours.metrics import Metric
from vesalius.behaviours.own import RowBehaviour, from_rows
from vesalius.behaviours.rows import SPLIT_NAMES
from vesalius.behaviours.templates import from_templates
from vesalius.errors import BadInput, Failed, quoted
from vesalius.files import parse_json

TEXT_ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".toml")
TABLE_ENDINGS = (".parquet", ".arrow")
ENDINGS = (*TEXT_ENDINGS, *TABLE_ENDINGS)
#: Token ids of the right and the wrong answer in EAP's files, by task.
EAP_IDS = (
    ("correct_idx", "incorrect_idx"),
    ("answers_idx", "corrupted_answers_idx"),
    ("country_idx", "corrupted_country_idx"),
    ("clean_answer_idx", "corrupted_answer_idx"),
)
#: MIB's counterfactuals in the order of preference; any other follows.
MIB_COUNTERFACTUALS = ("abc_counterfactual", "symbol_counterfactual", "random_counterfactual")


def read_behaviour(path: str | Path, *, metric: Metric | None = None) -> RowBehaviour:
    """A behaviour from a file, a dataset's directory or a hub id."""
    file = Path(path).expanduser()
    if file.suffix == ".toml" and file.is_file():
        return from_templates(file, metric=metric)
    return from_rows(read_rows(path), name=str(path), metric=metric, source=str(path))


MAKERS["file"] = read_behaviour


def read_rows(path: str | Path) -> list[Any]:
    """The rows of a file, a dataset's directory or a hub id, in our own form."""
    file = Path(path).expanduser()
    if file.is_dir():
        rows = _read_directory(file)
    elif file.is_file():
        rows = _read_file(file)
    elif file.suffix in ENDINGS or str(path).count("/") != 1 or str(path).startswith((".", "~", "/")):
        raise BadInput(f"behaviour {path}: no such file; give a file of rows ({', '.join(ENDINGS)}) or a directory")
    else:
        rows = _read_directory(_download(str(path)))
    return [_own_form(row) for row in rows]


def _read_file(file: Path) -> list[Any]:
    if file.suffix in TABLE_ENDINGS:
        return _read_table(file)
    if file.suffix not in TEXT_ENDINGS:
        raise BadInput(f"{file}: {file.suffix or 'this kind of file'} is not read; give {', '.join(ENDINGS)}")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file}: not readable as text ({error})") from None
    if not text.strip():
        raise BadInput(f"{file}: is empty; write one row per prompt")
    if file.suffix == ".jsonl":
        lines = enumerate(text.splitlines(), 1)
        return [parse_json(line, source=f"{file} line {i}") for i, line in lines if line.strip()]
    if file.suffix == ".json":
        return _rows_of_json(parse_json(text, source=file), file)
    return _read_csv(text, file)


def _rows_of_json(data: Any, file: Path) -> list[Any]:
    if isinstance(data, Mapping):
        lists = [name for name in ("rows", "prompts", "data") if isinstance(data.get(name), list)]
        if not lists and "prompt" in data:
            return [data]
        data = data[lists[0]] if lists else None
    if not isinstance(data, list):
        raise BadInput(f'{file}: no list of rows; write [{{"prompt": ..., "answer": ...}}, ...]')
    return data


def _read_csv(text: str, file: Path) -> list[Any]:
    reader = csv.DictReader(io.StringIO(text), delimiter="\t" if file.suffix == ".tsv" else ",")
    try:
        rows = [{name: value for name, value in row.items() if name and value} for row in reader]
    except csv.Error as error:
        raise BadInput(f"{file}: not readable as CSV ({error})") from None
    columns = set(reader.fieldnames or ())
    if not columns & {"prompt", "clean"}:
        raise BadInput(f"{file}: no column 'prompt' among {', '.join(sorted(map(str, columns)))}; name the columns")
    return [{name: _cell(name, value, file) for name, value in row.items()} for row in rows]


def _cell(name: str, value: Any, file: Path) -> Any:
    """A cell; lists and objects are JSON, and columns of token ids are numbers."""
    if isinstance(value, str) and name.endswith("_idx"):
        try:
            return parse_json(value, source=file)
        except BadInput:
            raise BadInput(f"{file}: column {name!r} holds token ids, not {quoted(value)}") from None
    nested = name in ("answer", "wrong", "roles", "choices", "metadata") or name.endswith("_counterfactual")
    if isinstance(value, str) and nested and value.startswith(("[", "{")):
        try:
            return parse_json(value, source=file)
        except BadInput:
            return value
    return value


def _read_directory(directory: Path) -> list[Any]:
    """A dataset's tables; the name of a file or of its folder gives the split."""
    files = sorted(file for file in directory.rglob("*") if file.suffix in TABLE_ENDINGS)
    files = [file for file in files if not file.name.startswith("cache-")]
    if not files:
        own = sorted(file.name for file in directory.iterdir() if file.suffix in TEXT_ENDINGS)
        raise BadInput(
            f"{directory}: no .parquet or .arrow file in it"
            + (f"; give the file itself, such as {directory / own[0]}" if own else "")
        )
    rows: list[Any] = []
    for file in files:
        split = _split_name(file, directory)
        rows += [{"split": split, **row} if split else row for row in _read_table(file)]
    return rows


def _split_name(file: Path, directory: Path) -> str | None:
    """`train-00000-of-00001.parquet` and `train/data-00000-of-00001.arrow` are of the train split."""
    for name in (file.name.split("-")[0].split(".")[0], *(part.name for part in file.relative_to(directory).parents)):
        if name in SPLIT_NAMES:
            return name
    return None


def _read_table(file: Path) -> list[dict[str, Any]]:
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


def _own_form(row: Any) -> Any:
    """A row of another tool in our own form; others as they are."""
    if not isinstance(row, Mapping):
        return row
    if "clean" in row:
        return _of_eap(row) if "corrupted" in row else _of_auto_circuit(row)
    if any(name.endswith("_counterfactual") for name in row) or {"choices", "answerKey"} <= set(row):
        return _of_mib(row)
    return row


def _of_eap(row: Mapping[str, Any]) -> dict[str, Any]:
    """EAP names answers by token ids; text columns of our own names come first."""
    ours = {name: row[name] for name in ("answer", "wrong", "roles", "split") if name in row}
    for right, wrong in EAP_IDS:
        if right in row and "answer" not in ours:
            ours |= {"answer": row[right], "wrong": row.get(wrong)}
    return {"prompt": row["clean"], "counterfactual": row["corrupted"], **ours}


def _of_auto_circuit(row: Mapping[str, Any]) -> dict[str, Any]:
    ours = {"prompt": row["clean"], "counterfactual": row.get("corrupt"), "split": row.get("split")}
    return {**ours, "answer": row.get("answers"), "wrong": row.get("wrong_answers")}


def _of_mib(row: Mapping[str, Any]) -> dict[str, Any]:
    """MIB's choices are words without the space between prompt and answer."""
    prompt, metadata = row.get("prompt"), row.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    right, wrong = _mib_answers(row, known)
    lead = "" if isinstance(prompt, str) and prompt[-1:].isspace() else " "
    nested = [name for name in row if name.endswith("_counterfactual") and isinstance(row[name], Mapping)]
    order = [*(name for name in MIB_COUNTERFACTUALS if name in nested), *sorted(nested)]
    return {
        "prompt": prompt,
        "answer": _spaced(right, lead),
        "wrong": _spaced(wrong, lead),
        "counterfactual": row[order[0]].get("prompt") if order else row.get("counterfactual"),
        "split": row.get("split"),
    }


def _mib_answers(row: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    choices, key = row.get("choices"), row.get("answerKey")
    if isinstance(choices, Mapping):  # multiple choice: {"label": ["A", "B"], "text": [...]}
        choices = choices.get("label") or choices.get("text")
    if isinstance(choices, Iterable) and not isinstance(choices, str) and key is not None:
        listed = list(choices)
        place = key if isinstance(key, int) else listed.index(key) if key in listed else None
        if place is not None and 0 <= place < len(listed):
            return [listed[place]], [one for i, one in enumerate(listed) if i != place]
    right = row.get("answer", metadata.get("indirect_object", metadata.get("answer")))
    wrong = row.get("wrong", metadata.get("subject"))
    return ([] if right is None else [right]), ([] if wrong is None else [wrong])


def _spaced(words: Iterable[Any], lead: str) -> list[Any]:
    return [word if not isinstance(word, str) or word[:1].isspace() else f"{lead}{word}" for word in words]
