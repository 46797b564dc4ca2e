"""The discovery benchmark: figures do not depend on the number of jobs, and a case that fails is an error."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from vesalius.runs.discovery import discovery_scorecard
from vesalius.runs.selection import benchmark_circuits


def without_seconds(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: without_seconds(value) for key, value in document.items() if key != "seconds"}
    return [without_seconds(value) for value in document] if isinstance(document, list) else document


def test_jobs_change_nothing_and_failures_enter_no_figure(tmp_path: Path) -> None:
    circuits = benchmark_circuits(["3", "8"])
    broken = replace(circuits[0], id="gone", directory=tmp_path)
    cards = [discovery_scorecard(["sweep", "eap"], [*circuits, broken], n=4, seed=1, jobs=jobs) for jobs in (1, 2)]
    assert without_seconds(cards[0]) == without_seconds(cards[1])
    card = cards[0]
    assert (card["n"], card["n_error"]) == (3, 1)
    assert {error["case"] for error in card["errors"]} == {"gone"}
    for figures in card["methods"].values():
        assert (figures["n"], figures["n_error"], figures["node_auroc"]["n"]) == (2, 1, 2)
    assert [set(case["methods"]) for case in card["cases"]] == [{"sweep", "eap"}, {"sweep", "eap"}, set()]
