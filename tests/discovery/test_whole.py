"""The smallest connected circuit: planted ones come out whole, paths are paths, and the sets of prompts are apart."""

import itertools

import pytest
import torch

import vesalius as ves
from vesalius.behaviours.trial import rows_of, trial
from vesalius.components import Component
from vesalius.discovery.faithfulness import scores_without
from vesalius.discovery.method import MethodInput
from vesalius.discovery.shares import Shares
from vesalius.discovery.sweep import Sweep
from vesalius.discovery.whole import (
    Search,
    least_wording,
    measured_circuit,
    prompt_sets,
    random_circuits,
    whole_circuit,
)
from vesalius.documents.metric import Metric
from vesalius.documents.whole import Wording, answer
from vesalius.intervene.edges import EdgeGraph, on_paths


@pytest.mark.parametrize("name", ["frac_prevs", "11"])
def test_a_planted_circuit_is_found_whole_and_connected(name: str) -> None:
    specimen = ves.load(name)
    rank = trial(specimen, 16)
    scores = Sweep().score(MethodInput(specimen, rank))
    search = Search(specimen, prompt_sets(specimen, rank), asked=0.95)
    whole, parts, edges = whole_circuit(search, {"sweep": (scores, scores.forwards)})
    assert set(parts) == set(specimen.components)
    assert whole.connected
    assert {edge.sender for edge in edges} - {None} == set(parts)
    assert answer(whole, name).verdict == "yes"


def test_the_share_kept_is_that_of_an_ablation_of_everything_else() -> None:
    specimen = ves.load("frac_prevs")
    material, circuit = trial(specimen, 8), specimen.components[:1]
    everything = frozenset(specimen.model.components)
    scores, _ = scores_without(
        specimen.model, material, [everything, everything - frozenset(circuit), frozenset()], kind="resample"
    )
    nothing, own, full = scores.double().mean(0).tolist()
    kept = Shares(specimen.model, material).kept([circuit])[0]
    assert kept.value == pytest.approx((own - nothing) / (full - nothing), abs=1e-6)


def test_the_three_sets_of_prompts_share_none() -> None:
    specimen = ves.load("frac_prevs")
    rank = trial(specimen, 16)
    sets = prompt_sets(specimen, rank)
    seen = [rows_of(one) for one in (sets.rank, sets.choose, sets.report)]
    batches = [{tuple(row) for row in one.batch.tokens.tolist()} for one in (sets.choose, sets.report)]
    assert not batches[0] & batches[1]
    assert not seen[0] & {row for one in seen[1:] for row in one}


def test_only_edges_between_tokens_and_logits_are_on_a_path() -> None:
    graph = EdgeGraph(2, 1)
    mask = torch.zeros_like(graph.real)

    def place(sender: Component | None, receiver: Component | None, port: str) -> tuple[int, int]:
        return graph.senders.index(sender), graph.receivers.index((receiver, port))  # type: ignore[arg-type]

    head, mlp, late = Component(0, 0), Component(0), Component(1, 0)
    good = [place(None, head, "v"), place(head, mlp, "mlp"), place(mlp, None, "logits")]
    dangling = [place(None, late, "q"), place(late, Component(1), "mlp")]  # nothing reads the last MLP
    for where in (*good, *dangling):
        mask[where] = True
    kept = on_paths(graph, mask)
    assert {tuple(where) for where in kept.nonzero().tolist()} == set(good)


def test_random_circuits_have_as_many_heads_and_mlps() -> None:
    parts = [*(Component(layer, head) for layer in range(3) for head in range(4)), *(Component(i) for i in range(3))]
    circuit = [Component(0, 0), Component(1, 2), Component(2)]
    for other in random_circuits(parts, circuit, seed=0):
        assert sorted(part.is_head for part in other) == [False, True, True]
        assert set(other) != set(circuit)


