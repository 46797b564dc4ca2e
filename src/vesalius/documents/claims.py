"""What an explanation is made of: claims with their evidence, and what is said about one component.

A claim is one falsifiable statement; its verdict is computed by rule from its evidence, never by the scientist that
made the claim.
"""

import html
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from vesalius.documents.base import FrozenDict, FrozenMap, JsonMap, Record, first_error
from vesalius.documents.view import (
    LONGEST_REPR,
    Answer,
    Bars,
    Facts,
    Section,
    Sheet,
    View,
    Viewable,
    cut_text,
    html_table,
    prompts,
)
from vesalius.errors import visible
from vesalius.values import JsonObject

#: The ends of a circuit, as edges name them.
TOKENS, LOGITS = "tokens", "logits"
#: Undecided: tested, and the evidence stays open. Untested: no experiment was made.
Verdict = Literal["supported", "refuted", "undecided", "untested"]
#: The outcome of evidence that no further prompt is drawn for: the interval would still span the bar.
TOO_CLOSE = "too close to the bar to call"
#: The outcome of evidence that is shown without a part in the verdict.
SHOWN = "no part of the verdict"
#: What is shown where experiments settled no tag.
NO_TAG = "no tag"
Tag = Literal["INDICATOR", "AGGREGATOR", "ROUTER", "MAPPER", "COMBINER"]
#: The measure whose figure stands beside a claim, where it was measured.
INTERCHANGE = "interchange accuracy"
FREE_CODE = "free_code"
#: Figures of a natural component's profile, and where a head attends from, as people say them.
EFFECTS = {
    "solo": "replaced alone",
    "at_answer": "only at the answer position",
    "direct": "only on its path to the logits",
    "lens": "logit lens: what it writes by itself",
    "restored": "what it alone restores",
    "joint": "replaced with its group",
    "joint_without": "its group without it",
    "gain": "its cost once the group is out, beyond alone",
}
#: What the account measures of a component.
EFFECT_FIELDS = ("effect", "effect_right", "effect_wrong")
PLACES = {"answer": "From the answer position", "everywhere": "From every position that has such a key"}
#: The outcome of an experiment whose figure is a share of a score that cannot be told from 0.
NOT_DEFINED = "not defined: the model does not perform it"


class Evidence(Record):
    """One experiment's result: what was measured, on how many held-out cases, with its interval and its controls.

    `passed` says whether the rule was met (None: not decided, or no part of the verdict); `outcome` is what the
    experiment found in a word or two, where that is more than pass or fail; `bar` is what the interval was compared
    with, where that is one figure and more prompts might leave it (natural models).
    """

    ABSENT_IF_DEFAULT = ("bar",)

    experiment: str
    measure: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    controls: FrozenMap[str, float | None] = Field(default_factory=FrozenDict)
    rule: str
    seed: int
    passed: bool | None = None
    outcome: str | None = None
    bar: float | None = None

    def __repr__(self) -> str:
        value = "" if self.value is None else f" {self.value:.3g}"
        interval = "" if self.low is None or self.high is None else f" [{self.low:.3g}, {self.high:.3g}]"
        return cut_text(visible(f"{self.experiment}: {self.measure}{value}{interval}, n {self.n}, {self.mark}"), 240)

    @property
    def mark(self) -> str:
        """How a line of evidence is marked: pass, FAIL or undecided; shown where it is not part of the verdict."""
        if self.passed is not None:
            return "pass" if self.passed else "FAIL"
        return "shown" if self.outcome == SHOWN else "undecided"


class ClaimRecord(Viewable, Record):
    """A claim after its experiment. `tried` counts the claims of this kind tried on the component, this one
    included. `prediction` is what the claim says beside its kind and component, so that it can be decided again.
    `counterexamples` are inputs, with what the claim predicts and what the model does, that an agent whose claim was
    refuted is shown; they are not among those that decided.
    """

    ABSENT_IF_DEFAULT = ("prediction", "counterexamples")

    kind: str
    text: str
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    tried: int = 1
    prediction: JsonMap | None = None
    counterexamples: tuple[JsonMap, ...] = ()

    def view(self) -> View:
        """The claim, and its evidence."""
        names = ("experiment", "measure", "value", "low", "high", "n", "mark", "rule")
        facts = [("", repr(one)) for one in self.evidence[:2]]
        more = len(self.evidence) - 2
        return View(
            self.kind,
            Answer(f"{self.verdict}: {cut_text(self.text, 200)} ({self.kind})"),
            [
                Facts([*facts, *([("", f"... {more} more experiments")] if more > 0 else [])]),
                Sheet(names, [[getattr(one, name) for name in names] for one in self.evidence], title="Evidence"),
            ],
        )


