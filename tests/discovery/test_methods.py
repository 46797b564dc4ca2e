"""The methods on specimens: a known circuit is found, the same twice, and broken models are refused."""

import pytest
import torch

import vesalius as ves
from vesalius.behaviours.trial import Trial, trial
from vesalius.discovery.attribution import EAPIG, contrast
from vesalius.discovery.discover import CORE_NAMES, discover, method_named
from vesalius.discovery.method import MethodResult
from vesalius.errors import BadInput
from vesalius.intervene import Recordings, all_logits

#: Methods that train for seconds.
TRAINED = ("masks", "edge-masks")


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=pytest.mark.slow if name in TRAINED else ()) for name in CORE_NAMES]
)
def test_a_known_circuit_comes_first(method: str) -> None:
    specimen = ves.load("frac_prevs")
    found = discover(specimen, method, n=8)
    first = {part for part, _ in found.circuit.ranked()[: len(specimen.components)]}
    assert first == set(specimen.components)
    assert bool(found.circuit.edges) == (method not in ("sweep", "masks", "ensemble", "elimination"))
    assert found.forwards > 1
    assert discover(specimen, method, n=8).circuit == found.circuit


@pytest.mark.slow
def test_eap_ig_averages_as_many_gradients_as_asked_for() -> None:
    specimen = ves.load("frac_prevs")

    def scored(method: str, steps: int | None = None) -> MethodResult:
        return discover(specimen, method_named(method, steps=steps), n=4)

    usual, one, three = (scored("eap-ig", steps) for steps in (None, 1, 3))
    # The gradient at the clean prompt alone is that of EAP; each further one is a forward and a backward pass.
    assert one.circuit == scored("eap").circuit
    assert (three.forwards - one.forwards, usual.forwards - one.forwards) == (2 * 3, (5 - 1) * 3)
    assert three.circuit not in (one.circuit, usual.circuit)
    assert discover(specimen, EAPIG(steps=3), n=4).circuit == three.circuit
    with pytest.raises(BadInput, match="`steps` -1 is out of range; give at least 1"):
        scored("eap-ig", -1)
    with pytest.raises(BadInput, match="`steps` cannot be given with `method` relp, which has no options"):
        scored("relp", 3)
    with pytest.raises(BadInput, match="`seeds` cannot be given with `method` eap-ig, whose options are `steps`"):
        method_named("eap-ig", seeds=2)
    with pytest.raises(BadInput, match=r"give EAPIG\(steps=...\)"):
        method_named(EAPIG(), steps=2)


@pytest.mark.parametrize(("method", "nonzero"), [("sweep", 2), ("eap", 10)])
def test_stability_of_a_known_circuit(method: str, nonzero: int) -> None:
    specimen = ves.load("frac_prevs")
    found = discover(specimen, method, n=32)
    assert found.per_prompt is not None
    stable = found.stability(len(specimen.components))
    assert (stable.value, stable.items) == (1.0, len(specimen.model.components))
    assert stable.chance < 0.2
    assert sum(found.stability(5).inclusion) == pytest.approx(min(5, nonzero))


def test_the_contrast_falls_by_one_when_everything_is_switched() -> None:
    specimen = ves.load("frac_prevs")
    drawn = trial(specimen, 64, seed=0).batch
    # Counterfactuals as long as the prompts, so that the switched run is the counterfactual's own.
    lengths = (drawn.tokens != specimen.model.config.pad_token).sum(1)
    longest = drawn.take((lengths == lengths.max()).nonzero()[:, 0])
    half = len(longest) // 2
    assert half > 1
    batch, other = longest.take(slice(0, half)), longest.take(slice(half, 2 * half))
    readout = contrast(specimen.model, Trial(batch, other, all_logits()))
    clean = Recordings(specimen.model, batch, readout).scores()
    switched = Recordings(specimen.model, other, readout).scores()
    assert float((clean - switched).mean()) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.slow
def test_refusals() -> None:
    specimen = ves.load("frac_prevs")
    with pytest.raises(
        BadInput,
        match="method 'magic' does not exist; choose one of sweep, best, eap, eap-ig, relp, relp-qk, gim, masks",
    ):
        discover(specimen, "magic")
    with pytest.raises(BadInput, match=r"use `vesalius sets` or ves\.discover_sets"):
        discover(specimen, "sets")
    for n in (0, -1, 10**12):
        with pytest.raises(BadInput, match=f"{n} prompts is not possible; request 1 to 100,000"):
            discover(specimen, n=n)
    for seed in (-1, 2**64):
        with pytest.raises(BadInput, match=f"seed {seed} cannot be used"):
            discover(specimen, seed=seed)
    with torch.no_grad():
        specimen.model.blocks[0].mlp.W_out[0, 0] = float("nan")
    for method in CORE_NAMES:
        with pytest.raises(BadInput, match="not finite"):
            discover(specimen, method, n=4)
