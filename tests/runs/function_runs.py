"""A run of the functions benchmark made by hand: three functions, one right, one wrong, one with a hostile answer."""

import json
from pathlib import Path
from typing import Any

from vesalius.documents.scorecard import FunctionFailure, Scorecard
from vesalius.runs.ledger import Ledger
from vesalius_backbones import Redactor
from vesalius_backbones.messages import Answer, CallSettings, Message, ModelRequest, TokenUsage, system, user
from vesalius_backbones.records import Outcome, Records
from vesalius_functions.bench.scorecard import metrics_of
from vesalius_functions.bench.settings import FunctionState

SECRET = "x squared plus three"
X = [-2.0, -1.0, 0.0, 1.0, 2.0]


def write_function_run(directory: Path, *, graded: bool = True, description: str = "A parabola.") -> None:
    """f00000 is answered rightly, the other two are not; `description` is what is said of f00002."""
    for folder in ("explanations", "grades", "calls"):
        (directory / folder).mkdir(parents=True)
    settings = {"benchmark": "functions", "category": "numeric", "count": 3, "interpreter": "aia"}
    settings |= {"backbone": "openai:gpt-5.4", "seed": 0}
    (directory / "run.json").write_text(json.dumps({"schema": 1, "settings": settings}))
    with Ledger(directory / "events.jsonl") as ledger:
        for number, answer in enumerate(("A parabola.", "A line.", description)):
            _interpret(directory, f"f0000{number}", answer)
            used = {"calls": 2, "input_tokens": 20, "output_tokens": 2, "cost": 0.25, "at_most": 0.25}
            ledger.append("interpreted", case=f"f0000{number}", seconds=1.5, queries=2, rounds=2, used=used)
        if not graded:
            return
        for number, success in enumerate((1.0, 0.0, 0.0)):
            _grade(directory, f"f0000{number}", success)
            ledger.append("graded", case=f"f0000{number}", metrics={"success": success}, fault=None, seconds=0.5)
        state = FunctionState(ledger.records)
    Scorecard(
        benchmark="functions",
        subject="aia",
        category="numeric",
        seed=0,
        n=3,
        n_error=0,
        metrics=metrics_of([dict(one.metrics) for one in state.graded.values()]),
        failures=tuple(FunctionFailure(id=f"f0000{n}", family="quadratic", success=0.0) for n in (1, 2)),
        seconds=6.0,
        cost=0.75,
    ).write(directory / "scorecard.json")


def _interpret(directory: Path, case: str, description: str) -> None:
    answer = {"description": description, "code": "def f(x):\n    return x * x + 3", "interpreter": "aia", "queries": 2}
    whole = {"id": case, "family": "quadratic", "truth": {"formula": SECRET, "kind": "clean"}, "answer": answer}
    whole |= {"log": [[0.0, 3.0], [1.0, 4.0]], "seconds": 1.5}
    (directory / "explanations" / f"{case}.json").write_text(json.dumps(whole))
    records = Records(directory / "calls" / f"{case}.jsonl", Redactor([]), writable=True)
    opening = [system("Interpret."), user("Ask about f.")]
    ask = "ASK [0, 1]"
    _call(records, "numeric round 1", opening, ask)
    told = [Message(role="assistant", text=ask), user("OUTPUTS\nf(0) = 3\nf(1) = 4")]
    _call(records, "numeric round 2", [*opening, *told], f"[DESCRIPTION]: {description}")


def _call(records: Records, label: str, messages: list[Message], text: str) -> None:
    request = ModelRequest(
        provider="openai", model="gpt-5.4", settings=CallSettings(), messages=tuple(messages), label=label
    )
    usage = TokenUsage(input=10, output=1)
    records.settle(request, Outcome(answer=Answer(text=text, usage=usage), usage=usage, cost=0.125, seconds=1.0))


def _grade(directory: Path, case: str, success: float) -> None:
    truth = [x * x + 3 for x in X]
    picture: dict[str, Any] = {"x": X, "truth": truth, "answer": truth if success else X}
    grade = {"id": case, "metrics": {"success": success, "nmse": 1 - success}, "picture": picture, "seconds": 0.5}
    (directory / "grades" / f"{case}.json").write_text(json.dumps(grade))
