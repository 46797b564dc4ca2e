"""The checks together: a specimen, a hand-made natural model, and what each says where it cannot be made."""

import json
from dataclasses import replace

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.closeness import assert_same_document
from tests.explanations.induction_model import as_specimen, induction_model
from tests.models import small_config
from vesalius.behaviours.trial import Trial, rows_of, trial
from vesalius.components import all_components
from vesalius.discovery import checks as checks_module
from vesalius.discovery.checks import circuit_size, run_checks
from vesalius.discovery.discover import discover
from vesalius.discovery.faithfulness import faithfulness_curves
from vesalius.documents.checks import Checks, Drop, Specificity
from vesalius.documents.circuit import Circuit
from vesalius.documents.view import Sheet
from vesalius.errors import BadInput


def test_the_checks_of_a_known_circuit() -> None:
    """Two of ten components carry everything: the curve is 0, 0 or more, then 1 from size 2 on."""
    specimen = ves.load("frac_prevs")
    checks = run_checks(specimen, discover(specimen, "eap-ig", n=8))
    assert checks.size == 2
    assert checks.faithfulness is not None
    assert checks.faithfulness_random is not None
    assert checks.faithfulness.faithfulness[2:] == (1.0,) * 9
    assert checks.metrics["cmd"] <= 0.15 + 1e-9 < checks.faithfulness_random.cmd
    assert checks.metrics["jaccard"] == 1.0
    assert checks.metrics["edge_cmd"] < 0.2
    assert "one task of its own" in checks.missing["specificity"]
    assert "specificity" not in checks.metrics
    data = json.loads(json.dumps(checks.as_data(), allow_nan=False))
    assert data["stability"]["resamples"] >= 100
    assert data["known_heads"] is None


@pytest.mark.slow
def test_acdc_is_resampled_on_its_own_prompts() -> None:
    """By hand: pruned anew on resamples of the very prompts it was given."""
    specimen = ves.load("frac_prevs")
    material = trial(specimen, 4, seed=7)
    found = discover(specimen, "acdc", material=material)
    checks = run_checks(specimen, found, n=4)
    expected, forwards = found.method.stability(specimen, found, checks.size)
    assert checks.stability == expected
    assert checks.stability.resamples == 100
    assert checks.metrics["jaccard"] > 0.5
    assert checks.rows >= forwards * 4


@pytest.mark.parametrize("name", ["frac_prevs", "hist"])
def test_checks_are_made_on_inputs_that_the_discovery_has_not_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    specimen = ves.load(name)
    found = discover(specimen, n=32)
    checked: list[Trial] = []

    def noted(model, material, rankings, **options):
        checked.append(material)
        return faithfulness_curves(model, material, rankings, **options)

    monkeypatch.setattr(checks_module, "faithfulness_curves", noted)
    checks = run_checks(specimen, found)
    assert (checks.n, checks.asked) == (12, 12)
    assert rows_of(found.material) == rows_of(trial(specimen, 32))
    assert len(checked) == 1
    assert rows_of(checked[0]).isdisjoint(rows_of(found.material))


@pytest.mark.slow
def test_a_small_vocabulary_says_how_many_prompts_were_left() -> None:
    """Of 340 inputs the discovery sees all but a few when it is given 1,200 prompts."""
    specimen = ves.load("frac_prevs")
    found = discover(specimen, n=1200)
    left = 340 - len(rows_of(found.material))
    assert 2 <= left < 60
    checks = run_checks(specimen, found, n=60)
    assert (checks.n, checks.asked) == (left, 60)
    assert checks.faithfulness is not None
    assert checks.faithfulness.n == left
    assert checks.as_data()["n"] == left
    nothing = run_checks(specimen, replace(found, material=trial(specimen, 6000)))
    assert nothing.n == 0
    assert "0 unseen inputs are left" in nothing.missing["faithfulness"]
    assert not {"cmd", "cpr"} & set(nothing.metrics)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sweep", "eap-ig"])
def test_a_natural_model_that_does_induction_with_two_heads(method: str) -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    checks = run_checks(specimen, discover(specimen, method, n=6), n=6)
    assert checks.size == 2
    assert checks.detectors is not None
    assert checks.detectors.share == 1.0
    assert checks.detectors.p == pytest.approx(1 / 28)  # two of eight heads, both flagged
    assert checks.specificity is not None
    assert checks.specificity.own.drop is not None
    assert checks.specificity.own.drop > 0.9
    assert checks.rows > 6
    steps: list[str] = []
    again = run_checks(
        specimen, discover(specimen, method, n=6), n=6, progress=lambda step, done, total: steps.append(step)
    )
    assert_same_document(again.metrics, checks.metrics)
    assert steps[:3] == ["checking faithfulness", "checking edge faithfulness", "checking stability"]


def test_sizes() -> None:
    specimen = ves.load("frac_prevs")
    found = discover(specimen, n=4)
    assert circuit_size(found.circuit) == len(found.circuit.chosen()) == 2
    many = Circuit.scored(
        small_config(n_layers=6), 12, dict.fromkeys(all_components(small_config(n_layers=6)), 1.0), {}
    )
    assert circuit_size(many) == 10
    with pytest.raises(BadInput, match="11 components does not fit"):
        run_checks(specimen, found, size=11)
    with pytest.raises(BadInput, match="0 components does not fit"):
        run_checks(specimen, found, size=0)


def test_what_specificity_compares_stands_in_the_columns_of_figures() -> None:
    """Where the others lose nothing there is no ratio; the drops themselves still are figures with a control."""
    own = Drop(clean=2.0, drop=0.5, low=0.4, high=0.6, random=0.1, n=16)
    drops = {"heads": ("L0H0",), "own": own, "others": {"ioi": own.model_copy(update={"drop": 0.25})}, "text": None}

    def rows(others_mean: float, ratio: float | None) -> list[tuple[object, ...]]:
        found = Specificity(**drops, others_mean=others_mean, ratio=ratio)
        view = Checks(size=1, n=16, asked=16, specificity=found, seconds=0.0).view()
        return [tuple(row[:5]) for one in view.sections if isinstance(one, Sheet) for row in one.rows[:2]][:2]

    assert rows(0.25, 2.0) == [("drop", 0.5, 0.4, 0.6, 0.25), ("specificity", 2.0, None, None, 1.0)]
    assert rows(-0.1, None)[0] == ("drop", 0.5, 0.4, 0.6, -0.1)
    assert "specificity" not in [row[0] for row in rows(-0.1, None)]