@dataclass(frozen=True)
class Claims(Section):
    """A section of a view: claims about `subject`, each with its evidence."""

    subject: str
    claims: Sequence[ClaimRecord]


class Executable(Record):
    """A program that can be run: the plain data of `rasp.document`, and which of its variables each component carries.

    Grading runs it, so that no text is graded by how it sounds.
    """

    program: JsonMap
    carriers: FrozenMap[str, tuple[str, ...]]


class NamedOperation(Record):
    """What a table does, where that has a name: exact on all `entries` of the table.

    `formula` is written in x, y and z, which are `arguments` in order. It gives the `values` of the component, or only
    its `classes`: which arguments count alike. Where an argument is undefined, the component gives one value of its
    own (`apart`), the value `otherwise` (`as`), or what the table says (`table`); `absent`: that does not occur. With
    `at_own_position` the name was shown to hold position by position only, not for an output moved elsewhere.
    """

    operation: str
    text: str
    formula: str
    arguments: tuple[str, ...]
    exact: Literal["values", "classes"]
    entries: int
    undefined: Literal["absent", "apart", "as", "table"] = "absent"
    otherwise: Any = None
    at_own_position: bool = False


Figures = Annotated[Sequence[float | None], Field(min_length=3, max_length=3)]


class _Group(BaseModel):
    name: str
    members: Sequence[str]


class _Source(BaseModel):
    source: str
    adds: float
    attention_lost: float | None = None


class _Why(BaseModel):
    """Why a head attends to a role: sources at the query and at the key, with what they add to its score beyond other
    keys, and the attention that leaves where their path carries its counterfactual value.
    """

    role: str
    score: float
    at_query: Sequence[_Source]
    at_key: Sequence[_Source]
    agreement: float | None
    n: int


class _Profile(BaseModel):
    """The parts of a profile that pages and summaries read; figures are a mean with its interval."""

    model_config = ConfigDict(strict=True)

    pattern: str | None = None
    unit: str | None = None
    clean: float | None = None
    effects: dict[str, Figures] | None = None
    n: dict[str, int] | None = None
    attention: dict[str, dict[str, Figures]] | None = None
    group: _Group | None = None
    request: JsonObject | None = None
    why: _Why | None = None


class PartSpecificity(Record):
    """What replacing a component by its mean over plain text costs elsewhere: `own` and `others` as shares of the logit
    difference of its own behaviour and of others by name, plain `text` in nats of next-token loss with its interval,
    and as a share of the loss (None: no text). `specific`: its own behaviour loses at least twice the share that the
    others lose on average, and that the loss on text rises by; None where this replacement does not cost its own, or
    nothing else was measured.
    """

    own: float
    others: FrozenMap[str, float]
    others_mean: float | None
    text: float | None
    text_low: float | None
    text_high: float | None
    text_share: float | None
    specific: bool | None
    n: int

    @property
    def elsewhere(self) -> str:
        """What it breaks elsewhere, in words."""
        text = None if self.text is None else f"plain text {self.text:+.2f} nats"
        others = None if self.others_mean is None else f"{self.others_mean:.2f} of other behaviours"
        return " and ".join(part for part in (text, others) if part) or "nothing else was measured"


class NotAsked(Record):
    """A question about a component that has no claim: its `kind`, what it is `about` where several of a kind may be
    asked (a role, another component), and `why`.

    *close*: on the prompts of the selection the figure lies within its standard errors of the bar, so that it was not
    tested. *narrower*: it was tested and stays open, and another claim that was decided stands in its place.
    """

    kind: str
    about: str = ""
    why: Literal["close", "narrower"] = "close"


