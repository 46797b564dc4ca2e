"""From a discovered circuit to the components explained."""

import pytest

import vesalius as ves
from vesalius.components import Component
from vesalius.documents.circuit import Circuit
from vesalius.errors import BadInput
from vesalius.explanations import either
from vesalius.explanations.circuits import explained_components


def test_a_discovery_a_circuit_and_names() -> None:
    specimen = ves.load("frac_prevs")
    found = ves.discover(specimen, n=8)
    own = list(specimen.components)
    assert explained_components(specimen, found) == own
    assert explained_components(specimen, found.circuit) == own
    assert explained_components(specimen, ["L0H0"]) == ["L0H0"]
    assert explained_components(specimen, None) is None


def test_explain_takes_what_discover_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(either, "explain_either", lambda specimen, components, **options: asked.append(components))
    specimen = ves.load("frac_prevs")
    ves.explain(specimen, ves.discover(specimen, n=8))
    ves.explain(specimen, ["L0_MLP"])
    assert asked == [list(specimen.components), ["L0_MLP"]]


def test_refusals() -> None:
    specimen = ves.load("frac_prevs")
    config = specimen.model.config
    scores = dict.fromkeys(specimen.model.components, 1.0)
    with pytest.raises(BadInput, match="2 layers, 4 heads and d_model 13, the specimen has 2 layers, 4 heads and"):
        explained_components(specimen, Circuit.scored(config, 13, scores, {}))
    empty = Circuit.scored(config, config.d_model, {Component(0): 0.0}, {})
    with pytest.raises(BadInput, match=r"mine\.json: no head or MLP is in the graph"):
        explained_components(specimen, empty, source="mine.json")
