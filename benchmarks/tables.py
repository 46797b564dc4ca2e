"""Tables of the recorded figures: `python -m benchmarks.tables` writes `benchmarks/results/tables.md` again.

The pages of docs/background show the rows that answer their question; every recorded row is in that file. A test writes
the rows again from the JSON files and compares them with the file and with the pages.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import mechrl_options
from vesalius_bench.papers.published import EMPTY, printed
from vesalius_truth.grading.discovery import true_circuit

RESULTS = Path(__file__).parent / "results"
PAGE = RESULTS / "tables.md"
KINDS = {
    "hard": "written by hand",
    "wrong0.1": "10 % wrong answers",
    "wrong0.3": "30 % wrong answers",
    "strict0.1": "trained, strictness 0.1",
    "strict0": "trained, no strictness",
}
HEADING = """# Recorded figures

Every table of the recorded figures, with 95 % intervals. The pages under docs/background explain them and show the rows
that answer their question. This file is generated: `python -m benchmarks.tables`.
"""
METHODS = ("sweep", "eap", "eap-ig", "relp", "acdc")
RANKINGS = ("eap-ig", "relp", "relp-qk", "eap", "gim", "masks", "sweep", "elimination", "ensemble", "best")
ESTIMATES = ("eap", "relp", "relp-qk", "eap-ig", "eap-ig, a quarter of the prompts")


def recorded(name: str) -> Any:
    """The content of `benchmarks/results/NAME.json`."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def row(*cells: object) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def interval(metric: dict[str, Any] | None, value: str = "value") -> str:
    """A figure with its 95 % interval, or a dash."""
    return f"{metric[value]:.2f} ({metric['low']:.2f} to {metric['high']:.2f})" if metric else "-"


def hard_figures(kinds: Iterable[str] = KINDS) -> Iterator[str]:
    """Medians of what the methods find on the hard models, 8 prompts."""
    figures = _hard()
    for kind in kinds:
        for name in ("node_auroc", "edge_precision", "edge_cmd"):
            yield row(f"`{name}`", KINDS[kind], *(interval(figures[kind, 8, method].get(name)) for method in METHODS))


def false_circuits(name: str, prompts: Iterable[int] = (4, 8, 32), kinds: Iterable[str] = KINDS) -> Iterator[str]:
    """Shares of faithful circuits (`best_false`) or faithful rivals (`false_rivals`) that are false."""
    figures = _hard()
    for kind, n in dict.fromkeys((kind, n) for kind, n, _ in figures if n in prompts and kind in kinds):
        shares = [figures[kind, n, method][name] for method in METHODS]
        yield row(KINDS[kind], n, *(f"{interval(share)}, n {share['n']}" for share in shares))


def stability(*, summed: bool = False) -> Iterator[str]:
    """Stability of true and of false circuits in the models written by hand; `summed`: over all methods only."""
    for each in recorded("hard_discovery")["stability"]:
        if each["kind"] == "hard" and (len(each["methods"]) > 1 or not summed):
            method = each["methods"][0] if len(each["methods"]) == 1 else "all methods"
            true, false = (f"{each[name]:.2f}, {each[f'n_{name}']}" for name in ("true", "false"))
            yield row(KINDS["hard"], each["prompts"], method, true, false, interval(each, "area"))


def _hard() -> dict[tuple[str, int, str], dict[str, Any]]:
    return {(each["kind"], each["prompts"], each["method"]): each for each in recorded("hard_discovery")["kinds"]}


