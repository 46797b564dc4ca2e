"""How values are written: figures, durations, intervals, titles, cells of tables, and a plain table in HTML."""

import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.errors import visible

#: A repr is one screen in a notebook at most.
LONGEST_REPR = 480
#: Rows that a printed or an HTML table shows.
SHOWN_ROWS, SHOWN_TEXT = 12, 80
#: A prompt in a title; of a longer one the end is shown.
TITLE_PROMPT = 60
#: Words of a label that are written in capitals.
ACRONYMS = "auroc|cmd|cpr|iia|mlp|lm"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Link:
    """A cell that leads somewhere: to a file beside the page, or with `#` to a part of it."""

    text: str
    address: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Mark:
    """A cell that holds a verdict, shown by a mark and a word; `remark` stands below it."""

    verdict: str
    text: str = ""
    remark: str = ""
    address: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.text or self.verdict, self.remark)))


class Unclear(float):
    """A figure whose interval holds 0: in brackets, and in grey where a face has colours."""


@dataclass(frozen=True)
class Ratio:
    """A cell that counts: so many of so many, sorted by the share."""

    part: int
    whole: int

    @property
    def share(self) -> float | None:
        """The share, where there is a whole."""
        return self.part / self.whole if self.whole else None

    def __str__(self) -> str:
        return f"{self.part}/{self.whole}"


def figure(value: float | None) -> str:
    """A measured number: three decimals near one, fewer far from it, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.1e}" if 0 < size < 0.0005 else f"{value + 0.0:.3f}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def interval(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """The ends of an interval; nothing where there are none."""
    if low is None or high is None:
        return ""
    return f"[{cell(float(low), signed=signed)}, {cell(float(high), signed=signed)}]"


def cell(value: object, *, signed: bool = False) -> str:
    """A value as every face prints it: figures short, lists with commas, a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        text = f"+{figure(value)}" if signed and value > 0 and math.isfinite(value) else figure(value)
        return f"({text})" if isinstance(value, Unclear) else text
    if isinstance(value, str | Link | Mark | Ratio):
        return visible(" ".join(str(value).split()))
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return visible(json.dumps(value, ensure_ascii=False, default=str))


def words(label: str) -> str:
    """A label in words: `edge_auroc_all` as edge AUROC all; names of components keep their underscores."""
    spaced = re.sub(r"\b[a-z]+(?:_[A-Za-z]+)+\b", lambda match: match[0].replace("_", " "), label)
    return re.sub(rf"\b(?:{ACRONYMS})\b", lambda match: match[0].upper(), spaced)


def plural(word: str) -> str:
    """Several of a kind: discoveries, sweeps."""
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def several(n: int, word: str) -> str:
    """So many of a kind: 1 claim, 2,000 claims."""
    return f"{n:,} {word if n == 1 else plural(word)}"


def prompts(n: int) -> str:
    """So many prompts, in words."""
    return several(n, "prompt")


def cut_text(text: str, most: int) -> str:
    """A text of at most so many characters; a cut one ends in three dots."""
    return text if len(text) <= most else text[: most - 4].rstrip() + " ..."


def has_options(behaviour: str) -> bool:
    """Whether a behaviour's name is followed by options: `addition:high=99`."""
    return bool(re.match(r"[a-z][a-z-]*:[a-z]+=", behaviour))


def title_of(behaviour: str) -> str:
    """A behaviour as a title names it: one prompt as it was written, of a path the name of the file."""
    if behaviour.lstrip().startswith("{"):
        try:
            row = json.loads(behaviour)
        except (json.JSONDecodeError, RecursionError):
            return cut_text(behaviour, TITLE_PROMPT)
        prompt, answer = str(row.get("prompt", "")), row.get("answer", "")
        shown = prompt if len(prompt) <= TITLE_PROMPT else f"... {prompt[-TITLE_PROMPT:]}"
        return f"{shown!r} -> {cut_text(repr(answer), TITLE_PROMPT)}"
    if has_options(behaviour):
        return behaviour
    return Path(behaviour).stem if "/" in behaviour or Path(behaviour).suffix else behaviour


def subject_of(specimen: str | None, behaviour: str | None) -> str:
    """A model and what it was studied for, as a title names them."""
    return ", ".join(filter(None, (specimen, behaviour and title_of(behaviour))))


def join_names(names: Iterable[object]) -> str:
    """Names in a sentence: a, b and c."""
    texts = list(map(str, names))
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def join_first(items: Iterable[str], most: int, *, total: int | None = None) -> str:
    """The first names of a list, and how many there are in all where some are left out."""
    names = list(items)
    count = len(names) if total is None else total
    shown = ", ".join(names[:most])
    return shown if count <= most else f"{shown}, ... ({count} in all)"


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Every column that some row has, in the order in which they come."""
    return list(dict.fromkeys(name for row in rows for name in row))


def html_table(rows: Sequence[Row], *, total: int | None = None) -> str:
    """The first rows as an HTML table in the colours of the page around it: no scripts, no style sheet."""
    if not rows:
        return "<p>no rows</p>"
    columns = columns_of(rows)
    cell = 'style="text-align:{};padding:.15em .8em .15em 0"'
    numeric = {name for name in columns if any(isinstance(row.get(name), int | float) for row in rows)}
    sides = {name: cell.format("right" if name in numeric else "left") for name in columns}
    head = "".join(f"<th {sides[name]}>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td {sides[name]}>{html.escape(_text(row.get(name)))}</td>" for name in columns) + "</tr>"
        for row in rows[:SHOWN_ROWS]
    )
    left = (len(rows) if total is None else total) - SHOWN_ROWS
    more = f'<p style="opacity:.7;margin:.3em 0 0">{left} more rows; .table() has them all</p>' if left > 0 else ""
    return f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return visible(cut_text(" ".join(str(value).split()), SHOWN_TEXT))
