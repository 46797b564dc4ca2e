"""Tables in the documentation agree with the files in `benchmarks/results`: rows are written again from the file."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vesalius.grading.discovery import true_circuit

ROOT = Path(__file__).parents[1]
KINDS = {
    "hard": "written by hand",
    "wrong0.1": "10 % wrong answers",
    "wrong0.3": "30 % wrong answers",
    "strict0.1": "trained, strictness 0.1",
    "strict0": "trained, no strictness",
}
METHODS = ["sweep", "eap", "eap-ig", "relp", "acdc"]
ESTIMATES = ["eap", "relp", "relp-qk", "eap-ig", "eap-ig, a quarter of the prompts"]


def recorded(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def interval(metric: dict[str, Any] | None, value: str = "value") -> str:
    return f"{metric[value]:.2f} ({metric['low']:.2f} to {metric['high']:.2f})" if metric else "-"


def hard_models() -> Iterator[str]:
    card = recorded("hard_discovery")
    figures = {(each["kind"], each["prompts"], each["method"]): each for each in card["kinds"]}
    for kind, prompts in dict.fromkeys((kind, prompts) for kind, prompts, _ in figures):
        by_method = [figures[kind, prompts, method] for method in METHODS]
        for name in ("node_auroc", "edge_precision", "edge_cmd") if prompts == 8 else ():
            yield row(f"`{name}`", KINDS[kind], *(interval(each.get(name)) for each in by_method))
        for name in ("best_false", "false_rivals"):
            shares = [each[name] for each in by_method]
            yield row(KINDS[kind], prompts, *(f"{interval(share)}, n {share['n']}" for share in shares))
    for each in card["stability"]:
        if each["kind"] == "hard":
            method = each["methods"][0] if len(each["methods"]) == 1 else "all methods"
            true, false = (f"{each[name]:.2f}, {each[f'n_{name}']}" for name in ("true", "false"))
            yield row(KINDS["hard"], each["prompts"], method, true, false, interval(each, "area"))


def known_circuits() -> Iterator[str]:
    card = recorded("discovery")
    truth = {case["name"]: {str(part) for part in true_circuit(case["name"]).components} for case in card["cases"]}
    for method in card["methods"]:
        pairs = [(set(case["methods"][method]["chosen"]), truth[case["name"]]) for case in card["cases"]]
        right = sum(len(chosen & true) for chosen, true in pairs)
        missed = sum(len(true - chosen) for chosen, true in pairs)
        extra = sum(len(chosen - true) for chosen, true in pairs)
        yield row(
            f"`{method}`", right, missed, extra, f"{sum(chosen == true for chosen, true in pairs)} of {len(pairs)}"
        )
        mean = card["metrics"][f"{method}.node_auroc_mean"]
        yield f"| `{method}` | 1.000 ({mean['value']:.3f}, {mean['low']:.3f} to {mean['high']:.3f}) |"


def estimates_of_components() -> Iterator[str]:
    for run in recorded("relp")["runs"]:
        methods = run["methods"]
        pairs = [f"{methods[name]['heads']:.3f}, {methods[name]['mlps']:.3f}" for name in ESTIMATES]
        times = [methods[name]["cpu_seconds"] / methods["eap"]["cpu_seconds"] for name in ("relp", "relp-qk")]
        model = run["model"].removesuffix("-q4_k_m.gguf")
        yield row(f"{model}, {run['behaviour']}", *pairs, f"{times[0]:.2f}, {times[1]:.2f}")


def estimates_of_edges_and_neurons() -> Iterator[str]:
    for run in recorded("relp_parts")["runs"]:
        for parts, methods in run["correlations"].items():
            cells = [interval(methods.get(name), "mean") for name in ESTIMATES]
            yield row(f"{Path(run['behaviour']).stem}, {parts}", *cells)


def regrets() -> Iterator[str]:
    for task in recorded("mechrl_corrected")["regret"]:
        for method in task["methods"]:
            cells = [f"{mean:.2f}" for mean in method["mean"]]
            ten = method["budgets"].index(10)
            cells[ten] += f" [{method['low'][ten]:.2f}, {method['high'][ten]:.2f}]"
            yield row(method["method"], *cells)


def neurons_that_keep() -> Iterator[str]:
    for circuit in recorded("neurons_agreement")["circuits"]:
        share, method = circuit["share"], circuit["request"]["method"]
        kept = f"{share['value']:.3f} ({share['low']:.3f} to {share['high']:.3f})"
        yield row(f"`{method}`", circuit["size"], kept, f"{share['baseline']:.3f}", f"{circuit['cpu_seconds']:.0f}")


@pytest.mark.parametrize(
    ("page", "rows"),
    [
        ("which-circuit", hard_models),
        ("discovery", known_circuits),
        ("discovery", estimates_of_components),
        ("discovery", estimates_of_edges_and_neurons),
        ("mechrl", regrets),
        ("neurons", neurons_that_keep),
    ],
)
def test_tables_agree_with_the_recorded_files(page: str, rows: Callable[[], Iterator[str]]) -> None:
    text = (ROOT / "docs" / "background" / f"{page}.md").read_text()
    written = list(rows())
    assert written
    assert [line for line in written if line not in text] == []
