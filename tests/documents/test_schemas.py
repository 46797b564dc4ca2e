"""JSON Schema of the documents: files satisfy it, damaged ones do not, and the reference page is made from it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.documents.test_golden import FILES, GOLDEN
from vesalius.documents import Circuit, Discovery, Request, Scorecard
from vesalius.documents.kinds import kind_named, schema, schema_names
from vesalius.documents.reference import reference
from vesalius.errors import BadInput

jsonschema = pytest.importorskip("jsonschema")
NAMES = {kind_named(name): name for name in schema_names()}


def as_file(name: str) -> dict[str, Any]:
    """A golden file in the current schema."""
    return json.loads(json.dumps(FILES[name].read(GOLDEN / name).as_data()))


@pytest.mark.parametrize("name", schema_names())
def test_a_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))
    assert schema(name)["title"] == kind_named(name).__name__


@pytest.mark.parametrize("name", FILES)
def test_files_satisfy_their_schema(name: str) -> None:
    validator = jsonschema.Draft202012Validator(schema(NAMES[FILES[name]]))
    data = as_file(name)
    assert list(validator.iter_errors(data)) == []
    assert list(validator.iter_errors({**data, "banana": 1}))
    for field in schema(NAMES[FILES[name]])["required"]:
        assert list(validator.iter_errors({key: value for key, value in data.items() if key != field})), field


def test_a_circuit_satisfies_its_schema() -> None:
    validator = jsonschema.Draft202012Validator(schema("circuit"))
    data = Circuit.read(GOLDEN / "discovery" / "circuit.json").as_data()
    assert list(validator.iter_errors(data)) == []
    assert list(validator.iter_errors({**data, "nodes": {"m0": {"score": 1.0}}}))


def test_a_discovery_without_edges_and_checks_satisfies_its_schema() -> None:
    whole = Discovery.read(GOLDEN / "discovery" / "discovery.json")
    circuit = whole.circuit.model_copy(update={"edges": {}})
    data = whole.model_copy(update={"circuit": circuit, "checks": None, "directory": None}).as_data()
    assert {"edges", "n_edges", "checks_forwards"}.isdisjoint(data)
    assert list(jsonschema.Draft202012Validator(schema("discovery")).iter_errors(json.loads(json.dumps(data)))) == []


def test_a_request_satisfies_its_schema() -> None:
    asked = Request(command="discover", specimen="3", options={"n": 8, "ids": ["3"], "paper": True}, seed=0)
    assert list(jsonschema.Draft202012Validator(schema("request")).iter_errors(asked.model_dump(mode="json"))) == []


def test_the_contract_of_a_scorecard_is_in_its_schema() -> None:
    required = {"benchmark", "subject", "n", "n_error", "metrics", "cost", "seconds"}
    assert required <= set(schema("scorecard")["required"])
    assert "schema" in schema("scorecard")["properties"]
    assert "schema" in Scorecard.read(GOLDEN / "scorecard_circuits.json").as_data()
    assert schema("scorecard")["$defs"]["Metric"]["required"] == ["value", "low", "high", "n"]


def test_an_unknown_document_is_refused() -> None:
    with pytest.raises(
        BadInput, match="document 'banana' does not exist; choose one of alignment, annotation, atlas, circuit"
    ):
        schema("banana")


def test_the_reference_page_is_current() -> None:
    """`python -m vesalius.documents.reference > docs/reference/documents.md` makes it again."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "documents.md"
    assert page.read_text(encoding="utf-8") == reference()
