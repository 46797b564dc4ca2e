"""Plain functions as methods and metrics: called as documented, refused in one line before the work."""

from typing import Any

import pytest
import torch
from torch import Tensor

import vesalius as ves
from vesalius.discovery.discover import discover, method_named
from vesalius.discovery.method import Scores
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("frac_prevs")


def write_norm(specimen: Specimen, prompts: Any) -> dict[str, float]:
    """The norm of what each component writes: one pass."""
    batch = prompts.batch
    cache = specimen.model.run_with_cache(batch.tokens, mask=batch.mask)[1]
    return {str(part): float(cache.component(part).norm(dim=-1).mean()) for part in specimen.model.components}


def test_a_function_of_two_arguments_that_returns_a_dict(specimen: Specimen) -> None:
    found = ves.discover(specimen, write_norm, n=8, checks=False)
    assert found.method == "write_norm"
    result = discover(specimen, write_norm, n=8)
    expected = write_norm(specimen, result.material)
    assert {str(part): score for part, score in result.scores.components.items()} == pytest.approx(expected)  # type: ignore[union-attr]
    assert result.scores is not None
    assert result.scores.forwards == pytest.approx(1.0)  # counted, not claimed


def test_edges_tensors_and_a_seed(specimen: Specimen) -> None:
    seeds = []

    def by_edge(specimen: Specimen, prompts: Any, seed: int) -> dict[Any, Any]:
        seeds.append(seed)
        return {
            "m0->a1.h2<k>": torch.tensor(0.5),
            ves.Edge.parse("m0->a1.h2<q>"): -2.0,
            "L1H2": 3,
            "a0.h0": 1,
            "L0H0->m0": 9,
        }

    scores = discover(specimen, by_edge, n=4, seed=7).scores
    assert seeds == [7]
    assert scores is not None
    edges = {"m0->a1.h2<k>": 0.5, "m0->a1.h2<q>": -2.0, "a0.h0->m0": 9.0}
    assert {str(edge): value for edge, value in scores.edges.items()} == edges
    components = {"L1H2": 3.0, "L0H0": 1.0, "L0_MLP": 2.0}  # a score of its own counts, whatever name it has
    assert {str(part): value for part, value in scores.components.items()} == components


def test_scores_are_returned_as_they_are(specimen: Specimen) -> None:
    def own(specimen: Specimen, prompts: Any, *, seed: int = 0) -> Scores:
        return Scores({specimen.model.components[0]: 1.0}, {}, 5.0, "points")

    result = discover(specimen, own, n=4)
    assert (result.unit, result.forwards) == ("points", 5.0)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (lambda specimen: {}, r"takes \(specimen\), and is called as <lambda>\(specimen, prompts\)"),
        (lambda a, b, c: {}, "give it those parameters"),
        (lambda a, b: None, "returned a NoneType instead of a dict"),
        (lambda a, b: {"L9H9": 1.0}, "which the model does not have"),
        (lambda a, b: {"nothing": 1.0}, "is not a name"),
        (lambda a, b: {"L0H0": "much"}, "give one number"),
        (lambda a, b: {"L0H0": torch.ones(2)}, "give one number"),
        (lambda a, b: {"L0H0": float("nan")}, "not a finite number"),
        (lambda a, b: {"L0H0": 10**400}, "give one number"),
        (lambda a, b: {"L0H0": 10**5000}, "give one number"),
        (lambda a, b: {"L0H0": torch.tensor(1j)}, "give one number"),
        (lambda a, b: {"L0H0": 1.0, "a0.h0": 2.0}, "scored L0H0 twice, under two names; give one score"),
        (lambda a, b: {"m0->logits": 1.0, "L0_MLP->logits": 2.0}, "twice, under two names"),
        (lambda a, b: {}, "scored no component"),
    ],
)
def test_what_is_no_method_is_refused_in_one_line(specimen: Specimen, method: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        discover(specimen, method, n=2)


def test_a_signature_is_refused_before_the_model_runs() -> None:
    with pytest.raises(BadInput, match="is called as"):
        method_named(lambda specimen: {})


@pytest.mark.parametrize("metric", [lambda logits: logits, lambda logits, answers: logits, lambda a, b, c, d: a])
def test_a_metric_of_the_wrong_arity_is_refused_before_the_work(metric: Any) -> None:
    with pytest.raises(BadInput, match=r"is called as <lambda>\(logits, answers, wrongs\)"):
        ves.load("arithmetic", behaviour="addition:signs=-+,high=99,shots=0", metric=metric)


def test_a_metric_may_say_yes_or_no_or_count() -> None:
    """Accuracy, the first metric that people write, is a bool for each row."""

    def right(logits: Tensor, answers: Tensor, wrongs: Tensor) -> Tensor:
        return logits.argmax(-1) == answers[:, 0]

    def counted(logits: Tensor, answers: Tensor, wrongs: Tensor) -> Tensor:
        return right(logits, answers, wrongs).long()

    graded = ves.load("arithmetic", behaviour="addition:signs=-+,high=99,shots=0", metric=right)
    with pytest.raises(BadInput, match="metric right has no slope in the logits, which this follows; take the method"):
        ves.discover(graded, n=8)
    whole = ves.discover(graded, "sweep", n=16, keep=0.5, most=16).whole
    assert whole is not None
    assert whole.found
    assert whole.edges  # all inside: none can be ranked

    def complex_numbers(logits: Tensor, answers: Tensor, wrongs: Tensor) -> Tensor:
        return logits[:, 0] + 0j

    behaviour = "addition:signs=-+,high=99,shots=0"
    plain = ves.load("arithmetic", behaviour=behaviour)
    asked = ves.what_if(plain, "L1_MLP", kind="zero", n=6)
    unchanged = [float(not row.changed) for row in asked.rows]
    for metric in (right, counted):
        effects = ves.sweep(
            ves.load("arithmetic", behaviour=behaviour, metric=metric), components="L1_MLP", kind="zero", n=6
        )
        assert effects.baseline.tolist() == [1.0] * 6
        assert effects.matrix[:, 0].tolist() == [1 - one for one in unchanged]
    with pytest.raises(BadInput, match="metric complex_numbers returned complex numbers"):
        ves.sweep(ves.load("arithmetic", behaviour=behaviour, metric=complex_numbers), n=2)


def test_a_metric_with_further_defaults_is_taken() -> None:
    def lead(logits: Tensor, answers: Tensor, wrongs: Tensor, scale: float = 2.0) -> Tensor:
        return scale * (logits.gather(1, answers)[:, 0] - logits.gather(1, wrongs)[:, 0])

    own = ves.load("arithmetic", behaviour="addition:signs=-+,high=99,shots=0", metric=lead)
    usual = ves.load("arithmetic", behaviour="addition:signs=-+,high=99,shots=0")
    effects = [ves.sweep(one, components="L1_MLP", kind="zero", n=3).mean for one in (own, usual)]
    assert torch.allclose(effects[0], 2 * effects[1], rtol=1e-4)
