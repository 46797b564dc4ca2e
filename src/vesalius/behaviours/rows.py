"""Rows of a behaviour of one's own, as written: before any tokenizer.

A row is a prompt with one or several right answers and, where there are any, wrong answers, a counterfactual prompt,
named places in the prompt (roles) and a split. Its text is taken literally: braces mean nothing. Answers are what
follows the prompt character by character, so they usually begin with a space; a row whose answer continues the last
word of the prompt says so with `as_written`. Files of tools that name answers by token ids give `answer_ids` and
`wrong_ids`.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from vesalius.errors import BadInput
from vesalius.values import JsonObject

FIELDS = ("prompt", "answer", "wrong", "counterfactual", "roles", "split", "as_written", "kind")
#: Places that every prompt has and explanations name, which a row cannot give to others: a head that attends to a role
#: `BOS` would be called a sink.
TAKEN = ("", "BOS", "first token", "self", "itself", "previous", "duplicate", "induction", "elsewhere")
#: Where the answer is read, which a row may name so, and nothing else.
END = "end"
#: Answers as token ids, from files of tools that name them so.
ID_FIELDS = ("answer_ids", "wrong_ids")
SPLIT_NAMES = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
#: How alike a field's name and a known one must be to be taken for a slip.
TYPO = 0.8
Answer = str | int


@dataclass(frozen=True)
class Row:
    """One row as written, before any tokenizer. Answers are texts, or token ids where a file gives those; `roles` maps
    a name to a piece of the prompt or to its (start, end). `number` counts from 1. `as_written` allows answers that
    continue the last word of the prompt. `kind` names how the counterfactual differs, where a prompt has several, each
    in a row. `defect` says what is missing.
    """

    number: int
    prompt: str = ""
    answers: tuple[Answer, ...] = ()
    wrongs: tuple[Answer, ...] = ()
    counterfactual: str | None = None
    roles: Mapping[str, str | tuple[int, int]] = field(default_factory=dict)
    split: str | None = None
    defect: str | None = None
    as_written: bool = False
    kind: str | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for rows that ask the same question."""
        return self.prompt, self.counterfactual, self.answers, self.wrongs

    def as_data(self) -> JsonObject:
        """The row as it is written in a file."""
        given = {
            "prompt": self.prompt,
            **_named_answers("answer", self.answers),
            **_named_answers("wrong", self.wrongs),
            "counterfactual": self.counterfactual,
            "roles": {role: place if isinstance(place, str) else list(place) for role, place in self.roles.items()},
            "split": self.split,
            "as_written": self.as_written or None,
            "kind": self.kind,
        }
        return {name: value for name, value in given.items() if value not in (None, [], {})}


def _named_answers(name: str, answers: tuple[Answer, ...]) -> JsonObject:
    texts, ids = ([one for one in answers if isinstance(one, kind)] for kind in (str, int))
    return {name: texts[0] if len(texts) == 1 else texts, f"{name}_ids": ids}


def parse_rows(data: Iterable[object], *, source: str = "rows") -> tuple[Row, ...]:
    """Rows from plain data; what a row lacks is its defect, a misspelt field is refused."""
    if hasattr(data, "to_dict"):  # of pandas: iterating over it gives the names of columns
        raise BadInput(f"{source}: {type(data).__name__} is a table; give its rows, table.to_dict('records')")
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        raise BadInput(
            f"{source}: {type(data).__name__} is not a list of rows; a row is {{prompt, answer, wrong, ...}}"
        )
    rows = tuple(parse_row(one, number, source=source) for number, one in enumerate(data, 1))
    if not rows:
        raise BadInput(f"{source}: there are no rows; give at least one with a prompt and an answer")
    return rows