@pytest.mark.slow
def test_given_components_are_measured_and_judged_as_found_ones_are() -> None:
    specimen = ves.load("reverse")
    search = Search(specimen, prompt_sets(specimen, trial(specimen, 16)))
    everything = measured_circuit(search, specimen.model.components)
    assert everything.method == "given"
    assert everything.kept.value == pytest.approx(1.0)
    one = measured_circuit(search, specimen.components[:1])
    assert one.components == (str(specimen.components[0]),)
    judged = answer(one, "reverse")
    assert judged.verdict == "no"
    assert "given for reverse" in judged.text


#: Tells by the country which language is spoken there, and nothing else.
TELLS_LANGUAGES = (
    *("L0_MLP", "L7_MLP", "L23_MLP", "L24_MLP", "L25_MLP", "L27_MLP", "L29_MLP"),
    *("L23H0", "L23H1", "L23H4", "L23H5", "L23H7", "L29H1", "L29H2"),
)
LANGUAGES = {
    "France": "French",
    "Germany": "German",
    "Spain": "Spanish",
    "Italy": "Italian",
    "Japan": "Japanese",
    "China": "Chinese",
    "Russia": "Russian",
    "Greece": "Greek",
    "Sweden": "Swedish",
    "Poland": "Polish",
    "Turkey": "Turkish",
    "Finland": "Finnish",
}
SEXES = (
    ("actress", "actor"),
    ("queen", "king"),
    ("mother", "father"),
    ("woman", "man"),
    ("aunt", "uncle"),
    ("girl", "boy"),
)


def two_templates() -> list[dict[str, str]]:
    """Languages, of which the score has a wide range, and pronouns, of which it has a narrow one."""
    rows = list[dict[str, str]]()
    for here, there in itertools.pairwise([*LANGUAGES, "France"]):
        one, other = (f"She grew up in {country}, so her mother tongue is" for country in (here, there))
        answers = {"answer": f" {LANGUAGES[here]}", "wrong": f" {LANGUAGES[there]}"}
        rows.append({"prompt": one, "counterfactual": other, **answers})
    for pair in SEXES:
        for at, pronoun in enumerate((" she", " he")):
            one, other = (f"The {pair[place]} said that" for place in (at, 1 - at))
            rows.append({"prompt": one, "counterfactual": other, "answer": pronoun, "wrong": (" he", " she")[at]})
    return rows


def test_of_two_templates_the_one_of_which_nothing_is_kept_is_named() -> None:
    specimen = ves.load("smollm2-135m", behaviour=two_templates())
    circuit = [Component.parse(name) for name in TELLS_LANGUAGES]
    shares = Shares(specimen.model, trial(specimen, 32))
    assert shares.kept([circuit])[0].value > 0.6
    least = least_wording(specimen, shares, circuit)
    assert least is not None
    assert least.prompt.endswith("said that")
    assert least.kept.n == 4
    assert least.kept.high is not None
    assert least.kept.high < 0.4
    one_template = ves.load("smollm2-135m", behaviour=two_templates()[:12])
    assert least_wording(one_template, Shares(one_template.model, trial(one_template, 32)), circuit) is None


def test_a_circuit_that_keeps_nothing_of_one_wording_is_no_yes() -> None:
    specimen = ves.load("frac_prevs")
    search = Search(specimen, prompt_sets(specimen, trial(specimen, 16)))
    whole = measured_circuit(search, specimen.components)
    assert answer(whole, "frac_prevs").verdict == "yes"
    least = Wording(prompt="The girl said that", kept=Metric(value=0.1, low=0.0, high=0.59, n=4))
    told = answer(whole.model_copy(update={"least": least}), "frac_prevs")
    assert told.verdict == "partly"
    assert "it keeps 0.10 [0.00, 0.59] of the 4 prompts such as 'The girl said that'" in told.text
    wide = least.model_copy(update={"kept": Metric(value=0.5, low=0.1, high=0.9, n=4)})
    assert answer(whole.model_copy(update={"least": wide}), "frac_prevs").verdict == "yes"
