"""A kind of result is one class: it prints, has a schema and a page, is listed, compared and opened."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from vesalius.documents.base import REGISTERED, Line, ResultDocument
from vesalius.documents.kinds import kind_in, kind_named, schema
from vesalius.documents.metric import Metric
from vesalius.documents.view import Answer, Sheet, View
from vesalius.errors import BadInput
from vesalius_workbench.store import Store


@pytest.fixture
def kind() -> Iterator[Any]:
    class Weighing(ResultDocument, kind="weighing"):
        """How heavy something is."""

        FILE = "weighing.json"

        specimen: str
        weight: Metric
        stones: int

        def view(self) -> View:
            answer = Answer(f"{self.specimen} weighs {self.weight.figures}")
            return View("a weighing", answer, (Sheet(("stones",), ((self.stones,),)),))

    yield Weighing
    del REGISTERED["weighing"]


def weighed(kind: Any, value: float, stones: int = 2) -> Any:
    return kind(specimen="toy", weight=Metric(value=value, low=value - 0.1, high=value + 0.1, n=5), stones=stones)


def test_one_class_prints_has_a_schema_and_a_page_and_is_listed_compared_and_opened(kind: Any, tmp_path: Path) -> None:
    first, second = weighed(kind, 1.0), weighed(kind, 2.0, stones=3)
    assert str(first).startswith("toy weighs 1.000")
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    assert schema("weighing")["title"] == "Weighing"
    assert kind_in(tmp_path / "a") is kind
    assert kind.read(tmp_path / "a" / "weighing.json") == first
    rows = {row.path: row for row in ves.results(tmp_path).results}
    assert {(row.kind, row.title, row.state) for row in rows.values()} == {("weighing", "toy", "finished")}
    assert rows["b"].figures == str(second)
    difference = ves.diff(tmp_path / "a", tmp_path / "b")
    assert (difference.kind, difference.metrics["weight"].apart, difference.metrics["stones"].difference) == (
        *("weighing", True),
        1,
    )
    page = ves.report(tmp_path / "a").read_text(encoding="utf-8")
    assert "toy weighs 1.000" in page
    opened = Store(tmp_path).document("a")
    assert opened["kind"] == "weighing"
    assert opened["view"]["answer"] in str(first)


def test_a_kind_says_more_where_the_defaults_are_not_enough(kind: Any, tmp_path: Path) -> None:
    kind.listed = lambda self: Line("my title", f"{self.stones} stones", seconds=2.0)
    weighed(kind, 1.0).save(tmp_path / "a")
    (row,) = ves.results(tmp_path).results
    assert (row.title, row.figures, row.seconds) == ("my title", "2 stones", 2.0)


def test_a_name_is_taken_once(kind: Any) -> None:
    with pytest.raises(BadInput, match=r"kind 'sweep' is vesalius\.documents\.sweep\.Sweep"):

        class Other(ResultDocument, kind="sweep"):
            pass

    assert kind_named("sweep").__name__ == "Sweep"


def test_a_kind_that_no_package_has_is_refused() -> None:
    with pytest.raises(BadInput, match="document 'banana' does not exist; choose one of alignment, annotation, atlas"):
        kind_named("banana")
