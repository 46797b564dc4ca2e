"""Blind rating of texts by people: what is rated, one text as a rater sees it, and how far each rater is."""

from typing import Literal

from pydantic import Field, JsonValue

from vesalius.documents.base import Document, Record

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
    """One text as a rater sees it: nothing here says who wrote it. `cut` characters of a long text are not shown."""

    id: str
    number: int
    total: int
    measure: str
    specimen: str
    component: str
    text: str
    cut: int = 0
    reference: str | None
    task: str | None
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
