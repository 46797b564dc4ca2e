"""Two results compared, on hand-made documents whose differences can be counted on paper."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vesalius as ves
from tests.report.explanations import frac_prevs
from tests.runs.function_runs import write_function_run
from vesalius.components import Component
from vesalius.documents import Circuit, Discovery, Explanation, Request, Sweep
from vesalius.documents.claims import ClaimRecord, ComponentExplanation
from vesalius.documents.sweep import SweepRow
from vesalius.errors import BadInput

#: Two layers of two heads.
SHAPE = SimpleNamespace(n_layers=2, n_heads=2, parallel=False)


def _claim(text: str, verdict: str) -> ClaimRecord:
    return ClaimRecord.model_validate({"kind": "necessary", "text": text, "verdict": verdict, "evidence": []})


def _part(name: str, tag: str, claims: list[ClaimRecord]) -> ComponentExplanation:
    return ComponentExplanation.model_validate(
        {"id": name, "tag": tag, "tag_by_experiment": tag, "note": "", "verdict": "supported", "claims": claims}
    )


def _explanation(parts: list[ComponentExplanation], **more: Any) -> Explanation:
    fields: dict[str, Any] = {"information_flow": "", "task_description": "", "seconds": 1.0, "seed": 0, **more}
    return Explanation(specimen="toy", scientist="builtin", components=parts, **fields)


A = [
    _part("L0H0", "ROUTER", [_claim("one", "supported"), _claim("two", "refuted")]),
    _part("L1_MLP", "MAPPER", [_claim("three", "untested")]),
]
B = [
    _part("L0H0", "ROUTER", [_claim("one", "supported"), _claim("two", "supported"), _claim("new", "refuted")]),
    _part("L1_MLP", "COMBINER", [_claim("three", "untested")]),
    _part("L2H1", "ROUTER", []),
]


def test_claims_and_components_of_explanations() -> None:
    asked = Request(command="explain", specimen="toy", seed=0, versions={})
    other = Request(command="explain", specimen="toy", seed=7, method="hyve", versions={})
    difference = ves.diff(_explanation(A, request=asked), _explanation(B, request=other))
    assert [(one.component, one.text, one.a, one.b) for one in difference.claims_flipped] == [
        ("L0H0", "two", "refuted", "supported")
    ]
    assert [(one.text, one.a, one.b) for one in difference.claims_only] == [("new", None, "refuted")]
    assert difference.claims_same == 2
    moved = [(one.component, one.what, one.a, one.b) for one in difference.components_moved]
    assert moved == [("L1_MLP", "tag", "MAPPER", "COMBINER"), ("L2H1", "explained", None, "ROUTER")]
    assert difference.components_same == 1
    assert difference.asked == {"seed": (0, 7), "method": (None, "hyve")}
    supported = difference.metrics["claims supported"]
    assert (supported.a, supported.b, supported.difference) == (1, 2, 1)


def test_an_explanation_does_not_differ_from_itself() -> None:
    same = frac_prevs()
    difference = ves.diff(same, same)
    assert not difference.claims_flipped
    assert not difference.claims_only
    assert not difference.components_moved
    assert difference.components_same == 2


def _sweep(rows: dict[str, tuple[float, float, float]]) -> Sweep:
    return Sweep(
        request=Request(command="sweep", specimen="toy", versions={}),
        unit="accuracy",
        baseline=1.0,
        baseline_low=0.9,
        baseline_high=1.0,
        components=[SweepRow(id=name, effect=e, ci_low=low, ci_high=high) for name, (e, low, high) in rows.items()],
        forwards=1.0,
        seconds=1.0,
    )


def test_effects_move_where_their_intervals_are_apart() -> None:
    first = _sweep({"L0H0": (0.5, 0.4, 0.6), "L0H1": (0.1, 0.0, 0.2), "L1H0": (0.3, 0.2, 0.4)})
    second = _sweep({"L0H0": (0.55, 0.5, 0.7), "L0H1": (0.9, 0.8, 1.0), "L1H1": (0.2, 0.1, 0.3)})
    difference = ves.diff(first, second)
    moved = [(one.component, one.what, one.a, one.b) for one in difference.components_moved]
    assert moved == [("L0H1", "effect", 0.1, 0.9), ("L1H0", "swept", 0.3, None), ("L1H1", "swept", None, 0.2)]
    assert difference.components_same == 1
    assert difference.metrics["baseline"].apart is False


def _discovery(scores: dict[str, float]) -> Discovery:
    parts = {Component.parse(name): score for name, score in scores.items()}
    circuit = Circuit.scored(SHAPE, 4, parts, {})
    asked = Request(command="discover", specimen="toy", versions={})
    return Discovery(request=asked, circuit=circuit, forwards=1.0, seconds=1.0)


def test_members_of_one_circuit_alone_have_moved() -> None:
    first = _discovery({"L0H0": 3.0, "L0H1": 2.0, "L1H0": 0.0, "L1H1": 0.0})
    second = _discovery({"L0H0": 3.0, "L0H1": 0.5, "L1H0": -2.5, "L1H1": 0.1})
    difference = ves.diff(first, second)
    assert [(one.component, one.a, one.b) for one in difference.components_moved] == [
        ("L0H1", "yes", "no"),
        ("L1H0", "no", "yes"),
    ]
    assert difference.components_same == 1


def test_two_seeds_on_the_command_line(tmp_path: Path) -> None:
    for seed in (0, 1):
        ves.explain("frac_prevs", ["L0_MLP"], seed=seed, out=tmp_path / str(seed))
    difference = ves.diff(tmp_path / "0", tmp_path / "1" / "explanation.json", out=tmp_path / "diff")
    assert difference.asked == {"seed": (0, 1)}
    assert difference.claims_same > 0
    assert (tmp_path / "diff" / "difference.json").is_file()


def test_bad_inputs_name_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such result"):
        ves.diff(tmp_path / "none", tmp_path / "none")
    with pytest.raises(BadInput, match="holds nothing that can be compared"):
        ves.diff(tmp_path, tmp_path)
    (tmp_path / "other.json").write_text("[1, 2]")
    with pytest.raises(BadInput, match=r"other\.json"):
        ves.diff(tmp_path / "other.json", tmp_path / "other.json")
    with pytest.raises(BadInput, match=r"an explanation and .* a sweep; give two of the same kind"):
        ves.diff(_explanation(A), _sweep({"L0H0": (0.5, 0.4, 0.6)}))


def test_two_runs_of_functions(tmp_path: Path) -> None:
    """f00000 is right in both, f00001 in the second alone, and f00002 is graded in the first alone."""
    for name in ("a", "b"):
        write_function_run(tmp_path / name)
    grade = tmp_path / "b" / "grades" / "f00001.json"
    grade.write_text(json.dumps({**json.loads(grade.read_text()), "metrics": {"success": 1.0}}))
    (tmp_path / "b" / "grades" / "f00002.json").unlink()
    difference = ves.diff(tmp_path / "a", tmp_path / "b")
    moved = [(one.component, one.what, one.a, one.b) for one in difference.components_moved]
    assert moved == [("f00001", "success", 0.0, 1.0)]
    assert (difference.components_same, difference.asked) == (1, {})
    assert difference.notes == ("1 functions are graded in one run alone; they are left out",)
    grade.write_text(json.dumps({**json.loads(grade.read_text()), "picture": {"examples": [5]}}))
    with pytest.raises(BadInput, match=r"f00001.json: picture: examples is not a list of examples"):
        ves.diff(tmp_path / "a", tmp_path / "b")
