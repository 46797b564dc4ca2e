"""The tasks `discovery`, `functions` and `natural`: scored as our own commands score the same answer."""

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai")

from tests.inspection.evaluating import evaluated, figures, said_to_the_model, samples, scripted, values
from vesalius import api
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius_agents.cases import chosen_circuits, grade_natural
from vesalius_agents.inspection import discovery, functions, natural
from vesalius_agents.inspection.discovery_task import FIGURES as AREAS
from vesalius_agents.inspection.function_task import FIGURES
from vesalius_bench.discovery.benchmark import DiscoverySettings
from vesalius_bench.discovery.cases import run_case
from vesalius_functions.suite import Suite, in_words
from vesalius_truth import key
from vesalius_truth.grading.discovery import median_and_mean
from vesalius_truth.key.other_keys import established_roles

PAIR = ["L0H0", "L0H3"]


def test_discovery_by_a_method_as_the_bench_has_it(tmp_path: Path) -> None:
    """The work of the bench on each circuit, and its median over them."""
    log = evaluated(discovery(method="eap", ids="8,3", n=8), tmp_path)
    settings = DiscoverySettings(tuple(chosen_circuits(None, ["8", "3"], None)), ("eap",), 8, 0)
    bench = {case.id: run_case(case) for case in settings.cases}
    for sample in samples(log):
        own = bench[str(sample.id)]
        assert values(sample) == pytest.approx({name: getattr(own, name) for name in AREAS})
    for name in AREAS:
        summed = median_and_mean([getattr(bench[str(sample.id)], name) for sample in samples(log)])
        assert summed is not None
        ours = {end: figures(log, f"vesalius/median_{end}")[name] for end in ("value", "low", "high")}
        assert ours == pytest.approx({end: getattr(summed[0], end) for end in ours})


def test_an_agent_finds_a_circuit_and_is_not_told_which_it_is(tmp_path: Path) -> None:
    model = scripted(
        ("sweep", {"n": 4}),
        ("submit_circuit", {"scores": {"L0_MLP": "much"}}),
        ("submit_circuit", {"scores": {"L5H0": 1.0}}),
        ("submit_circuit", {"scores": {"L0_MLP": 1.0}, "edges": {"input->m0": 1.0, "m0->logits": 1.0, "m0->m1": 0.1}}),
    )
    (sample,) = samples(evaluated(discovery(ids=8, agent=True, n=8), tmp_path, model=model))
    assert values(sample)["node_auroc"] == 1.0
    assert values(sample)["edge_auroc"] == 1.0  # of the three edges that were scored
    shown = said_to_the_model(sample)
    components = api.load("8").model.components
    assert ", ".join(map(str, components)) in shown  # all of the model's, not the one of the key
    assert key.task("8").name not in shown


def test_nothing_found_is_no_better_than_chance(tmp_path: Path) -> None:
    log = evaluated(discovery(ids=8, agent=True, n=8), tmp_path, model=scripted(), message_limit=4)
    (sample,) = samples(log)
    assert values(sample)["node_auroc"] == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("category", ["numeric", "strings"])
def test_functions_by_the_builtin_interpreter_as_the_bench_has_them(category: str, tmp_path: Path) -> None:
    task = functions(category=category, count=2, grading_seed=5, queries=300)
    log = evaluated(task, tmp_path / "logs")
    options: dict[str, Any] = {"count": 2, "grading_seed": 5, "budget": 300, "jobs": 1, "progress": False}
    card = api.bench_functions(category=category, out=tmp_path / "run", **options)
    assert len(samples(log)) == card.n == 2
    for name in FIGURES[category]:
        if name not in card.metrics:  # it applies to no function of these
            assert figures(log, "mean")[name] != figures(log, "mean")[name]
            continue
        bench = card.metrics[name]
        ours = {end: figures(log, f"vesalius/over_functions_{end}")[name] for end in ("value", "low", "high")}
        assert ours == pytest.approx({"value": bench.value, "low": bench.low, "high": bench.high}, abs=1e-6), name


@pytest.mark.parametrize("category", ["numeric", "entities", "relations"])
def test_an_agent_asks_a_function_and_says_what_it_does(category: str, tmp_path: Path) -> None:
    """The oracle's answer, said by an agent, earns what the oracle earns by its code; the truth is told to nobody."""
    suite = Suite(category, count=1)
    (function,) = suite.functions()
    oracle = suite.module.oracle(function)
    given = 1.5 if category == "numeric" else "Paris"
    model = scripted(
        ("query_function", {"inputs": [given, given]}),
        ("query_function", {"inputs": [[1]]}),
        ("query_function", {"inputs": [given] * 9}),
        ("submit_function", {"description": oracle.description, "code": oracle.code, "domain": oracle.domain}),
    )
    task = functions(category=category, count=1, agent=True, queries=5, grading_seed=5)
    (sample,) = samples(evaluated(task, tmp_path, model=model))
    replies = [m.error.message if m.error else m.text for m in sample.messages if m.role == "tool"]
    assert replies[0].count("f(") == 2
    assert "nothing was asked" in replies[1]
    assert "9 inputs asked, 3 of the budget of 5 left" in replies[2]
    graded = suite.module.grade(
        function, oracle.model_copy(update={"structure": {}}), sandbox=_sandbox(), seed=5
    ).metrics
    own = values(sample)
    assert own.pop("queries") == 2
    for name, value in own.items():
        if name in graded and graded[name] is not None:
            assert value == pytest.approx(graded[name]), name
    before = [message.model_dump_json() for message in sample.messages[:-2]]
    assert not [message for message in before if in_words(function.truth()) in message]


