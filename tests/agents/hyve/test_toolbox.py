"""The helper functions: right on a circuit whose program is known, and hard to misuse."""

from typing import Any

import pytest
import torch

from vesalius.api import load
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import CircuitLab
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius_session.scope import build, handed_over, helpers
from vesalius_session.subject import Subject


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return load("frac_prevs")


@pytest.fixture(scope="module")
def tools(specimen: Specimen) -> dict[str, Any]:
    assert isinstance(specimen.vocabulary, FiniteVocabulary)
    with torch.no_grad():
        return helpers(Subject(specimen.model, specimen.vocabulary))


def share(tokens: list[str]) -> list[float]:
    return [tokens[: i + 1].count("x") / (i + 1) for i in range(len(tokens))]


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def test_results_have_the_shape_of_the_inputs(specimen: Specimen, tools: dict[str, Any]) -> None:
    inputs = [["x", "a", "b"], ["c"]]
    assert tools["predict"](inputs) == [pytest.approx([1, 0.5, 1 / 3], abs=0.05), pytest.approx([0], abs=0.05)]
    assert [tuple(rows.shape) for rows in tools["writes"]("L0_MLP", inputs)] == [(3, 12), (1, 12)]
    found = tools["attention"]("L1H2", inputs)
    assert [tuple(one["to_tokens"].shape) for one in found] == [(3, 3), (1, 1)]
    for one in found:
        assert torch.allclose(one["to_tokens"].sum(1) + one["to_bos"], torch.ones(len(one["to_bos"])), atol=1e-5)


def test_writes_do_not_depend_on_the_company_of_longer_inputs(tools: dict[str, Any]) -> None:
    alone = tools["writes"]("L1H2", [["x", "c"]])[0]
    together = tools["writes"]("L1H2", [["x", "c"], ["a", "b", "c", "x"]])[0]
    assert torch.allclose(alone, together, atol=1e-5)


def test_patching_one_position_is_as_if_the_token_were_another(tools: dict[str, Any]) -> None:
    found = tools["patch"]("L0_MLP", ["a", "x", "b"], ["a", "c", "b"], at=[1])
    assert found["patched"] == pytest.approx([0, 0, 0], abs=0.05)
    assert found["changed_at"] == [1, 2]
    assert found["effect"] == pytest.approx(1, abs=0.05)
    moved = tools["patch"]("L0_MLP", ["a", "b", "c"], ["x"], at=[2], source_at=[0])
    assert moved["patched"] == pytest.approx([0, 0, 1 / 3], abs=0.05)


def test_interchange_agrees_with_the_engine(specimen: Specimen, tools: dict[str, Any]) -> None:
    """The laboratory's own interchange is an independent implementation."""
    lab = CircuitLab(specimen, n=64)
    bases, sources = lab.inputs
    theirs = lab.whole_interchange(Component.parse("L0_MLP"))
    ours = tools["interchange"]("L0_MLP", bases, sources)["patched"]
    for base, source, row, values in zip(bases, sources, ours, theirs.tolist(), strict=True):
        if len(source) >= len(base):
            assert row == pytest.approx(values[: len(base)], abs=0.01)


def test_interchange_holds_a_prediction_against_the_model(specimen: Specimen, tools: dict[str, Any]) -> None:
    inputs = specimen.sample(60, 3)
    right = lambda base, source: share([*source, *base[len(source) :]][: len(base)])  # noqa: E731
    found = tools["interchange"]("L0_MLP", inputs[:30], inputs[30:], right)
    assert found["accuracy_where_changed"] == 1.0
    wrong = tools["interchange"]("L0_MLP", inputs[:30], inputs[30:], lambda base, source: share(base))
    assert wrong["accuracy_where_changed"] < 0.5
    assert wrong["wrong"]


def test_ablations_change_what_matters(specimen: Specimen, tools: dict[str, Any]) -> None:
    inputs = specimen.sample(60, 3)
    for how in ("zero", "mean", "resample"):
        assert tools["ablate"]("L1H2", inputs, how=how)["share_changed"] > 0.2
        assert tools["ablate"]("L0H1", inputs, how=how)["share_changed"] < 0.05