def chosen_components() -> Iterator[str]:
    """What each method chooses on the 84 circuits, beside the truth."""
    card = recorded("discovery")
    truth = {case["name"]: {str(part) for part in true_circuit(case["name"]).components} for case in card["cases"]}
    for method in card["methods"]:
        pairs = [(set(case["methods"][method]["chosen"]), truth[case["name"]]) for case in card["cases"]]
        right = sum(len(chosen & true) for chosen, true in pairs)
        missed = sum(len(true - chosen) for chosen, true in pairs)
        extra = sum(len(chosen - true) for chosen, true in pairs)
        exact = f"{sum(chosen == true for chosen, true in pairs)} of {len(pairs)}"
        mean = card["metrics"][f"{method}.node_auroc_mean"]
        auroc = f"1.000 ({mean['value']:.3f}, {mean['low']:.3f} to {mean['high']:.3f})"
        yield row(f"`{method}`", right, missed, extra, exact, auroc)


def estimates_of_components() -> Iterator[str]:
    """Correlations of attribution with exact patching, by heads and by MLPs."""
    for run in recorded("relp")["runs"]:
        methods = run["methods"]
        pairs = [f"{methods[name]['heads']:.3f}, {methods[name]['mlps']:.3f}" for name in ESTIMATES]
        times = [methods[name]["cpu_seconds"] / methods["eap"]["cpu_seconds"] for name in ("relp", "relp-qk")]
        model = run["model"].removesuffix("-q4_k_m.gguf")
        yield row(f"{model}, {run['behaviour']}", *pairs, f"{times[0]:.2f}, {times[1]:.2f}")


def estimates_of_edges_and_neurons(parts: Iterable[str] = ()) -> Iterator[str]:
    """The same for single edges and neurons; `parts` chooses among their groups."""
    for run in recorded("relp_parts")["runs"]:
        for part, methods in run["correlations"].items():
            if not parts or part in parts:
                cells = [interval(methods.get(name), "mean") for name in ESTIMATES]
                yield row(f"{Path(run['behaviour']).stem}, {part}", *cells)


def regrets(task: dict[str, Any]) -> Iterator[str]:
    """Regret of every search on one task against queries paid, with the interval at 10 queries."""
    for method in task["methods"]:
        cells = [f"{mean:.2f}" for mean in method["mean"]]
        ten = method["budgets"].index(10)
        cells[ten] += f" [{method['low'][ten]:.2f}, {method['high'][ten]:.2f}]"
        yield row(method["method"], *cells)


def regrets_at(queries: int = 10) -> Iterator[str]:
    """Regret of every search after so many queries, by task."""
    tasks = recorded("mechrl_corrected")["regret"]
    for number, method in enumerate(tasks[0]["methods"]):
        figures = [task["methods"][number] for task in tasks]
        yield row(method["method"], *(f"{each['mean'][each['budgets'].index(queries)]:.2f}" for each in figures))


def standin_transfer() -> Iterator[str]:
    """Table 4 of MechRL on the stand-in: five seeds on rows of a pool, one seed on fresh batches, and GPT-2 small."""
    seeds, fresh = (recorded(name)["table4"] for name in ("mechrl_standin_seeds", "mechrl_standin"))

    def found(rows: list[dict[str, Any]], name: str, k: int) -> str:
        method = name if name in ("random", "oracle") else f"paper K={k}"
        condition = "" if method == name else name.replace("primed ", "primed mechrl-")
        figure = next(one["found"] for one in rows if (one["method"], one["condition"]) == (method, condition))
        return seeds_interval(figure)

    for name, published in printed("mechrl", "Table 4").rows.items():
        once = ", ".join(dict.fromkeys(found(fresh, name, k) for k in (1, 5)))
        theirs = ", ".join(dict.fromkeys(figure for figure in published.values() if figure != EMPTY))
        yield row(name, found(seeds, name, 1), found(seeds, name, 5), once, theirs)


def standin_best() -> Iterator[str]:
    """Table 1 of MechRL on the stand-in, five seeds."""
    rows = recorded("mechrl_standin_seeds")["table1"]
    for method in dict.fromkeys(one["method"] for one in rows):
        figures = [one for one in rows if one["method"] == method]
        cells = [f"{seeds_interval(one['policy'])}, {seeds_interval(one['oracle'])}" for one in figures]
        yield row(method.removeprefix("paper "), *cells)


