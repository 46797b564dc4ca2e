"""Methods that build on others: mean places by hand, elimination against plain ablations, options behind a name."""

import pytest
import torch

import vesalius as ves
from vesalius.behaviours.trial import trial
from vesalius.discovery.combining import Elimination, Ensemble, in_what_is_left
from vesalius.discovery.discover import discover, method_named
from vesalius.discovery.masks import EdgeMasks, Masks
from vesalius.discovery.method import Method, MethodInput, Scores
from vesalius.errors import BadInput
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.masking import masked_scores
from vesalius.intervene.values import activations


class _First(Method):
    name = "test-first"

    def score(self, given: MethodInput) -> Scores:
        parts = given.specimen.model.components
        return Scores({part: float(len(parts) - i) for i, part in enumerate(parts)}, {}, 2.0, "")


class _Last(Method):
    name = "test-last"

    def score(self, given: MethodInput) -> Scores:
        parts = given.specimen.model.components
        order = [parts[0], *reversed(parts[1:])]
        return Scores({part: float(len(parts) - i) for i, part in enumerate(order)}, {}, 3.0, "")


def test_the_score_is_one_over_the_mean_place() -> None:
    specimen = ves.load("frac_prevs")
    scores = Ensemble(methods="test-first+test-last").score(MethodInput(specimen, trial(specimen, 4)))
    parts = specimen.model.components
    n = len(parts)
    assert scores.components[parts[0]] == 1.0  # first in both
    assert scores.components[parts[1]] == pytest.approx(1 / (1 + (1 + n - 1) / 2))  # second, and last
    assert scores.forwards == 5.0
    best = Ensemble(methods="test-first+test-last", rule="best").score(MethodInput(specimen, trial(specimen, 4)))
    assert list(best.rankings) == ["test-first", "test-last"]


def test_elimination_ends_with_the_planted_circuit() -> None:
    specimen = ves.load("frac_prevs")
    scores = Elimination(by="gradient").score(MethodInput(specimen, trial(specimen, 16)))
    best = sorted(scores.components, key=lambda part: -scores.components[part])[: len(specimen.components)]
    assert set(best) == set(specimen.components)


def test_what_is_left_is_attributed_by_the_slope_of_its_own_score() -> None:
    """Against a difference: a member a little less than kept, everything outside replaced already."""
    specimen = ves.load("arithmetic")
    model, material = specimen.model, trial(specimen, 4)
    left = list(model.components[:5]) + list(model.components[-3:])
    slopes = in_what_is_left(MethodInput(specimen, material), left, material.readout, "gradient")
    other, step = activations(model, material.counterfactual), 0.01
    for place in (0, 6):
        ends = []
        for change in (step, -step):
            mask = torch.tensor([float(part in left) for part in model.components])
            mask[model.components.index(left[place])] += change
            ends.append(masked_scores(model, material.batch, other, material.readout, mask).mean())
        assert float(slopes[place]) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=0.02, abs=0.02)


def test_rounds_take_a_share_of_what_is_left() -> None:
    assert Elimination(group=0.25).rounds(9) == [2, 1, 1, 1, 1, 1, 1]
    assert Elimination(share=0.1).begins_with(300) == 30
    assert Elimination(share=0.1).begins_with(20) == 20


@pytest.mark.slow
def test_learned_masks_of_edges_keep_the_planted_edges() -> None:
    specimen = ves.load("frac_prevs")
    scores = EdgeMasks(steps=60, edges=40).score(MethodInput(specimen, trial(specimen, 16)))
    inside = [edge for edge, score in scores.edges.items() if score]
    assert len(inside) <= 40
    strongest = sorted(scores.components, key=lambda part: -scores.components[part])[: len(specimen.components)]
    assert set(strongest) == set(specimen.components)
    graph = EdgeGraph.of(specimen.model.config)
    assert set(scores.edges) == set(graph.edges)


def test_options_are_read_behind_the_name() -> None:
    assert method_named("masks:steps=300:warm=no") == Masks(steps=300, warm=False)
    assert method_named("ensemble:methods=eap+relp").label == "ensemble:methods=eap+relp"
    with pytest.raises(BadInput, match="'step=3' is no option of masks; its options are `steps`"):
        method_named("masks:step=3")
    with pytest.raises(BadInput, match="steps='many' is not a whole number"):
        method_named("masks:steps=many")
    # No option of the command line is called so: the message names what was written.
    with pytest.raises(BadInput, match=r"method 'masks:steps=-3': steps -3, rate .* give at least 1 step"):
        method_named("masks:steps=-3")


def test_what_cannot_be_built_on_is_refused() -> None:
    for made, match in (
        (lambda: Ensemble(methods="eap"), "names one method"),
        (lambda: Ensemble(methods="eap+bandit"), "'bandit' cannot be built on"),
        (lambda: Ensemble(rule="median"), "choose rank or best"),
        (lambda: Elimination(start="ensemble"), "'ensemble' cannot be built on"),
        (lambda: Elimination(by="sweep"), "is no slope"),
        (lambda: Elimination(group=1.0), "between 0 and 1"),
        (lambda: EdgeMasks(edges=0), "at least 1"),
    ):
        with pytest.raises(BadInput, match=match):
            made()


def test_they_are_methods_like_others() -> None:
    specimen = ves.load("frac_prevs")
    found = discover(specimen, "ensemble:methods=sweep+eap", n=8)
    assert {part for part, _ in found.circuit.ranked()[:2]} == set(specimen.components)
    assert bool(torch.tensor([score for _, score in found.circuit.ranked()]).isfinite().all())
