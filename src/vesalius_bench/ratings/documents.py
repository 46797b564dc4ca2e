"""Ratings by people as files: scores held against each other and against judges, and texts that are rated blind."""

from typing import Literal

from pydantic import Field, JsonValue

from vesalius.documents.base import Document, FrozenDict, FrozenMap, Line, Record, ResultDocument
from vesalius.documents.view import Answer, Facts, Sheet, Text, View, join_first

# Scores of people and judges held against each other: who gave what, how far each pair agrees, what most say.

RATINGS_FILE = "ratings.json"
RaterKind = Literal["person", "judge"]
PairKind = Literal["human-human", "human-judge", "judge-judge", "lowest human-lowest judge"]


class RaterSummary(Record):
    """One rater: how many items they scored, and the mean score of each measure on its own scale (0 to 2, 0 to 1)."""

    rater: str
    kind: RaterKind = "person"
    n: int
    means: FrozenMap[str, float]


class RaterPair(Record):
    """Cohen's kappa of two raters over the `n` items both scored: linearly weighted on 0/1/2, plain on 0/1.

    `kappa` is None where no disagreement was to be expected: both gave one and the same score throughout.
    """

    a: str
    b: str
    measure: str
    kappa: float | None
    low: float | None
    high: float | None
    n: int
    agreement: float | None
    kind: PairKind = "human-human"


class AgentScore(Record):
    """The mean of one score per item over an agent's items, on the scale of the scorecard, with its 95 % interval.

    `n_split` items have no such score: no score has a majority.
    """

    ABSENT_IF_DEFAULT = ("run", "agent")

    run: str = ""
    agent: str = ""
    measure: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    n_split: int = 0


class RatedItem(Record):
    """One rated text and every score it got; `majority` is None where no score has more than half of the people."""

    run: str = ""
    agent: str = ""
    item: str
    scores: FrozenMap[str, int]
    judges: FrozenMap[str, int] = Field(default_factory=FrozenDict)
    majority: int | None
    lowest: int | None


class Ratings(ResultDocument, kind="ratings"):
    """All ratings of some files together.

    `majority` takes the score that more than half of the people gave, `lowest` the lowest of them, which is the rule of
    the published benchmark for two raters.
    """

    FILE = RATINGS_FILE
    RANK = 96
    REMEDY = "run `vesalius ratings` again"

    files: tuple[str, ...]
    raters: tuple[RaterSummary, ...]
    pairs: tuple[RaterPair, ...]
    majority: tuple[AgentScore, ...]
    lowest: tuple[AgentScore, ...]
    items: tuple[RatedItem, ...]
    notes: tuple[str, ...] = ()

    def listed(self) -> Line:
        """What a list of results says of it: who rated how many texts."""
        return Line(", ".join(rater.rater for rater in self.raters), f"{len(self.items)} texts")

    def view(self) -> View:
        """Raters, how far they agree, and the score of each agent."""
        people = [one.rater for one in self.raters if one.kind == "person"]
        judges = [one.rater for one in self.raters if one.kind == "judge"]
        kappas = [
            f"{pair.a} | {pair.b} {pair.measure} {'-' if pair.kappa is None else f'{pair.kappa:.2f}'} (n {pair.n})"
            for pair in self.pairs
        ]
        pairs = [
            (
                f"{pair.a} | {pair.b}",
                pair.measure.replace("_", " "),
                "undefined" if pair.kappa is None else pair.kappa,
                *(pair.low, pair.high, pair.n, pair.agreement),
            )
            for pair in self.pairs
        ]
        beside = f" and the judges {join_first(judges, 4)}" if judges else ""
        raters = [
            (
                one.rater,
                one.kind,
                one.n,
                ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in one.means.items()),
            )
            for one in self.raters
        ]
        return View(
            "Ratings",
            Answer(f"Ratings of {len(self.items)} items by {join_first(people, 4)}{beside}"),
            [
                Facts([("kappa", join_first(kappas, 4) or "no pair has a common item")]),
                *([Text([f"note: {note}" for note in self.notes])] if self.notes else []),
                Sheet(("pair", "measure", "kappa", "low", "high", "n", "equal"), pairs, title="Pairs of raters"),
                Sheet(("rater", "kind", "scores", "means"), raters, title="Raters"),
                *_agents("Majority of the people", self.majority),
                *_agents("Lowest score of the people", self.lowest),
            ],
        )


def _agents(title: str, scores: tuple[AgentScore, ...]) -> list[Sheet]:
    """The score of each agent; items without a majority are counted where there are any."""
    split = any(one.n_split for one in scores)
    rows = [
        (
            ", ".join(filter(None, (one.agent, one.run))) or "all",
            one.measure.replace("_", " "),
            one.value,
            one.low,
            one.high,
            one.n,
            *([one.n_split] if split else []),
        )
        for one in scores
    ]
    columns = ("agent", "measure", "score", "low", "high", "n", *(["no majority"] if split else []))
    return [Sheet(columns, rows, title=title)] if rows else []


# Blind rating of texts by people: what is rated, one text as a rater sees it, and how far each rater is.

ANNOTATION_FILE = "annotation.json"


class AnnotatedText(Record):
    """One text that is rated and who wrote it; `digest` changes with the text."""

    run: str
    agent: str
    item: str
    digest: str


class Annotation(Document, kind="annotation"):
    """What is rated in one directory. `reference` says whether raters see the reference texts; `secret` decides the
    order of each rater and the names that texts have in the browser.
    """

    FILE = ANNOTATION_FILE
    RANK = None
    SCHEMA = 1
    REMEDY = "choose another `out`"

    schema_version: Literal[1] = Field(default=1, alias="schema")
    reference: bool
    secret: str
    texts: tuple[AnnotatedText, ...]


class RubricLevel(Record):
    """One score of a rubric: its name, what it means, and the key that gives it."""

    score: int
    name: str
    text: str
    key: str


class Rubric(Record):
    """What raters are asked about one kind of text."""

    measure: str
    question: str
    levels: tuple[RubricLevel, ...]
    advice: str


class RatingCard(Record):
    """One text as a rater sees it: nothing here says who wrote it. `cut` characters of a long text are not shown.

    `given` is what the text is held against, where that is the agent's too: the observation behind a hypothesis, the
    hypothesis behind a plan, of which `outcome` says what came of it. `tag` is the agent's, `reference_tag` the right
    one, `parts` the right tag of every component of the circuit.
    """

    id: str
    number: int
    total: int
    measure: str
    specimen: str
    component: str
    text: str
    cut: int = 0
    given: str | None = None
    outcome: str | None = None
    tag: str | None = None
    reference: str | None
    reference_tag: str | None = None
    task: str | None
    parts: tuple[tuple[str, str], ...] = ()
    examples: tuple[tuple[JsonValue, JsonValue], ...] = ()
    score: int | None
    comment: str


class RaterProgress(Record):
    """How many of the texts a rater has scored, and the number of the first that is left."""

    rater: str
    rated: int
    total: int
    next: int | None


class ImportedRatings(Record):
    """What became of the rows of an imported file."""

    added: int
    replaced: int
    unchanged: int