def parse_row(data: object, number: int, *, source: str = "rows") -> Row:
    """One row from plain data."""
    if isinstance(data, Row):
        return data
    if not isinstance(data, Mapping):
        return Row(number, defect=f"is {type(data).__name__}, not an object with a prompt and an answer")
    _refuse_slips(data, number, source)
    data = {name: value for name, value in data.items() if not _is_missing(value)}
    prompt, counterfactual = data.get("prompt", ""), data.get("counterfactual")
    if not isinstance(prompt, str):
        return Row(number, defect=f"the prompt is {type(prompt).__name__}, not a text")
    if not prompt.strip():
        return Row(number, defect="has no prompt")
    if counterfactual is not None and not isinstance(counterfactual, str):
        return Row(number, prompt, defect=f"the counterfactual is {type(counterfactual).__name__}, not a text")
    answers, wrongs = _answers(data, "answer"), _answers(data, "wrong")
    roles, split = _roles(data.get("roles"), prompt), data.get("split")
    if isinstance(answers, str) or isinstance(wrongs, str):
        return Row(number, prompt, defect=answers if isinstance(answers, str) else str(wrongs))
    if not answers:
        return Row(number, prompt, defect="has no answer")
    if isinstance(roles, str):
        return Row(number, prompt, answers, wrongs, counterfactual, defect=roles)
    named = SPLIT_NAMES.get(split.strip().lower()) if isinstance(split, str) else None
    if named is None and split not in (None, ""):
        defect = f"split {split!r:.60} does not exist: use train, validation or test"
        return Row(number, prompt, answers, wrongs, counterfactual, roles, defect=defect)
    as_written = _boolean(data.get("as_written"))
    if as_written is None:
        return Row(
            number, prompt, answers, wrongs, defect=f"as_written is {data['as_written']!r:.40}, not true or false"
        )
    kind = str(data.get("kind", "")).strip() or None
    return Row(number, prompt, answers, wrongs, counterfactual or None, roles, named, as_written=as_written, kind=kind)


def _refuse_slips(data: Mapping[object, object], number: int, source: str) -> None:
    """Fields of other tools are ignored; one that looks like a misspelt field of ours is not."""
    for name in data:
        meant = _meant(name) if isinstance(name, str) else None
        if meant is not None and meant not in data:
            raise BadInput(f"{source}: row {number}: field {name!r} is not known; did you mean {meant!r}?")


@lru_cache(maxsize=1024)
def _meant(name: str) -> str | None:
    """The field that a name looks like a slip of."""
    if name in (*FIELDS, *ID_FIELDS):
        return None
    return next(iter(difflib.get_close_matches(name.strip().lower(), FIELDS, 1, TYPO)), None)


def _is_missing(value: object) -> bool:
    """None, or NaN, which stands for nothing in tables of pandas."""
    return value is None or (isinstance(value, float) and value != value)


def _answers(data: Mapping[object, object], name: str) -> tuple[Answer, ...] | str:
    """Texts, then token ids; an empty text is not an answer. A text of its own says what is wrong with them."""
    texts, ids = _listed(data.get(name)), _listed(data.get(f"{name}_ids"))
    for one in texts:
        if isinstance(one, int | float) and not isinstance(one, bool):
            return f'{name} {one} is a number: write the text that follows the prompt, such as " {one}"'
    if not all(isinstance(one, str) for one in texts):
        return f"{name} is neither a text nor a list of texts"
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        return f"{name}_ids is neither a token id nor a list of them"
    return tuple(dict.fromkeys([*(one for one in texts if one != ""), *ids]))


def _listed(given: object) -> list[Any]:
    if given is None or given == "":
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _boolean(given: object) -> bool | None:
    """A truth value, or the word for it that a CSV holds; None where it is something else."""
    if isinstance(given, bool):
        return given
    return (
        {None: False, "": False, "false": False, "true": True}.get(given)
        if given is None or isinstance(given, str)
        else None
    )


def _roles(given: object, prompt: str) -> dict[str, str | tuple[int, int]] | str:
    """Names of places, or what is wrong with them."""
    if given is None or given == "":
        return {}
    if not isinstance(given, Mapping):
        return "roles is not an object of names and pieces of the prompt"
    roles: dict[str, str | tuple[int, int]] = {}
    for name, place in given.items():
        if place is None:
            continue
        if isinstance(place, str):
            if not place or place not in prompt:
                return f"role {name!r}: {place!r} is not in the prompt"
            roles[str(name)] = place
        elif isinstance(place, list | tuple) and len(place) == 2 and all(isinstance(x, int) for x in place):
            start, end = place
            if not 0 <= start < end <= len(prompt):
                return f"role {name!r}: characters {start} to {end} are not in the prompt"
            roles[str(name)] = (start, end)
        else:
            return f"role {name!r} is neither a piece of the prompt nor [start, end]"
    return roles


def inline_rows(text: str) -> list[Any] | None:
    """Rows written out as JSON, one object or a list; None for any other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f"behaviour {text[:40]!r}: not readable as JSON ({error})") from None
    return data if isinstance(data, list) else [data]
