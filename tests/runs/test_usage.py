"""Calls, tokens, dollars and seconds by stage and component, against records written by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs.models import perform, settings
from tests.runs.test_comparison import finished
from vesalius.documents.explanation import Explanation
from vesalius.documents.trace import Trace, Usage
from vesalius.errors import BadInput
from vesalius_backbones import Redactor, TokenUsage
from vesalius_backbones.messages import Answer, CallSettings, ModelRequest, user
from vesalius_backbones.records import Outcome, Records
from vesalius_backbones.runs.usage import run_usage, stage_of
from vesalius_bench.papers.comparison import compare_runs

#: label, input, cached, output, dollars, seconds. By hand: the sums in the tests below.
CALLS: list[tuple[str, int, int, int, float | None, float | None]] = [
    ("L0H1 observation plan", 100, 0, 10, 0.5, 1.0),
    ("L0H1 observation", 200, 150, 20, 0.25, 2.0),
    ("L0H1 hypothesis 1", 300, 0, 30, 0.125, 0.5),
    ("L0H1 validation plan 1", 10, 0, 1, 0.0, 0.25),
    ("L0H1 validation 1", 400, 300, 40, 1.0, 4.0),
    ("L0_MLP observation", 50, 0, 5, 0.5, 1.0),
    ("classification", 1000, 500, 100, 2.0, 8.0),
    ("summary", 7, 0, 3, 0.0, 0.5),
]
JUDGED = ("judge/3/L0H1/description_quality/given_first", 60, 20, 6, 0.75, 3.0)


def record(path: Path, calls: list[tuple[str, int, int, int, float | None, float | None]]) -> None:
    """A file of records with these calls."""
    records = Records(path, Redactor([]), writable=True)
    for number, (label, tokens, cached, output, cost, seconds) in enumerate(calls):
        request = ModelRequest(
            provider="scripted", model="m", settings=CallSettings(), messages=(user(f"question {number}"),), label=label
        )
        usage = TokenUsage(input=tokens, output=output, cached=cached)
        records.settle(request, Outcome(answer=Answer(text="a"), usage=usage, cost=cost, seconds=seconds))


def benchmark_run(directory: Path, scientist: str = "hyve") -> Path:
    """A finished run of one circuit, whose calls are those above, judged once."""
    finished(directory, subject=scientist)
    asked = {"benchmark": "circuits", "scientist": scientist, "backbone": "scripted:m", "specimens": {"3": "x"}}
    (directory / "run.json").write_text(json.dumps({"schema": 1, "settings": asked}))
    record(directory / "calls" / "3.jsonl", CALLS)
    record(directory / "calls" / "3.judge1.jsonl", [JUDGED])
    return directory


def figures(used: Any) -> tuple[Any, ...]:
    return used.calls, used.input_tokens, used.cached_tokens, used.output_tokens, used.cost, used.seconds


def test_stages_and_components_are_summed(tmp_path: Path) -> None:
    usage = run_usage(benchmark_run(tmp_path / "run"), label="run")
    assert {stage.stage: figures(stage) for stage in usage.stages} == {
        "observe": (3, 350, 150, 35, 1.25, 4.0),
        "hypothesise": (1, 300, 0, 30, 0.125, 0.5),
        "validate": (2, 410, 300, 41, 1.0, 4.25),
        "classify": (1, 1000, 500, 100, 2.0, 8.0),
        "summarise": (1, 7, 0, 3, 0.0, 0.5),
        "judge description_quality": (1, 60, 20, 6, 0.75, 3.0),
    }
    assert usage.stages[-1].stage == "judge description_quality"
    assert {(one.case, one.component): figures(one) for one in usage.components} == {
        ("3", None): (2, 1007, 500, 103, 2.0, 8.5),
        ("3", "L0H1"): (5, 1010, 450, 101, 1.875, 7.75),
        ("3", "L0_MLP"): (1, 50, 0, 5, 0.5, 1.0),
    }
    assert figures(usage.total) == (9, 2127, 970, 215, 5.125, 20.25)
    assert usage.per_component == {
        "calls": 4.0,
        "input_tokens": 2067 / 2,
        "output_tokens": 209 / 2,
        "cached_tokens": 475.0,
        "cost": 4.375 / 2,
        "seconds": 17.25 / 2,
    }


def test_hybrid_proposes_and_names(tmp_path: Path) -> None:
    usage = run_usage(benchmark_run(tmp_path / "run", "hybrid"))
    assert {stage.stage: figures(stage) for stage in usage.stages} == {
        "propose": (6, 1060, 450, 106, 2.375, 8.75),
        "name": (2, 1007, 500, 103, 2.0, 8.5),
        "judge description_quality": (1, 60, 20, 6, 0.75, 3.0),
    }


def test_what_one_call_does_not_say_no_sum_says(tmp_path: Path) -> None:
    """Records of before have no seconds; a model without a price has no cost."""
    run = benchmark_run(tmp_path / "run")
    record(run / "calls" / "4.jsonl", [("L1H0 observation", 5, 0, 1, None, None)])
    usage = run_usage(run)
    observe = next(stage for stage in usage.stages if stage.stage == "observe")
    assert figures(observe) == (4, 355, 150, 36, None, None)
    assert figures(usage.total)[-2:] == (None, None)
    classify = next(stage for stage in usage.stages if stage.stage == "classify")
    assert figures(classify)[-2:] == (2.0, 8.0)


def explanation_in(directory: Path, usage: Usage | None = None, scientist: str = "hyve") -> Path:
    directory.mkdir()
    Explanation(
        specimen="3",
        scientist=scientist,
        components=(),
        information_flow="",
        task_description="",
        seconds=1.0,
        seed=0,
    ).write(directory / "explanation.json")
    if usage is not None:
        trace = Trace(specimen="3", protocol="typed", backbone="scripted:m", components=(), usage=usage)
        trace.write(directory / "trace.json")
    return directory


def test_explanations_beside_runs(tmp_path: Path) -> None:
    recorded = explanation_in(tmp_path / "recorded", Usage())
    record(recorded / "calls.jsonl", CALLS)
    elsewhere = explanation_in(tmp_path / "elsewhere", Usage(calls=3, input_tokens=9, cached_tokens=4, cost=None))
    builtin = explanation_in(tmp_path / "builtin", scientist="builtin")
    run = benchmark_run(tmp_path / "run")
    comparison = compare_runs([recorded, elsewhere, builtin, run])
    assert [table.id for table in comparison][:1] == ["Table 2"]
    assert len(comparison) == 6
    usage = {one.run: one for one in comparison.usage}
    assert usage["recorded"].components == tuple(usage["run"].components)
    assert figures(usage["recorded"].total) == (8, 2067, 950, 209, 4.375, 17.25)
    assert [(one.stage, *figures(one)) for one in usage["elsewhere"].stages] == [("all stages", 3, 9, 4, 0, None, None)]
    assert (usage["builtin"].stages, usage["builtin"].total.calls) == ((), 0)
    assert len(compare_runs([builtin])) == 0
    assert len(repr(comparison)) < 500
    data = comparison.as_data()
    assert [one["run"] for one in data["usage"]] == ["recorded", "elsewhere", "builtin", "run"]
    json.dumps(data, allow_nan=False)
    assert {row["run"] for row in comparison.view().sheet().records()} == {"recorded", "elsewhere", "run"}
    with pytest.raises(BadInput, match="no run there"):
        run_usage(tmp_path / "nowhere")


def test_the_stages_of_a_run_sum_to_its_scorecard(tmp_path: Path) -> None:
    perform(tmp_path / "run", settings(tmp_path, cases=2, judges=2))
    card = json.loads((tmp_path / "run" / "scorecard.json").read_text())
    usage = run_usage(tmp_path / "run")
    judges = [stage for stage in usage.stages if stage.stage.startswith("judge ")]
    assert {stage.stage for stage in judges} >= {"judge description_quality", "judge task_accuracy"}
    for name in ("calls", "input_tokens", "output_tokens", "cached_tokens"):
        assert sum(getattr(stage, name) for stage in judges) == card["usage"]["judges"][name]
        both = card["usage"]["judges"][name] + card["usage"]["scientist"][name]
        assert getattr(usage.total, name) == both
    assert usage.total.cost == pytest.approx(card["cost"], abs=1e-5)
    assert usage.total.seconds is not None


@pytest.mark.parametrize(
    ("label", "stage", "component"),
    [
        ("L1H2 observation plan", "observe", "L1H2"),
        ("L0_MLP validation plan 3", "validate", "L0_MLP"),
        ("L0_MLP validation 3", "validate", "L0_MLP"),
        ("classification", "classify", None),
        ("summary", "summarise", None),
        ("names", "name", None),
        ("judge/3//task_accuracy/seat 2/judged_first", "judge task_accuracy", None),
        ("round 3", "other", None),
        ("", "other", None),
    ],
)
def test_labels(label: str, stage: str, component: str | None) -> None:
    assert stage_of(label) == (stage, component)