def seeds_interval(figure: dict[str, Any]) -> str:
    """A mean over seeds with its interval, where there are several."""
    value = f"{figure['value']:.3f}"
    return value if figure["low"] is None else f"{value} [{figure['low']:.3f}, {figure['high']:.3f}]"


def neurons_that_keep() -> Iterator[str]:
    """The smallest sets of neurons that keep 0.8 of agreement, by scoring."""
    for circuit in recorded("neurons_agreement")["circuits"]:
        share, method = circuit["share"], circuit["request"]["method"]
        kept = f"{share['value']:.3f} ({share['low']:.3f} to {share['high']:.3f})"
        yield row(f"`{method}`", circuit["size"], kept, f"{share['baseline']:.3f}", f"{circuit['cpu_seconds']:.0f}")


def smallest_circuits(name: str) -> Iterator[str]:
    """Every search for the smallest connected circuit, and what was found keeps on prompts that chose nothing; where
    there is none within the limit, what the largest that was tried keeps.
    """
    for each in recorded(name)["rows"]:
        method = each["methods"][0] if len(each["methods"]) == 1 else "**best** (default)"
        passes = f"{each.get('ranking_passes', 0) + each['search_passes']:.0f}" if "search_passes" in each else "-"
        answer, _, said = each["answer"].partition(": ")
        size = "-" if said.startswith("no circuit") else each["size"]
        kept, elsewhere = (bracketed(each[where]) for where in ("kept", "elsewhere"))
        asked = (each["behaviour"], each["seed"], each["keep"], method)
        yield row(*asked, answer, size, kept, elsewhere, passes, _minutes(each))


def smallest_by_method(keep: float = 0.8, seed: int = 0) -> Iterator[str]:
    """By behaviour of SmolLM2 what each ranking gave: how many components, with "?" where the answer is Partly and "!"
    where it is No, and what they keep; a dash where there is none within the limit, with what the largest tried keeps.
    """
    for behaviour, searches in _searches(keep, seed).items():
        yield row(behaviour, *(_in_brief(searches.get(method)) for method in RANKINGS))


def smallest_by_default(seed: int = 0) -> Iterator[str]:
    """The default's circuit of SmolLM2 by behaviour: its answer for 0.8 and for 0.9, and of the first what is kept on
    other templates, the passes and the minutes of the search.
    """
    usual, large = (_searches(keep, seed) for keep in (0.8, 0.9))
    for behaviour, searches in usual.items():
        found = searches["best"]
        passes = f"{found['search_passes']:.0f}" if "search_passes" in found else "-"
        answers = (_answered(one.get("best")) for one in (searches, large.get(behaviour, {})))
        yield row(behaviour, *answers, bracketed(found["elsewhere"]), passes, _minutes(found))


