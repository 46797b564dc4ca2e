"""One behaviour on one model, as `vesalius behaviours M -b B` prints it: can it be explained, and if not, what to do.

Accuracy has two names: a model *prefers the right answer* where that is likelier than the wrong one, and *says it*
where it is the likeliest of all tokens.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from vesalius.documents.catalogue import Entry, with_interval
from vesalius.documents.performance import LEAST_ROWS, MORE_ROWS, RANDOM_TOKENS, Contrast
from vesalius.documents.view import Answer, Facts, Section, Sheet, Text, View, Viewable, prompts, title_of
from vesalius.values import JsonObject

#: Lines of reasons, numbers of rows in one of them, and words that the model says instead.
MOST_REASONS, MOST_NUMBERS, MOST_SAID = 20, 5, 5
PREFERS, SAYS = "prefers the right answer", "says it"


class FigureData(TypedDict):
    """A figure with its interval, where it has one."""

    value: float
    low: float | None
    high: float | None
    n: int


class ReportedRow(TypedDict):
    """A row of a behaviour: whether it is kept, why not, and what would repair it."""

    row: int
    kept: bool
    reason: str | None
    suggestion: NotRequired[str | None]


class ReportedSplit(TypedDict):
    """The figures of one split."""

    accuracy: FigureData | None
    top1: FigureData | None
    metric: FigureData | None
    n: int


class Judged(TypedDict):
    """Whether the behaviour can be explained."""

    verdict: Literal["yes", "partly", "no"]
    text: str


class Said(TypedDict):
    """A word that the model says instead of the answer, and how often."""

    text: str
    n: int


class BehaviourReport(Viewable, Entry):
    """One behaviour on one model: whether it can be explained (`answer`) and the next command; which rows are kept and
    why others are not; `accuracy` (how often the right answer is preferred to the wrong one), `top1` (how often the
    model says it) and metric, each `{value, low, high, n}`, of all rows and of each split (None where nothing is left
    to measure); what the model says instead; the contrast. `bos` is the token that is put before every text. `proposed`
    is there where counterfactuals were asked for: the new file, and what each proposal does.
    """

    answer: Judged
    next: str
    model: str
    bos: str | None
    behaviour: str
    n_rows: int
    n_kept: int
    rows: Sequence[ReportedRow]
    splits: Mapping[str, ReportedSplit]
    accuracy: FigureData | None
    top1: FigureData | None
    metric: FigureData | None
    metric_name: str
    unit: str
    performs: bool | None
    contrast: Mapping[str, object] | None
    says_instead: Sequence[Said]
    doubts: Sequence[str]
    note: str | None
    proposed: Mapping[str, object] | None

    def view(self) -> View:
        """Whether it can be explained; which rows can be used and why others cannot; the figures of each split."""
        title = f"{title_of(self.behaviour)} on {self.model}"
        said = [row for row in self.rows if not row["kept"] or row["reason"]]
        lacking = [row for row in self.rows if row["kept"] and row.get("suggestion")]
        reasons = _same_reasons(said)
        if lacking:
            first, many = lacking[0], f"{len(lacking)} row{'' if len(lacking) == 1 else 's'}"
            usable = self.contrast is not None and Contrast.model_validate(self.contrast).usable
            tried = f"row {first['row']}: {first['suggestion']}" if usable else "what took its place does not break it"
            reasons.append(f"{many} without a counterfactual; {tried}")
        if self.note:
            reasons.append(self.note)
        before = [f"before every text the model reads {self.bos}"] if self.bos is not None else []
        return View(
            title,
            Answer(self.answer["text"], self.answer["verdict"], self.next),
            [
                Facts(self._facts()),
                *([Text(before)] if before else []),
                *([Text(reasons, bullets=True, terminal=MOST_REASONS)] if reasons else []),
                Sheet.of(list(self.rows), title="Rows", terminal=0),
                self._splits(),
                *self._proposals(),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        """The rows, the two accuracies, the metric, the contrast and what is said instead."""
        rows = f"{self.n_rows} row{'' if self.n_rows == 1 else 's'}"
        facts = [("", f"{title_of(self.behaviour)} on {self.model}: {self.n_kept} of {rows} can be used")]
        figures = {PREFERS: self.accuracy, SAYS: self.top1, self.metric_name: self.metric}
        facts += [(name, f"{_figure(one)}, n {one['n']}") for name, one in figures.items() if one is not None]
        contrast = None if self.contrast is None else Contrast.model_validate(self.contrast)
        if contrast is not None:
            facts.append(("contrast", f"{contrast.figures}; counterfactuals: {contrast.source}"))
        if self.says_instead:
            words = ", ".join(f"{one['text']!r} {one['n']}" for one in self.says_instead[:MOST_SAID])
            facts.append(("says instead", words))
        told = (self.answer["text"], contrast and contrast.doubt)  # the line of the contrast says what is wrong with it
        facts += [("but", doubt) for doubt in self.doubts if doubt not in told[0] and doubt != told[1]]
        return facts

    def _splits(self) -> Sheet:
        name = f"{self.metric_name} ({self.unit})" if self.unit else self.metric_name
        shown: dict[str, Mapping[str, Any]] = dict(self.splits)
        if len(shown) > 1:
            shown["all"] = {**self, "n": sum(part["n"] for part in shown.values())}
        rows = [
            (
                split,
                *(_figure(part[one]) if part.get(one) else "-" for one in ("accuracy", "top1", "metric")),
                part["n"],
            )
            for split, part in shown.items()
        ]
        columns = ("split", f"{PREFERS} [95 %]", f"{SAYS} [95 %]", f"{name} [95 %]", "n")
        return Sheet(columns, rows, title="By split")

    def _proposals(self) -> list[Section]:
        """The best shared substitutions, and what the proposal does for each row."""
        proposed = self.get("proposed")
        if proposed is None:
            return []
        shared = [
            (
                f"{one['old']!r} -> {one['new']!r}",
                _figure(one["range_on_rows_that_chose"]),
                "-" if one["range_on_other_rows"] is None else _figure(one["range_on_other_rows"]),
                one["broken"],
            )
            for one in proposed["shared"]
        ]
        rows = [
            (one["row"], one["change"] or "nothing works", one["range"], one["wrong_rise"], one["broken"])
            for one in proposed["rows"]
        ]
        columns = (
            "in all rows",
            "range where it was chosen [95 %]",
            "range on other rows [95 %]",
            "prompt less likely by",
        )
        return [
            *(
                [Sheet(columns, shared, title="Proposed for all rows: the best of each place, then others")]
                if shared
                else []
            ),
            Sheet(
                ("row", "proposed", "range", "wrong answer likelier by", "prompt less likely by"),
                rows,
                title=f"Proposed row by row, written to {proposed['file']}",
                caption="Range: how far the score falls. The last two are in nats. Look at them before they are used: "
                "a word may ask another question instead of breaking this one.",
                terminal=MOST_REASONS,
            ),
        ]


def report(
    data: JsonObject, *, model: str, bos: str | None, own: bool = False, reading: Sequence[str] = ()
) -> BehaviourReport:
    """The report of what was measured, with its answer; `own` rows are all the prompts that there are, `reading` the
    flags that the model was read by.
    """
    answer, then = _answer(data, model, reading)
    if own and 0 < data["n_kept"] < LEAST_ROWS and then.startswith("vesalius discover"):
        then = f"{MORE_ROWS}, then: {then}"
    first = {"verdict": answer.verdict, "text": answer.text}
    return BehaviourReport({"answer": first, "next": then, "model": model, "bos": bos, **data})


def _answer(data: JsonObject, model: str, reading: Sequence[str]) -> tuple[Answer, str]:
    """Whether a behaviour can be explained with this model, by the first rule that applies, and the next command."""
    subject, name = f"{title_of(data['behaviour'])} on {model}", shlex.join([data["behaviour"], *reading])
    if not data["n_kept"] or data["contrast"] is None:
        return Answer(
            f"none of the {data['n_rows']} rows of {subject} can be used", "no"
        ), "change the rows as said below"
    contrast, doubts = Contrast.model_validate(data["contrast"]), data["doubts"]
    prefers = f"{_figure(data['accuracy'])} of {prompts(data['accuracy']['n'])}"
    proposed = data.get("proposed")
    if proposed is not None:
        after = Contrast.model_validate(proposed["contrast"])
        text = f"{subject}: {proposed['n_proposed']} of {proposed['n_asked']} rows got a counterfactual; with it the "
        left = [doubt for doubt in doubts if doubt != contrast.doubt]
        verdict = "no" if not after.usable else "partly" if left or after.doubt else "yes"
        then = f"vesalius discover {model} -b {shlex.join([proposed['file'], *reading])}"
        said = Answer("; ".join([f"{text}contrast is {after.figures}", *left[:1]]), verdict)
        return said, f"look at {proposed['file']}, then: {then}"
    decides = contrast.usable or contrast.few  # else a model at chance has nothing that another contrast would break
    if data["performs"] is False and not (decides and _may_perform(data)):
        text = f"{subject} cannot be explained: the model {PREFERS} on {prefers} only"
        return Answer(text, "no"), "choose another behaviour or model"
    if not contrast.usable:
        rows = any(row.get("suggestion") for row in data["rows"] if row["kept"])
        then = f"vesalius behaviours {model} -b {name} --propose proposed.jsonl"
        repair = (
            MORE_ROWS
            if contrast.few
            else then
            if rows
            else "give every row a counterfactual on which the answer is no longer right"
        )
        return Answer(f"{subject} cannot be explained: {contrast.doubt}", "no"), repair
    then = f"vesalius discover {model} -b {name}"
    if contrast.source == RANDOM_TOKENS:
        then = f"vesalius behaviours {model} -b {name} --propose proposed.jsonl"
    if doubts:
        return Answer(f"{subject} can be explained in part: {doubts[0]}", "partly"), then
    lowered = f"{_figure(data['contrast']['range'])} {contrast.unit}".rstrip()
    text = f"{subject} can be explained: replacing everything lowers the score by {lowered}"
    return Answer(f"{text}, and the model {PREFERS} on {prefers}", "yes"), then


def _may_perform(data: JsonObject) -> bool:
    """Whether too few prompts leave it open that the model performs: the mean is above chance, the interval is not."""
    accuracy = data["accuracy"]
    return accuracy["value"] > 0.5 and accuracy["high"] > 0.5 >= accuracy["low"]


def _same_reasons(rows: Sequence[ReportedRow]) -> list[str]:
    """One line for each reason, with the rows that share it."""
    sharing: dict[str | None, list[ReportedRow]] = {}
    for row in rows:
        sharing.setdefault(row["reason"], []).append(row)
    lines = []
    for reason, same in sharing.items():
        numbers = [str(row["row"]) for row in same[:MOST_NUMBERS]]
        more = f" and {len(same) - MOST_NUMBERS} more" if len(same) > MOST_NUMBERS else ""
        hint = f" ({same[0]['suggestion']})" if not same[0]["kept"] and same[0].get("suggestion") else ""
        lines.append(f"row{'s' * (len(same) > 1)} {', '.join(numbers)}{more}: {reason}{hint}")
    return lines


def _figure(figure: FigureData) -> str:
    return with_interval(figure["value"], figure.get("low"), figure.get("high"))
