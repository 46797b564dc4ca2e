"""The checks together: a specimen, a hand-made natural model, and what each says where it cannot be made."""

import json

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explain.induction_model import as_specimen, induction_model
from tests.models import small_config
from vesalius.behaviours.trial import trial
from vesalius.discovery.circuit import Circuit
from vesalius.discovery.methods import discover
from vesalius.discovery.trust import circuit_size, examine
from vesalius.errors import BadInput
from vesalius.model.components import all_components


def test_a_known_circuit_can_be_trusted() -> None:
    """Two of ten components carry everything: the curve is 0, 0 or more, then 1 from size 2 on."""
    specimen = ves.load("frac_prevs")
    trust = examine(specimen, discover(specimen, "eap-ig", n=8))
    assert trust.size == 2
    assert trust.curve is not None
    assert trust.random_curve is not None
    assert trust.curve.faithfulness[2:] == (1.0,) * 9
    assert trust.metrics["cmd"] <= 0.15 + 1e-9 < trust.random_curve.cmd
    assert trust.metrics["jaccard"] == 1.0
    assert trust.metrics["edge_cmd"] < 0.2
    assert "one task of its own" in trust.missing["specificity"]
    assert "specificity" not in trust.metrics
    data = json.loads(json.dumps(trust.as_data(), allow_nan=False))
    assert data["stability"]["resamples"] >= 100
    assert data["known_heads"] is None


def test_acdc_is_resampled_on_its_own_prompts() -> None:
    specimen = ves.load("frac_prevs")
    material = trial(specimen, 4)
    found = discover(specimen, "acdc", material=material)
    trust = examine(specimen, found, n=4, material=material)
    assert trust.metrics["jaccard"] > 0.5
    assert trust.stability is not None
    assert trust.stability.resamples == 100
    without = examine(specimen, found, n=4)
    assert "no means over prompts" in without.missing["stability"]
    assert "jaccard" not in without.metrics
    assert without.rows < trust.rows


@pytest.mark.parametrize("method", ["sweep", "eap-ig"])
def test_a_natural_model_that_does_induction_with_two_heads(method: str) -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    trust = examine(specimen, discover(specimen, method, n=6), n=6)
    assert trust.size == 2
    assert trust.detectors is not None
    assert trust.detectors.share == 1.0
    assert trust.detectors.p == pytest.approx(1 / 28)  # two of eight heads, both flagged
    assert trust.specificity is not None
    assert trust.specificity.own.drop is not None
    assert trust.specificity.own.drop > 0.9
    assert trust.rows > 6
    steps: list[str] = []
    again = examine(
        specimen, discover(specimen, method, n=6), n=6, progress=lambda step, done, total: steps.append(step)
    )
    assert again.metrics == trust.metrics
    assert steps[:3] == ["faithfulness", "edge faithfulness", "stability"]


def test_sizes() -> None:
    specimen = ves.load("frac_prevs")
    found = discover(specimen, n=4)
    assert circuit_size(found.circuit) == len(found.circuit.chosen()) == 2
    many = Circuit.scored(
        small_config(n_layers=6), 12, dict.fromkeys(all_components(small_config(n_layers=6)), 1.0), {}
    )
    assert circuit_size(many) == 10
    with pytest.raises(BadInput, match="11 components does not fit"):
        examine(specimen, found, size=11)