def _searches(keep: float, seed: int) -> dict[str, dict[str, dict[str, Any]]]:
    """The searches for a share, by behaviour and by ranking; the default, which has several, is `best`."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for each in recorded("whole_circuits")["rows"]:
        if (each["keep"], each["seed"]) == (keep, seed):
            ranking = each["methods"][0] if len(each["methods"]) == 1 else "best"
            found.setdefault(each["behaviour"], {})[ranking] = each
    return found


def _in_brief(search: dict[str, Any] | None) -> str:
    """A search as a cell."""
    if search is None:
        return "not measured"
    verdict, _, said = search["answer"].partition(": ")
    kept = f"{search['kept']['value']:.2f}"
    if said.startswith("no circuit"):
        return f"- ({search['size']} keep {kept})"
    return f"{search['size']}{ {'Yes': '', 'Partly': '?', 'No': '!'}[verdict] } ({kept})"


def _answered(search: dict[str, Any] | None) -> str:
    """The answer of a search with its figure."""
    if search is None:
        return "not measured"
    return f"{search['answer'].partition(':')[0]}: {search['size']} keep {bracketed(search['kept'])}"


def _minutes(search: dict[str, Any]) -> str:
    """What a search took; where it ran on a processor, the minutes of the processor."""
    if search.get("device") == "cpu":
        return f"{search['cpu_seconds'] / 60:.2f} of a CPU"
    return f"{search['seconds'] / 60:.2f}" if "seconds" in search else "-"


def bracketed(figure: dict[str, Any] | None) -> str:
    """A figure with its interval in brackets, where it has one."""
    if figure is None:
        return "-"
    value = f"{figure['value']:.2f}"
    return value if figure["low"] is None else f"{value} [{figure['low']:.2f}, {figure['high']:.2f}]"


def page() -> str:
    """Every table as Markdown."""
    return "\n".join([HEADING, *_tables()])


def _tables() -> Iterator[str]:
    yield from _table("Hard models, 8 prompts: median", hard_figures(), "figure", "models", *METHODS)
    for name in ("best_false", "false_rivals"):
        yield from _table(f"Hard models: `{name}`, share, n", false_circuits(name), "models", "prompts", *METHODS)
    head = ("models", "prompts", "method", "true: Jaccard, n", "false: Jaccard, n", "area")
    yield from _table("Hard models: stability of true and of false circuits", stability(), *head)
    head = ("method", "found", "missed", "extra", "exact circuits", "node AUROC, median (mean)")
    yield from _table("The 84 circuits: components chosen", chosen_components(), *head)
    head = ("model, behaviour", *ESTIMATES, "time of `relp`, `relp-qk` over `eap`")
    yield from _table("Correlation with exact patching: heads, MLPs", estimates_of_components(), *head)
    head = ("behaviour, parts", *ESTIMATES)
    yield from _table("Correlation with exact patching: edges, neurons", estimates_of_edges_and_neurons(), *head)
    for task in recorded("mechrl_corrected")["regret"]:
        budgets = [f"{budget:g}" for budget in task["methods"][0]["budgets"]]
        yield from _table(f"Regret on {task['task']} (best {task['oracle']:.2f})", regrets(task), "search", *budgets)
    yield from ("## Rewards in logits and in nats, and a code of the prompts", "")
    yield from (mechrl_options.table(recorded("mechrl_options")), "")
    head = ("docstring", "K = 1, five seeds", "K = 5, five seeds", "fresh, one seed", "published, GPT-2 small")
    yield from _table("Stand-in for GPT-2 small: best reward in 50 picks", standin_transfer(), *head)
    head = ("policy and oracle", "induction", "IOI", "docstring (held out)")
    yield from _table("Stand-in for GPT-2 small: best reward in an episode", standin_best(), *head)
    head = ("neurons scored by", "neurons that keep 0.8", "share on held-out prompts", "at random", "CPU seconds")
    yield from _table("Neurons of subject-verb agreement", neurons_that_keep(), *head)
    asked, found = ("behaviour", "seed", "keep", "ranked by"), ("answer", "components", "kept", "on other templates")
    head = (*asked, *found, "passes", "minutes")
    short = ("behaviour", "the default's answer for 0.8", "for 0.9", "0.8 on other templates", "passes", "minutes")
    yield from _table("Smallest connected circuit: SmolLM2-135M, by behaviour", smallest_by_default(), *short)
    for keep in (0.8, 0.9):
        title = f"Smallest connected circuit that keeps {keep:g}: SmolLM2-135M, by ranking"
        yield from _table(title, smallest_by_method(keep), "behaviour", *(f"`{name}`" for name in RANKINGS))
    for model, name in (("SmolLM2-135M", "whole_circuits"), ("Gemma-3-270m", "whole_circuits_gemma")):
        yield from _table(f"Smallest connected circuit: {model}", smallest_circuits(name), *head)


def _table(title: str, rows: Iterable[str], *head: str) -> Iterator[str]:
    yield from (f"## {title}", "", row(*head), row(*("---" for _ in head)), *rows, "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
