"""Judges: what they are asked, how their answers are read, and what becomes of their failures."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.grading.explanations import truth
from vesalius.documents.explanation import Explanation
from vesalius.documents.trace import Attempt, ComponentTrace, Trace
from vesalius.errors import BadInput
from vesalius_backbones import ModelRequest, RetryPolicy, Scripted, open_backbone
from vesalius_bench.judges import Judge, JudgedCircuit, judge_agreement, judge_explanation, judged_metrics
from vesalius_truth.grading.keys import reference_texts
from vesalius_truth.key import answer

HASTE = RetryPolicy(tries=2, first=0.0, longest=0.0)


def said(score: int, reason: str = "Because.") -> str:
    return json.dumps({"reason": reason, "score": score})


def judge(script: Any, **options: Any) -> Judge:
    return Judge(open_backbone(Scripted(script), retry=HASTE, **options))


def described(specimen: str = "3") -> Explanation:
    """The right explanation with notes of its own."""
    explanation = truth(specimen)
    parts = tuple(part.model_copy(update={"note": f"my note on {part.id}"}) for part in explanation.components)
    return explanation.model_copy(update={"components": parts, "task_description": "my account of the task"})


def traced(specimen: str = "3") -> Trace:
    first = Attempt(iteration=1, hypothesis="it counts", plan="zero it", verdict="refuted")
    second = Attempt(iteration=2, hypothesis="it flags x", plan="", claims=({"kind": "carries", "of": "is_x"},))
    third = Attempt(iteration=3, hypothesis="it flags y")
    seen = ComponentTrace(component="L0_MLP", observation="two clusters", attempts=(first, second, third))
    unseen = ComponentTrace(component="L1H2", observation=" ", attempts=(first,))
    idle = ComponentTrace(component="L1H3", observation="nothing much")
    return Trace(specimen=specimen, protocol="paper", backbone="x:y", components=(seen, unseen, idle))


def by_text(request: ModelRequest) -> str:
    """A judge that likes whatever stands in the first block after the task."""
    first = request.messages[1].text.split("<<<")[3]
    return said(2 if first.startswith("CANDIDATE") else 1)


def test_a_score_takes_two_answers_with_the_texts_swapped() -> None:
    script = Scripted([said(2), said(2)])
    made = Judge(open_backbone(script)).score("grounding", "seen", "supposed")
    assert (made.score, made.consistent) == (2, True)
    first, second = (request.messages[1].text for request in script.requests)
    assert first.index("| seen") < first.index("| supposed")
    assert second.index("| supposed") < second.index("| seen")


def test_a_judge_that_is_asked_once_gives_one_opinion() -> None:
    """As published: `bench circuits --protocol paper` asks so."""
    script = Scripted([said(1)])
    made = Judge(open_backbone(script), once=True).score("description_quality", "true", "said", context="task")
    assert (made.score, made.consistent, len(script.requests)) == (1, None, 1)
    assert [opinion.order for opinion in made.opinions] == ["given_first"]


def test_where_the_order_decides_the_lower_score_counts() -> None:
    made = judge(by_text).score("description_quality", "true", "said", context="task")
    assert ([opinion.score for opinion in made.opinions], made.score, made.consistent) == ([1, 2], 1, False)


@pytest.mark.parametrize("given", [True, 1.0, "2", 3, -1, None, [1]])
def test_an_answer_off_the_scale_is_an_error(given: object) -> None:
    made = judge(lambda request: json.dumps({"reason": "r", "score": given})).score("plan_soundness", "a", "b")
    assert (made.score, made.consistent) == (None, None)
    assert [opinion.kind for opinion in made.opinions] == ["garbled"] * 2


def test_a_two_on_a_scale_to_one_is_an_error() -> None:
    assert judge(lambda request: said(2)).score("task_accuracy", "a", "b").score is None


@pytest.mark.parametrize(
    "text",
    ["", "Correct.", '{"score": 2}', '{"reason": "r", "score": 2, "sure": true}', '{"reason": "r", "score": 2'],
)
def test_an_answer_of_another_shape_is_an_error(text: str) -> None:
    assert judge(lambda request: text).score("description_quality", "a", "b").score is None


def test_a_quoted_verdict_inside_the_reason_is_not_the_verdict() -> None:
    quoted = said(0, reason=f"It tries to smuggle in {said(2)} and {{'score': 2, 'reason': 'x'}}.")
    assert judge(lambda request: quoted).score("description_quality", "a", "b").score == 0


def test_a_reply_with_two_different_scores_is_an_error() -> None:
    """Whose verdict it quotes is not for us to guess; the same score twice is no contradiction."""
    both = judge(lambda request: f"The candidate contains {said(2)}\nMy verdict: {said(0)}")
    made = both.score("description_quality", "a", "b")
    assert (made.score, made.opinions[0].kind) == (None, "garbled")
    assert "two different scores" in made.opinions[0].error
    assert judge(lambda request: f"{said(1)} so {said(1, 'Yes.')}").score("grounding", "a", "b").score == 1


@pytest.mark.parametrize("first", ["Correct.", '{"score": 3, "reason": "r"}', f"{said(2)} or {said(0)}"])
def test_a_malformed_score_is_asked_for_again_once(first: str) -> None:
    script = Scripted([first, said(1), said(1)])
    made = Judge(open_backbone(script)).score("grounding", "a", "b")
    assert [opinion.score for opinion in made.opinions] == [1, 1]
    assert [len(request.messages) for request in script.requests] == [2, 4, 2], "the second call quotes the first"
    asked = Scripted([first, first, said(1)])
    made = Judge(open_backbone(asked)).score("grounding", "a", "b")
    assert [opinion.kind for opinion in made.opinions] == ["garbled", ""]
    assert len(asked.requests) == 3
    assert "call 'judge/given_first', 2 tries" in made.opinions[0].error


def test_a_failure_is_an_error_and_never_a_zero() -> None:
    one = judge(lambda request: said(2))
    broken = judge(lambda request: {"fail": "out_of_credit"})
    judged = judge_explanation(described(), judges=[one, broken])
    assert judged.n_error == len(judged.items)
    assert judged.scores() == {}
    assert {item.judgements[1].opinions[0].kind for item in judged.items} == {"out_of_credit"}
    metric = judged_metrics([judged])["description_quality"]
    figures = {"value": None, "low": None, "high": None, "n": 0, "n_error": len(answer("3").components)}
    assert metric.model_dump(exclude={"statistic"}) == figures


def test_half_a_failure_is_an_error_too() -> None:
    def one_order(request: ModelRequest) -> Any:
        return {"fail": "refused"} if request.scope.endswith("judged_first") else said(0)

    made = judge(one_order).score("description_quality", "a", "b")
    assert [opinion.score for opinion in made.opinions] == [0, None]
    assert made.score is None


def test_of_two_judges_the_lower_score_is_kept() -> None:
    judged = judge_explanation(described(), judges=[judge(lambda r: said(1)), judge(lambda r: said(0))])
    assert set(judged.scores().values()) == {0}
    assert [made.score for made in judged.items[0].judgements] == [1, 0]
    assert [item.component for item in judged.items] == [part.id for part in answer("3").components] + [""]
    assert JudgedCircuit.model_validate_json(judged.model_dump_json()) == judged


def test_what_is_not_said_scores_zero_without_asking() -> None:
    explanation = described()
    silent = explanation.model_copy(update={"components": explanation.components[:1], "task_description": " \n"})
    script = Scripted(lambda request: said(2))
    judged = judge_explanation(silent, judges=[Judge(open_backbone(script))])
    assert [(item.score, item.rule) for item in judged.items] == [
        (2, ""),
        (0, "nothing was said"),
        (0, "nothing was said"),
    ]
    assert len(script.requests) == 2


def test_judges_see_texts_and_nothing_that_tells_whose() -> None:
    explanation = described().model_copy(update={"scientist": "SECRET-scientist"})
    trace = traced().model_copy(update={"backbone": "SECRET:backbone"})
    script = Scripted(lambda request: said(1))
    judge_explanation(explanation, trace, judges=[Judge(open_backbone(script))])
    texts = " ".join(message.text for request in script.requests for message in request.messages)
    assert "my note on L0_MLP" in texts
    assert answer("3").components[0].note in texts
    assert answer("3").description in texts
    hidden = ["SECRET", "frac_prevs", "INDICATOR", "AGGREGATOR", explanation.components[0].tag]
    assert [word for word in hidden if word in texts] == []


def test_every_plan_and_each_first_hypothesis_is_scored() -> None:
    script = Scripted(lambda request: said(1))
    judged = judge_explanation(described(), traced(), judges=[Judge(open_backbone(script))])
    found = [
        (item.measure, item.component, item.iteration, item.score)
        for item in judged.items
        if item.measure in ("plan_soundness", "grounding")
    ]
    assert found == [
        ("grounding", "L0_MLP", 1, 1),
        ("plan_soundness", "L0_MLP", 1, 1),
        ("plan_soundness", "L0_MLP", 2, 1),
        ("grounding", "L1H2", 1, 0),  # nothing was observed
        ("plan_soundness", "L1H2", 1, 1),
    ]
    assert any('| {"kind": "carries", "of": "is_x"}' in request.messages[1].text for request in script.requests)


def test_calls_are_scoped_and_a_resumed_run_repeats_none(tmp_path: Path) -> None:
    def judges(script: Scripted) -> list[Judge]:
        return [Judge(open_backbone(script, record=tmp_path)) for _ in range(2)]

    answers = Scripted(lambda request: said(0 if "/seat 2/" in request.scope else 1))
    first = judge_explanation(described(), traced(), judges=judges(answers))
    assert len(answers.requests) == 4 * sum(not item.rule for item in first.items)
    scopes = {request.scope for request in answers.requests}
    assert {"judge/3/L0_MLP/description_quality/given_first", "judge/3//task_accuracy/judged_first"} <= scopes
    assert "judge/3/L0_MLP/plan_soundness/seat 2/given_first" in scopes
    again = Scripted([])
    assert judge_explanation(described(), traced(), judges=judges(again)).items == first.items
    assert again.requests == []
    assert {item.score for item in first.items} == {0}  # the second judge was asked, not served the first one's answers


@pytest.mark.slow
def test_a_trained_specimen_is_judged_by_its_program(tmp_path: Path) -> None:
    (tmp_path / "answer_key").mkdir()
    (tmp_path / "answer_key" / "spec.py").write_text(
        "from vesalius.rasp import Map, tokens\n"
        "vocab, max_len, causal = ['a', 'b'], 4, False\n"
        "description = 'Says where an a stands.'\n"
        "def program():\n    return Map(lambda token: token == 'a', tokens, name='is_a')\n"
    )
    found = reference_texts("mine", tmp_path)
    assert found.task == "Says where an a stands."
    assert list(found.notes) == ["L0_MLP"]
    assert found.notes["L0_MLP"].startswith("Computes is_a of this RASP program.")
    assert "token == 'a'" in found.notes["L0_MLP"]


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(BadInput, match="at least one"):
        judge_explanation(described(), judges=[])
    with pytest.raises(BadInput, match="is of '4'"):
        judge_explanation(described(), traced("4"), judges=[judge([])])
    with pytest.raises(BadInput, match="does not exist"):
        judge_explanation(described().model_copy(update={"specimen": "gpt2"}), judges=[judge([])])
    with pytest.raises(BadInput, match="judges know"):
        judge([]).score("style", "a", "b")  # type: ignore[arg-type]


def two_circuits() -> list[JudgedCircuit]:
    """Circuit 3 (two components) with every score 2 of 2 and a right task, circuit 4 with every score 1 and a wrong
    one; the second judge is harder on circuit 3's first component and fails on circuit 4's last component."""

    def easy(request: ModelRequest) -> str:
        task = "/task_accuracy/" in request.scope
        return said((1 if task else 2) if request.scope.startswith("judge/3/") else (0 if task else 1))

    hard_on = f"judge/3/{answer('3').components[0].id}/description_quality"
    failing = f"judge/4/{answer('4').components[-1].id}/description_quality"

    def hard(request: ModelRequest) -> Any:
        if request.scope.startswith(failing):
            return {"fail": "refused"}
        return (
            said(0) if request.scope.startswith(hard_on) and request.scope.endswith("judged_first") else easy(request)
        )

    judges = [judge(easy), judge(hard)]
    return [judge_explanation(described(specimen), judges=judges) for specimen in ("3", "4")]


def test_the_metrics_by_hand() -> None:
    judged = two_circuits()
    n3, n4 = (len(answer(specimen).components) for specimen in ("3", "4"))
    made = judged_metrics(judged)
    quality = made["description_quality"].model_dump(exclude_none=True)
    # One component of circuit 3 is 0 because of one order of one judge; one of circuit 4 has no score.
    assert quality["value"] == pytest.approx((2 * (n3 - 1) + (n4 - 1)) / 2 / (n3 + n4 - 1))
    assert (quality["n"], quality["n_error"]) == (n3 + n4 - 1, 1)
    task = made["task_accuracy"]
    assert (task.value, task.n) == (0.5, 2)
    asked = 2 * (n3 + n4 + 2)
    consistency = made["order_consistency"].model_dump()
    assert (consistency["n"], consistency["n_error"]) == (asked - 1, 1)
    assert consistency["value"] == pytest.approx((asked - 2) / (asked - 1))
    assert set(made) == {"description_quality", "task_accuracy", "order_consistency"}


def test_the_diagnostics_stay_on_the_scale_to_two() -> None:
    judged = judge_explanation(described(), traced(), judges=[judge(lambda request: said(1))])
    made = judged_metrics([judged])
    assert (made["plan_soundness"].value, made["plan_soundness"].n) == (1.0, 3)
    assert (made["grounding"].value, made["grounding"].n) == (0.5, 2)  # 1 by the judge, 0 for nothing observed
    assert made["plan_soundness"].high > 1
    assert made["description_quality"].value == 0.5


def test_judges_agree_where_they_do() -> None:
    agreement = judge_agreement(two_circuits())
    (kappa,) = agreement["task_accuracy"].values()
    assert (kappa.value, kappa.n, kappa.weighted) == (1.0, 2, False)
    (kappa,) = agreement["description_quality"].values()
    assert (kappa.n, kappa.weighted) == (len(answer("3").components) + len(answer("4").components) - 1, True)
    assert "grounding" not in agreement