def test_profiles_and_groups(specimen: Specimen, tools: dict[str, Any]) -> None:
    inputs = specimen.sample(60, 3)
    profile = tools["attention_profile"]("L1H2", inputs)
    assert profile["unevenness"] < 0.1
    groups = tools["compare_writes"]("L0_MLP", inputs, by=lambda tokens, i: tokens[i] == "x")
    assert set(groups["groups"]) == {"True", "False"}
    assert sum(group["n"] for group in groups["groups"].values()) == sum(map(len, inputs))
    assert groups["groups"]["True"]["nearest"] == "False"
    by_token = tools["compare_writes"]("L0_MLP", inputs, by="token")
    assert groups["share_of_variance"] <= by_token["share_of_variance"] <= 1
    everything = tools["compare_writes"]("L0_MLP", inputs, by=lambda tokens, i: 0)
    assert everything["share_of_variance"] == pytest.approx(0, abs=1e-3)
    assert everything["groups"]["0"]["nearest"] is None


def test_the_variable_that_a_component_carries_comes_first(specimen: Specimen, tools: dict[str, Any]) -> None:
    """frac_prevs: L0_MLP carries whether the token is x; the token holds more than that."""
    candidates = {
        "position": lambda tokens, i: i,
        "token": lambda tokens, i: tokens[i],
        "is x": lambda tokens, i: tokens[i] == "x",
        "constant": lambda tokens, i: 0,
    }
    found = tools["which_variable"]("L0_MLP", candidates, specimen.sample(64, 5))
    assert found[0]["variable"] == "is x"
    scores = {one["variable"]: one for one in found}
    assert scores["is x"]["changed_when_different"] > 0.95 > 0.8 > scores["token"]["changed_when_different"]
    assert scores["is x"]["unchanged_when_equal"] > 0.8 > scores["position"]["unchanged_when_equal"]
    assert (scores["constant"]["n_different"], scores["constant"]["separation"]) == (0, None)
    moves = {one["n_equal"] + one["n_different"] for one in found}
    assert moves == {8 * 64}, "all candidates are scored on the same moves"


@pytest.mark.parametrize(
    ("call", "mend"),
    [
        (lambda t: t["predict"](torch.zeros(2, 3)), "do not tokenize first"),
        (lambda t: t["predict"](["a", "b"]), "a LIST of token lists"),
        (lambda t: t["predict"]([["BOS", "a"]]), "contains BOS; leave it out"),
        (lambda t: t["predict"]([["q"]]), "not in this specimen's vocabulary"),
        (lambda t: t["predict"]([["a"] * 9]), "takes 1 to 4"),
        (lambda t: t["attention"]("L0_MLP", [["a"]]), "name a head"),
        (lambda t: t["writes"]("L7H0", [["a"]]), "L7H0 is not in this model"),
        (lambda t: t["writes"](0, [["a"]]), "a name such as"),
        (lambda t: t["compare_writes"]("L0_MLP", [["a"]], by="mood"), "token, position"),
        (lambda t: t["ablate"]("L0_MLP", [["a"]], how="noise"), "zero, mean, resample"),
        (lambda t: t["ablate"]("L0_MLP", [["a"]], how="resample"), "at least two inputs"),
        (lambda t: t["which_variable"]("L0_MLP", ["token"], [["a"]]), "an object of names and functions"),
        (lambda t: t["patch"]("L0_MLP", ["a"], ["x"], at=[1]), "positions 0 to 0; BOS has none"),
        (lambda t: t["patch"]("L0_MLP", ["a", "b"], ["x"], at=[1]), "give source_at"),
        (lambda t: t["patch"]("L0_MLP", [["a"]], ["x"]), "ONE token list"),
        (lambda t: t["interchange"]("L0_MLP", [["a"]], [["a"], ["b"]]), "one source per base"),
        (lambda t: t["interchange"]("L0_MLP", [["a"]], [["b"]], lambda b, s: []), "one per token"),
    ],
)
def test_misuse_is_told_what_to_do(tools: dict[str, Any], call: Any, mend: str) -> None:
    with pytest.raises(BadInput, match=mend):
        call(tools)


def test_the_scope_has_what_the_prompt_promises(specimen: Specimen, tmp_path: Any) -> None:
    names = build(handed_over(specimen, tmp_path))
    assert {"model", "tokenize", "decode", "vocab", "examples", "inputs", "max_len", "torch", "np"} <= set(names)
    logits = names["model"](names["tokenize"]([["x", "a"]]))
    assert names["decode"](logits)[0] == pytest.approx([1.0, 0.5], abs=0.05)
    assert len(names["inputs"]) == 256
