"""Rows of other tools of the field in our own form.

| tool         | is recognised by                                                                                      |
|--------------|-------------------------------------------------------------------------------------------------------|
| EAP          | `clean` and `corrupted`; the answers are token ids, `correct_idx` and `incorrect_idx` (or those of    |
|              | its other tasks)                                                                                      |
| auto-circuit | `clean` and `corrupt`, with `answers` and `wrong_answers`                                             |
| MIB          | `choices` with `answerKey`, or a field `..._counterfactual`                                           |
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vesalius.behaviours.metrics import LOG_PROBABILITY
from vesalius.behaviours.rows import Row
from vesalius.errors import quoted

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


def own_form(row: Any, number: int) -> Any:
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


def missing_ids_note(rows: Sequence[Any], path: str) -> str | None:
    """What is said of a file of EAP with the right answers' ids alone."""
    theirs = [row for row in rows if isinstance(row, Mapping) and {"clean", "corrupted"} <= set(row)]
    for right, wrong in EAP_IDS:
        if theirs and all(right in row and wrong not in row and "answer" not in row for row in theirs):
            return (
                f"{path}: no column {wrong!r}, so answers are measured by {LOG_PROBABILITY}; EAP's greater-than file, "
                f"where {right} is a year and not a token id, is the built-in behaviour greater-than"
            )
    return None


def _of_eap(row: Mapping[str, Any]) -> dict[str, Any]:
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


def _of_auto_circuit(row: Mapping[str, Any]) -> dict[str, Any]:
    ours = {"prompt": row["clean"], "counterfactual": row.get("corrupt"), "split": row.get("split")}
    return {**ours, "answer": row.get("answers"), "wrong": row.get("wrong_answers")}


def _of_mib(row: Mapping[str, Any]) -> dict[str, Any]:
    """MIB's choices are words without the space between prompt and answer."""
    prompt, metadata = row.get("prompt"), row.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    right, wrong = _mib_answers(row, known)
    lead = "" if isinstance(prompt, str) and prompt[-1:].isspace() else " "
    nested = [str(name) for name in row if str(name).endswith("_counterfactual") and isinstance(row[name], Mapping)]
    order = [*(name for name in MIB_COUNTERFACTUALS if name in nested), *sorted(nested)]
    return {
        "prompt": prompt,
        "answer": _spaced(right, lead),
        "wrong": _spaced(wrong, lead),
        "counterfactual": row[order[0]].get("prompt") if order else row.get("counterfactual"),
        "split": row.get("split"),
    }


def _mib_answers(row: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
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


def _place(key: Any, options: Sequence[Any]) -> int:
    """Which choice the answer key names: one of them, or its place from 0."""
    if key in options:
        if not isinstance(key, int):
            return options.index(key)
    elif isinstance(key, str) and key.isdecimal():  # a CSV holds texts only
        key = int(key)
    if not isinstance(key, int) or not 0 <= key < len(options):
        raise _Defect(f"answerKey {quoted(key, 40)} is none of its {len(options)} choices, which count from 0")
    return key


def _spaced(words: Iterable[Any], lead: str) -> list[Any]:
    return [word if not isinstance(word, str) or word[:1].isspace() else f"{lead}{word}" for word in words]
