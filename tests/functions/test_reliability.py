"""How reliably a language model behind functions follows them, on models whose faults are known."""

import json
import math
from pathlib import Path

import pytest

from tests.functions.needs import needs_facts, needs_vectors
from vesalius import api
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput, Failed
from vesalius_functions import relations
from vesalius_functions.documents import RELIABILITY_FILE, Reliability, Selectivity
from vesalius_functions.entities.functions import all_concepts
from vesalius_functions.suite import Suite

#: Answers 0.9 for words of the concept it is asked about and 0.2 for others, apart from words with an e.
KNOWS_WORDS = """
import math, pathlib, re
LISTED = {name: words.split() for name, words in (line.split(";") for line in pathlib.Path(__file__).with_name(
    "words.txt").read_text().splitlines())}

def reply(request):
    concept, word = re.search(r"related to (.*?), 0 if.*Input: (.*)", request.messages[-1].text, re.DOTALL).groups()
    share = 0.9 if word in LISTED[concept] and "e" not in word else 0.2
    options = [["1", math.log(share)], ["0", math.log(1 - share)]]
    return {"text": "1" if share > 0.5 else "0", "logprobs": [{"token": "1", "options": options}]}
"""
#: Knows every fact of one table by its member and no exception.
KNOWS_FACTS = """
import json, pathlib
FACTS = json.loads(pathlib.Path(__file__).with_name("facts.json").read_text())

def reply(request):
    return FACTS.get(request.messages[-1].text.rsplit("Input: ", 1)[1], "undefined")
"""


@pytest.fixture
def word_model(tmp_path: Path) -> str:
    lines = [f"{one.concept.name};{' '.join(one.tests)}" for one in all_concepts()]
    (tmp_path / "words.txt").write_text("\n".join(lines))
    (tmp_path / "words.py").write_text(KNOWS_WORDS)
    return f"scripted:{tmp_path / 'words.py'}"


@needs_vectors
def test_the_table_of_a_model_whose_faults_are_known(word_model: str, tmp_path: Path) -> None:
    study = api.function_reliability(
        "entities", backbone=word_model, count=3, seed=5, matrix=True, out=tmp_path / "study", progress=False
    )
    listed = {one.concept.name: one.tests for one in all_concepts()}
    singles = [one for one in Suite("entities", 5, 3).functions() if one.family == "concept"]
    assert len(study.functions) == len(singles) == 2
    for row in study.functions:
        known = sum("e" not in word for word in listed[row.name])
        assert row.own == pytest.approx((0.9 * known + 0.2 * (10 - known)) / 10, abs=1e-6)
        assert row.random == pytest.approx(0.2)
        assert row.rate.value == pytest.approx((known + 10) / 20)
        assert (row.rate.n, row.n_error) == (20, 0)
    assert study.categories["entities"].backbone == "scripted:words.py"
    selectivity = study.selectivity
    assert selectivity is not None
    assert [row[i] for i, row in enumerate(selectivity.means)] == [row.own for row in study.functions]
    assert study.usage is not None
    assert study.usage.calls == 2 * 20  # words of the matrix are those of the table: nothing is asked twice
    again = api.function_reliability(
        "entities", backbone=word_model, count=3, seed=5, matrix=True, out=tmp_path / "study", progress=False
    )
    assert again.usage == study.usage  # a second study asks nothing
    assert Reliability.read(tmp_path / "study" / RELIABILITY_FILE).functions == again.functions


@needs_facts
def test_facts_and_exceptions_are_counted_apart(tmp_path: Path) -> None:
    functions = relations.sample(3, seed=4)  # one relation, once as it is and twice with an exception
    assert functions[0].relation is not None
    (tmp_path / "facts.json").write_text(json.dumps(functions[0].relation.values))
    (tmp_path / "facts.py").write_text(KNOWS_FACTS)
    study = api.function_reliability(
        "relations", backbone=f"scripted:{tmp_path / 'facts.py'}", count=3, seed=4, out=tmp_path / "out", progress=False
    )
    assert [row.rate.value for row in study.functions] == [1.0, 0.8, 0.8]  # 2 of 10 inputs are of the exception
    metrics = study.categories["relations"].metrics
    assert {name: metric.value for name, metric in metrics.items()} == pytest.approx(
        {"rate": 2.6 / 3, "facts": 1.0, "undefined": 0.0, "rate_relation": 1.0, "rate_exception": 0.8}, abs=1e-6
    )


@needs_facts
def test_tables_agree_with_themselves(tmp_path: Path) -> None:
    study = api.function_reliability("relations", count=6, out=tmp_path, progress=False)
    assert {row.rate.value for row in study.functions} == {1.0}
    assert "by construction" in study.caveats[0]
    assert study.usage is None


def test_softmax_of_a_row() -> None:
    matrix = Selectivity(entities=("a", "b"), means=((1.0, 0.0), (0.5, None)), diagonal_largest=Metric.of_share(1, 2))
    assert matrix.softmax()[0] == pytest.approx([math.e / (math.e + 1), 1 / (math.e + 1)])


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(BadInput, match="reliability is of entities and relations"):
        api.function_reliability("numeric")
    with pytest.raises(BadInput, match="`matrix`: is of entities"):
        api.function_reliability("relations", matrix=True)
    with pytest.raises(BadInput, match="offers no log-probabilities"):
        Suite("entities", function_backbone="anthropic:claude-x")
    with pytest.raises(BadInput, match="numeric functions are code"):
        Suite("numeric", function_backbone="scripted:x.py")


@needs_facts
def test_a_function_of_a_model_is_listed_before_the_model_is_open() -> None:
    (function,) = Suite("relations", count=1, function_backbone="scripted:/somewhere/x.py").functions()
    assert function.truth()["backbone"] == "scripted:x.py"
    with pytest.raises(Failed, match="is not open"):
        function.replies(["France"])
