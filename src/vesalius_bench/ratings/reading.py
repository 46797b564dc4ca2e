"""Scores given by people, read from a file and held against the judges'.

A ratings file is CSV with a header, or JSON: a list of objects. Both have these fields:

    specimen    as in the explanation: the id or the name it was explained under
    component   L0_MLP, L1H2, ...; empty for task_accuracy, which is about the whole circuit
    rater       who gave the score; any name
    measure     description_quality, task_accuracy, plan_soundness or grounding
    score       a whole number: 0, 1 or 2; for task_accuracy 0 or 1
    iteration   optional: which hypothesis of the component, from 1; 1 if left out
    agent       optional: whose text it is, where there are several (also called `explainer`)
    run         optional: the run the text is from
    comment     optional

Annotation in the workbench writes one column `item` in place of specimen, component, measure and iteration:
`description_quality:frac_prevs:L0_MLP`, `task_accuracy:frac_prevs`, `plan_soundness:frac_prevs:L1H2:2`.

Reports give, as with judges, the lowest score of an item;
studies take the score that most of at least three raters give (`majority`).
"""

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict

from vesalius.components import Component
from vesalius.errors import BadInput, choices, quoted
from vesalius.files import parse_json
from vesalius_truth.grading.ratings import MEASURES, Item, Kappa, MeasureName, cohen_kappa, plain_cell

REQUIRED = ("specimen", "component", "rater", "measure", "score")
OPTIONAL = ("iteration", "agent", "explainer", "run", "comment")
#: The columns of a file that names items in one column.
BY_ITEM = ("item", "rater", "score")
SEPARATOR = ":"
#: Fewer raters of an item have no majority.
LEAST_RATERS = 3


class Rated(NamedTuple):
    """A text that was rated: an item, and the run it is from (empty where a file does not say)."""

    run: str
    item: Item

    @property
    def agent(self) -> str:
        """Who wrote the text."""
        return self.item.explainer


class Rating(BaseModel):
    """One score by one person."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    specimen: str
    component: str
    rater: str
    measure: MeasureName
    score: int
    iteration: int = 1
    explainer: str = ""
    run: str = ""
    comment: str = ""

    @property
    def item(self) -> Item:
        """What was rated."""
        return Item(self.measure, self.specimen, self.component, self.iteration, self.explainer)

    @property
    def rated(self) -> Rated:
        """What was rated, and which run it is from."""
        return Rated(self.run, self.item)


def item_text(item: Item) -> str:
    """An item in one word, as the column `item` has it; whose it is stands in another column."""
    parts = [item.measure, quote(item.specimen, safe="/ "), *([item.component] if item.component else [])]
    return SEPARATOR.join([*parts, *([str(item.iteration)] if item.iteration > 1 else [])])


def item_fields(text: str, where: str) -> dict[str, str]:
    """The fields of an item from its text."""
    name, *rest = text.strip().split(SEPARATOR)
    per_circuit = name in MEASURES and MEASURES[name].per_circuit
    names = ("specimen", *(() if per_circuit else ("component", "iteration")))
    if not rest or len(rest) > len(names) or (len(rest) < 2 and not per_circuit):
        form = "MEASURE:SPECIMEN or MEASURE:SPECIMEN:COMPONENT[:ITERATION]"
        raise BadInput(f"{where}: item {quoted(text)} is not {form}")
    fields = dict(zip(names, rest, strict=False))
    return {"measure": name, "component": "", **fields, "specimen": unquote(fields["specimen"])}


def read_csv_or_json(path: Path | str, what: str) -> tuple[Path, str]:
    """The path and the text of a .csv or .json file; `what` names it in refusals."""
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"{what} {file}: cannot be read ({error.strerror}); give a .csv or .json file") from None
    except UnicodeDecodeError:
        raise BadInput(f"{what} {file}: is not UTF-8 text; save it as UTF-8") from None
    if file.suffix.lower() not in (".csv", ".json"):
        raise BadInput(f"{what} {file}: the kind {file.suffix or '(none)'} is not known; give a .csv or .json file")
    return file, text


def read_ratings(path: Path | str) -> tuple[Rating, ...]:
    """Ratings from a .csv or .json file; the first slip is refused in one line that names its row."""
    file, text = read_csv_or_json(path, "ratings")
    return tuple(rating for _, rating in placed_ratings(text, str(file), csv_text=file.suffix.lower() == ".csv"))


def placed_ratings(text: str, file: str, *, csv_text: bool = True) -> list[tuple[str, Rating]]:
    """Ratings from a text, each with its file and row as a refusal would name them."""
    rows = _csv_rows(text, file) if csv_text else _json_rows(text, file)
    by_item_and_rater: dict[tuple[Rated, str], tuple[str, Rating]] = {}
    for where, row in rows:
        rating = _rating(row, where)
        if (rating.rated, rating.rater) in by_item_and_rater:
            raise BadInput(f"{where}: {rating.rater} has already scored this item; keep one row per rater and item")
        by_item_and_rater[rating.rated, rating.rater] = where, rating
    if not by_item_and_rater:
        raise BadInput(f"ratings {file}: holds no ratings; expected rows with {', '.join(REQUIRED)}")
    return list(by_item_and_rater.values())


def votes(ratings: Iterable[Rating]) -> dict[Item, dict[str, int]]:
    """The score of each rater, by item."""
    given: dict[Item, dict[str, int]] = {}
    for rating in ratings:
        given.setdefault(rating.item, {})[rating.rater] = rating.score
    return given


def majority(scores: Collection[int]) -> int | None:
    """The score that more than half of the raters of an item give; None where none has that, or where there are fewer
    than `LEAST_RATERS`.
    """
    score, count = max(Counter(scores).items(), key=lambda item: item[1], default=(0, 0))
    return score if len(scores) >= LEAST_RATERS and 2 * count > len(scores) else None


def rater_agreement(ratings: Iterable[Rating]) -> dict[MeasureName, dict[str, Kappa]]:
    """Cohen's kappa of every pair of raters over the items both scored, by measure. Pairs are `FIRST | SECOND`."""
    given = scores_by_rater(ratings)
    kappas: dict[MeasureName, dict[str, Kappa]] = {}
    for first, second in combinations(sorted(given), 2):
        for name, kappa in agreement_of(given[first], given[second]).items():
            kappas.setdefault(name, {})[f"{first} | {second}"] = kappa
    return kappas