def _sandbox() -> Any:
    from vesalius_functions.bench.work import _sandbox

    return _sandbox(False)


def test_a_function_that_nobody_describes_is_wrong(tmp_path: Path) -> None:
    task = functions(count=1, agent=True, grading_seed=5)
    (sample,) = samples(evaluated(task, tmp_path, model=scripted(), message_limit=4))
    assert values(sample)["success"] == 0.0


def test_a_natural_model_by_the_builtin_scientist(tmp_path: Path) -> None:
    (sample,) = samples(evaluated(natural(components=PAIR, n=16), tmp_path))
    kept = Explanation.model_validate(sample.store["vesalius:answer"])
    assert [part.id for part in kept.components] == PAIR
    graded = grade_natural(kept, "arithmetic", seed=1)
    supported = sum(claim.verdict == "supported" for part in kept.components for claim in part.claims)
    claims = sum(len(part.claims) for part in kept.components)
    assert values(sample)["claims_supported"] == pytest.approx(supported / claims)
    # Where the key decides none of the claims, the figure is none here and not a number in inspect's log.
    figures = {name: math.nan if one.value is None else one.value for name, one in graded.metrics.items()}
    assert values(sample) == pytest.approx(figures, nan_ok=True)


def test_an_agent_on_a_natural_model(tmp_path: Path) -> None:
    """Three claims: one that can be read and holds, one that cannot be read, one that is false by the roles."""
    model = scripted(
        ("predict", {"inputs": ["35 - 7 + 11 ="]}),
        ("lens", {"prompt": "35 - 7 + 11 =", "components": ["L2_MLP"]}),
        ("check_claim", {"component": "L0H3", "claim": {"kind": "moves_role", "role": "operand B"}}),
        ("check_claim", {"component": "L0H3", "claim": {"kind": "moves_role", "role": "operand D"}}),
        ("check_claim", {"component": "L0H3", "claim": {"kind": "moves_role", "role": "operand A"}}),
        (
            "submit_explanation",
            {"components": {"L0H3": "Moves B."}, "information_flow": "B to =", "task_description": "A - B + C"},
        ),
    )
    (sample,) = samples(evaluated(natural(components=PAIR, n=8, agent=True), tmp_path, model=model))
    said = [m.error.message if m.error else m.text for m in sample.messages if m.role == "tool"]
    assert '"39"' in said[0]
    assert "operand D" in said[3]
    kept = Explanation.model_validate(sample.store["vesalius:answer"])
    part = next(one for one in kept.components if one.id == "L0H3")
    assert (part.verdict, part.note) == ("refuted", "Moves B. (Tentative: no hypothesis was supported.)")
    assert len(part.claims) + len(part.refuted) == 2
    assert values(sample)["false_support"] in (0.0, 1.0) or values(sample)["false_support"] != values(sample)
    roles = established_roles()["components"]
    assert roles["L0H3"]["note"] not in said_to_the_model(sample)


@pytest.mark.slow
def test_an_agent_gives_its_explanation_as_data(tmp_path: Path) -> None:
    """A claim of the kind `runs` that cannot be read, and one that is false: A - B has no place at B's token."""
    data = {"kind": "runs", "algorithm": "arithmetic", "variables": {"difference": "resid1@B"}}
    model = scripted(
        ("check_claim", {"component": "L0H3", "claim": {**data, "variables": {"sum": "resid1@B"}}}),
        ("check_claim", {"component": "L0H3", "claim": data}),
        ("submit_explanation", {"components": {}, "information_flow": "-", "task_description": "A - B + C"}),
    )
    (sample,) = samples(evaluated(natural(components=PAIR, n=8, agent=True), tmp_path, model=model))
    said = [m.error.message if m.error else m.text for m in sample.messages if m.role == "tool"]
    assert "'sum' is not in the algorithm" in said[0]
    assert "refuted: Run in the model's place, the explanation holds: 1 variable." in said[1]
    kept = Explanation.model_validate(sample.store["vesalius:answer"])
    assert kept.proposed is not None
    assert [(one.variable, one.at.verdict) for one in kept.proposed.found] == [("difference", "no")]
    assert not any(claim.kind == "runs" for part in kept.components for claim in part.claims)


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (discovery, {"method": "guess"}, "guess"),
        (discovery, {"n": 1}, "`n` 1"),
        (functions, {"category": "colours"}, "colours"),
        (functions, {"queries": 0}, "queries 0"),
        (functions, {"interpreter": "aia", "category": "numeric", "count": 0}, "count 0"),
        (functions, {"grading_seed": -1, "count": 1}, "grading seed -1"),
        (natural, {"n": 0}, "n 0"),
        (natural, {"scientist": "nobody"}, "nobody"),
    ],
)
def test_bad_parameters_are_refused_in_one_line(make: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        make(**options)
    assert "\n" not in str(refused.value)