class ComponentExplanation(Record):
    """What one head or MLP does.

    `tag` follows the conventions of the benchmark family, `tag_by_experiment` only what was measured; where they
    differ the note says both. `tag_by_convention` is the reading of a convention where one applies (the note has its
    rule); it is not the `tag` where a supported claim of the component contradicts it. `tag_by_experiment` is None
    where experiments settled nothing; `tag_by_model` is what a language model chose, and is the `tag` only where no
    experiment settled one. `program` is the component's variable
    in RASP, `family` the kind of hypothesis it is, `table` a read-off table where no formula was found, `operation` the
    name of what a supported table does, `refuted` the hypotheses that lost, with their scores. In a natural model
    `role` is the name the field gives to what was measured (an induction head, a previous-token head) and `profile`
    holds the measurements; replacing it alone costs the share `effect` of the range, and lowers the logit of the right
    answer by `effect_right` and that of the wrong one by `effect_wrong` (None where there are no two answers).
    `specificity` says of a necessary one what it breaks besides, `not_asked` which questions were left out and why.
    """

    ABSENT_IF_DEFAULT = (*EFFECT_FIELDS, "tag_by_convention", "specificity", "not_asked")

    id: str
    tag: Tag | None
    tag_by_experiment: Tag | None
    tag_by_convention: Tag | None = None
    tag_by_model: Tag | None = None
    note: str
    verdict: Verdict
    program: str | None = None
    family: str | None = None
    reads: tuple[str, ...] = ()
    claims: tuple[ClaimRecord, ...] = ()
    refuted: tuple[JsonMap, ...] = ()
    table: JsonMap | None = None
    operation: NamedOperation | None = None
    role: str | None = None
    profile: JsonMap | None = None
    effect: float | None = None
    effect_right: float | None = None
    effect_wrong: float | None = None
    specificity: PartSpecificity | None = None
    not_asked: tuple[NotAsked, ...] = ()

    @field_validator("profile")
    @classmethod
    def _readable(cls, profile: JsonObject | None) -> JsonObject | None:
        """Refuse measurements that no reader could make sense of; what else a profile holds is kept as it is."""
        try:
            _Profile.model_validate(profile or {})
        except ValidationError as error:
            raise ValueError(first_error(error)) from None
        return profile

    @property
    def decided(self) -> Counter[str]:
        """How many claims were decided each way, those of hypotheses that lost included."""
        counts: Counter[str] = Counter(claim.verdict for claim in self.claims)
        for lost in self.refuted:
            given = lost.get("claims")
            if isinstance(given, dict):
                counts.update(
                    {name: n for name, n in given.items() if name in get_args(Verdict) and isinstance(n, int)}
                )
        return counts

    def __repr__(self) -> str:
        counts = self.decided
        claims = ", ".join(f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict) if counts[verdict])
        program = f"\n{cut_text(self.program, 120)}" if self.program else ""
        said = f"{self.id} {self.role or self.tag or NO_TAG} ({self.verdict}): {cut_text(self.note, 160)}"
        return cut_text(visible(f"{said}{program}\nclaims: {claims or 'none'}"), LONGEST_REPR)

    def _repr_html_(self) -> str:
        rows = [{"claim": claim.text, "kind": claim.kind, "verdict": claim.verdict} for claim in self.claims]
        return f"<p>{html.escape(repr(self))}</p>{html_table(rows)}"


class Composition(Record):
    """A component that writes the queries or the keys of a head, by a supported claim: `value` is the share of the
    head's attention that leaves its target when only that path is replaced.
    """

    sender: str
    receiver: str
    port: Literal["queries", "keys"]
    value: float | None
    low: float | None
    high: float | None


def claim_line(claim: ClaimRecord) -> str:
    """A claim in a line, with its figure: interchange accuracy where it was measured, else the first."""
    said = f"{claim.verdict}{' (by the language model)' if claim.kind == FREE_CODE else ''}: {claim.text}"
    accuracy = (evidence for evidence in claim.evidence if evidence.measure.startswith(INTERCHANGE))
    evidence = next(accuracy, claim.evidence[0] if claim.evidence else None)
    if evidence is None or evidence.value is None or evidence.low is None or evidence.high is None:
        return said
    return f"{said} {evidence.value:.3f} [{evidence.low:.3f}, {evidence.high:.3f}], n = {evidence.n}"


def why_it_attends(profile: Mapping[str, object]) -> Sheet | None:
    """The sources that make a head attend where it does, as a table; None where they were not measured."""
    if not profile.get("why"):
        return None
    why = _Why.model_validate(profile["why"])
    agreed = "" if why.agreement is None else f"; leading pairs agree with path patching at {why.agreement:.2f}"
    return Sheet(
        ("where", "source", "adds to the score", "attention that leaves"),
        [
            (where, one.source, one.adds, one.attention_lost)
            for where, side in (("at the key", why.at_key), ("at the query", why.at_query))
            for one in side
        ],
        title=f"Why it attends to {why.role}",
        caption=f"The score there is {why.score:+.2f} above the mean of other keys, an exact sum over pairs of sources "
        f"({prompts(why.n)}{agreed}). What leaves: attention on {why.role} where the source's path into the queries or "
        "keys carries its value on the counterfactual prompt.",
        signed=("adds to the score",),
    )