def scores_by_rater(ratings: Iterable[Rating]) -> dict[str, dict[Rated, int]]:
    """The scores of every rater, by what was rated."""
    given: dict[str, dict[Rated, int]] = {}
    for rating in ratings:
        given.setdefault(rating.rater, {})[rating.rated] = rating.score
    return given


def kappa_fields(kappa: Kappa) -> dict[str, Any]:
    """Cohen's kappa with its interval as fields of a document."""
    return {"kappa": kappa.value, "low": kappa.low, "high": kappa.high, "n": kappa.n, "agreement": kappa.agreement}


def agreement_of(first: Mapping[Rated, int], second: Mapping[Rated, int]) -> dict[MeasureName, Kappa]:
    """Cohen's kappa of two raters over what both scored, by measure."""
    kappas: dict[MeasureName, Kappa] = {}
    for name, measure in MEASURES.items():
        pairs = [(score, second[key]) for key, score in first.items() if key.item.measure == name and key in second]
        if pairs:
            kappas[name] = cohen_kappa(pairs, categories=measure.best + 1, weighted=measure.ordinal)
    return kappas


def _csv_rows(text: str, file: str) -> list[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows = []
    try:
        _check_fields(set(reader.fieldnames or ()), f"ratings {file}, header")
        for row in reader:
            where = f"ratings {file}, row {reader.line_num}"
            if None in row or None in row.values():
                raise BadInput(f"{where}: has more or fewer fields than the header; put a text with commas in quotes")
            rows.append((where, {name: plain_cell(value.strip()) for name, value in row.items()}))
    except csv.Error as error:
        raise BadInput(f"ratings {file}, row {reader.line_num}: is not CSV ({error}); fix its quotes") from None
    return rows


def _json_rows(text: str, file: str) -> list[tuple[str, dict[str, Any]]]:
    entries = parse_json(text, source=f"ratings {file}")
    if not isinstance(entries, list):
        raise BadInput(f"ratings {file}: is not a list; give a list of objects with {', '.join(REQUIRED)}")
    rows = []
    for number, entry in enumerate(entries, 1):
        where = f"ratings {file}, row {number}"
        if not isinstance(entry, dict):
            raise BadInput(f"{where}: is not an object; give {', '.join(REQUIRED)}")
        _check_fields(set(entry), where)
        rows.append((where, entry))
    return rows


def _check_fields(given: set[str], where: str) -> None:
    required, optional = (BY_ITEM, OPTIONAL[1:]) if "item" in given else (REQUIRED, OPTIONAL)
    if missing := [name for name in required if name not in given]:
        raise BadInput(f"{where}: lacks {', '.join(missing)}; the fields are {', '.join(required)}")
    if unknown := sorted(given - {*required, *optional}):
        raise BadInput(f"{where}: does not know {', '.join(unknown)}; the fields are {', '.join(required + optional)}")


def _rating(row: Mapping[str, object], where: str) -> Rating:
    if "item" in row:
        row = {**row, **item_fields(str(row["item"]), where)}
    name = row["measure"]
    if not isinstance(name, str) or name not in MEASURES:
        raise BadInput(f"{where}: measure {quoted(name)} is not known; choose from {choices(MEASURES)}")
    measure = MEASURES[name]
    for field in ("specimen", "rater"):
        if not str(row[field]).strip():
            raise BadInput(f"{where}: {field} is empty; name one")
    return Rating(
        specimen=str(row["specimen"]).strip(),
        component=_component(row["component"], where, whole=measure.per_circuit),
        rater=str(row["rater"]).strip(),
        measure=measure.name,
        score=_whole(row["score"], f"{where}: score", low=0, high=measure.best),
        explainer=str(row.get("agent") or row.get("explainer") or "").strip(),
        run=str(row.get("run") or "").strip(),
        comment=str(row.get("comment") or "").strip(),
        iteration=_whole(1 if row.get("iteration") in (None, "") else row["iteration"], f"{where}: iteration", low=1),
    )


def _component(given: object, where: str, *, whole: bool) -> str:
    text = "" if given is None else str(given).strip()
    if whole and text:
        raise BadInput(f"{where}: component {text!r} on a measure of the whole circuit; leave it empty")
    if whole:
        return ""
    try:
        return str(Component.parse(text))
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def _whole(given: object, where: str, *, low: int, high: int | None = None) -> int:
    text = str(given) if isinstance(given, int | str) and not isinstance(given, bool) else ""
    accepted = f"a whole number from {low}" + (f" to {high}" if high is not None else "")
    if (
        not (text.isascii() and text.isdigit())
        or len(text) > 9
        or int(text) < low
        or (high is not None and int(text) > high)
    ):
        raise BadInput(f"{where} {quoted(given)} is not {accepted}; give one")
    return int(text)