def draw_profile(profile: Mapping[str, Any]) -> tuple[Bars, ...]:
    """The bars of a natural component's profile: where a head looks, and what replacing it costs."""
    attention = profile.get("attention") or {}
    tables = [
        Bars(
            [(name, *ends) for name, ends in attention[where].items()],
            title=f"{title}, attention on",
            caption="Share of attention with its 95 % interval over prompts.",
        )
        for where, title in PLACES.items()
        if attention.get(where)
    ]
    effects, counts = profile.get("effects") or {}, profile.get("n") or {}
    named = {words + _fewer(name, counts): effects[name] for name, words in EFFECTS.items() if name in effects}
    group, clean = profile.get("group") or {}, profile.get("clean")
    caption = "" if clean is None else f"Shares of the clean logit difference, {clean:.2f} logits, not of the range. "
    if len(group.get("members", ())) > 1:
        caption += f"Group: {group['name']} ({', '.join(group['members'])}). "
    caption += "Replaced by its value on the counterfactual prompt."
    tables.append(Bars([(name, *ends) for name, ends in named.items()], title="What it is worth", caption=caption))
    return tuple(table for table in tables if any(None not in row for row in table.rows))


def _fewer(name: str, counts: Mapping[str, int]) -> str:
    """After a figure's words: how many prompts it rests on, where others rest on more."""
    n, most = counts.get(name, 0), max(counts.values(), default=0)
    return f", on {n} of {most} prompts" if 0 < n < most else ""


# Records of free form (read-off tables, refuted hypotheses) as facts and tables of a view. A read-off table is a
# mapping: flat (`{"a": 0, "x": 1}`), nested (`{"a": {"0": 1}}`), or a record whose fields are facts and tables
# (`{"arguments": ["token"], "rows": [["a", 0]]}`).


@dataclass(frozen=True)
class FreeRecord:
    """A free-form record: single facts, then tables."""

    facts: tuple[tuple[str, str], ...]
    sheets: tuple[Sheet, ...]


def read_table(table: Mapping[str, Any]) -> FreeRecord:
    """Turn a component's read-off table into facts and printable tables."""
    if not table:
        return FreeRecord((), ())
    if all(_is_plain(value) for value in table.values()):
        return FreeRecord((), (sheet("", ("input", "value"), list(table.items())),))
    if all(isinstance(value, Mapping) for value in table.values()):
        return FreeRecord((), (_grid("", table),))
    header = next((table[name] for name in ("columns", "header") if _is_list_of_plain(table.get(name))), None)
    facts, sheets = [], []
    for name, value in table.items():
        if _is_plain(value) or _is_list_of_plain(value):
            if value is not header:
                facts.append((words(name), spell(value)))
        else:
            sheets.append(_structured(words(name), value, header))
    return FreeRecord(tuple(facts), tuple(sheets))


def read_records(records: Sequence[Mapping[str, object]]) -> Sheet:
    """A list of records as one table, a column for each field any of them has, in the order they first appear."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    return sheet("", [words(name) for name in columns], [[record.get(name) for name in columns] for record in records])


def sheet(title: str, columns: Sequence[object], rows: Sequence[Sequence[object]]) -> Sheet:
    """A table whose cells are spelt as the record has them."""
    return Sheet(
        tuple(map(str, columns)),
        [
            tuple(cell if isinstance(cell, int | float) and not isinstance(cell, bool) else spell(cell) for cell in row)
            for row in rows
        ],
        title=title,
    )


def spell(value: Any) -> str:
    """A value as text: strings bare, lists with commas, numbers short, the rest as JSON."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4g}"
    if _is_list_of_plain(value):
        return ", ".join(spell(part) for part in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def words(name: object) -> str:
    """A field's name as a heading."""
    return str(name).replace("_", " ")


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_list_of_plain(value: object) -> bool:
    return isinstance(value, list | tuple) and all(_is_plain(part) for part in value)


def _structured(title: str, value: Any, header: Sequence[Any] | None) -> Sheet:
    if isinstance(value, Mapping):
        if value and all(isinstance(row, Mapping) for row in value.values()):
            return _grid(title, value)
        return sheet(title, ("input", "value"), list(value.items()))
    if all(isinstance(row, Mapping) for row in value):
        records = read_records(value)
        return replace(records, title=title)
    rows = [row if isinstance(row, list | tuple) else [row] for row in value]
    width = max(map(len, rows))
    names = list(header) if header is not None and len(header) == width else [""] * width
    return sheet(title, names, rows)


def _grid(title: str, table: Mapping[str, Mapping[str, object]]) -> Sheet:
    columns = list(dict.fromkeys(name for row in table.values() for name in row))
    return sheet(
        title, ["", *columns], [[name, *(row.get(column) for column in columns)] for name, row in table.items()]
    )
