"""Two results compared: explanations, discoveries, sweeps, or runs of a benchmark.

Nothing is computed again: what is compared is what the two results say. Where both have intervals, two figures are
*apart* if these do not overlap, which is a careful rule: figures on the same prompts can differ by less.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from vesalius.documents.base import Document
from vesalius.documents.circuit import CIRCUIT_FILE
from vesalius.documents.claims import Verdict
from vesalius.documents.difference import ClaimDifference, ComponentDifference, Difference, FigurePair
from vesalius.documents.discovery import DISCOVERY_FILE, Discovery
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.sweep import SWEEP_FILE, Sweep
from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius.runs.directory import EXPLANATIONS, is_run, read_explanation, read_run, read_scorecard
from vesalius_functions.bench.settings import BENCHMARK as FUNCTIONS
from vesalius_functions.bench.tables import decisions

#: The files that hold a result, the one that says most first.
FILES: dict[str, type[Document]] = {EXPLANATION_FILE: Explanation, DISCOVERY_FILE: Discovery, SWEEP_FILE: Sweep}
#: What a request says about the moment, not about the question.
LEFT_OUT = ("versions", "schema_version", "schema")
ACCEPTED = "a directory that `vesalius explain`, `discover`, `sweep` or `bench` made, or its JSON file"
Result = Explanation | Discovery | Sweep | Path
Claims = dict[tuple[str, str, str], Verdict]


def difference(a: Result | str, b: Result | str) -> Difference:
    """What differs between two results of the same kind; each is a document or a path."""
    first, second = _opened(a, b)
    if isinstance(first, Path) and isinstance(second, Path):
        return _of_benchmarks(first, second)
    names = _label(a, first), _label(b, second)
    if isinstance(first, Explanation) and isinstance(second, Explanation):
        return _of_explanations(first, second, *names)
    if isinstance(first, Discovery) and isinstance(second, Discovery):
        return _of_discoveries(first, second, *names)
    if isinstance(first, Sweep) and isinstance(second, Sweep):
        return _of_sweeps(first, second, *names)
    raise BadInput(f"{names[0]} is {_kind(first)} and {names[1]} is {_kind(second)}; give two of the same kind")


# Opening.


def _opened(a: Result | str, b: Result | str) -> tuple[Result, Result]:
    """Both results. Of directories with several files the kind that both have and that says most."""
    paths = [Path(one) if isinstance(one, str | Path) else None for one in (a, b)]
    files = [None if path is None or not path.is_dir() or is_run(path) else _files(path) for path in paths]
    shared = [name for name in FILES if all(name in one for one in files if one is not None)]
    results = []
    for one, path, names in zip((a, b), paths, files, strict=True):
        if path is None:
            results.append(one)
        elif names is None:
            results.append(_file(path))
        else:
            name = (shared or names)[0]
            results.append(FILES[name].read(path / name))
    return results[0], results[1]


def _files(directory: Path) -> list[str]:
    names = [name for name in FILES if (directory / name).is_file()]
    if not names:
        raise BadInput(f"{directory}: holds nothing that can be compared; give {ACCEPTED}")
    return names


def _file(path: Path) -> Result:
    """The result in a JSON file, told by its fields; a run of a benchmark stays a path."""
    if is_run(path):
        return path
    if not path.is_file():
        raise BadInput(f"{path}: there is no such result; give {ACCEPTED}")
    if path.name == CIRCUIT_FILE and (path.parent / DISCOVERY_FILE).is_file():
        return Discovery.read(path.parent / DISCOVERY_FILE)
    data = read_json(path)
    if isinstance(data, dict):
        if "task_description" in data:
            return Explanation.read(path)
        if "forwards" in data and "baseline" in data:
            return Sweep.read(path)
        if "forwards" in data and "method" in data:
            return Discovery.read(path)
    raise BadInput(f"{path}: is no explanation, discovery or sweep; give {ACCEPTED}")


def _kind(result: Result) -> str:
    name = "run of a benchmark" if isinstance(result, Path) else type(result).__name__.lower()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _label(given: Result | str, result: Result) -> str:
    if isinstance(given, str | Path):
        return str(given)
    return getattr(result, "directory", None) or getattr(result, "specimen", None) or _kind(result)


# Comparing.


def _of_explanations(a: Explanation, b: Explanation, *names: str) -> Difference:
    flipped, only, same = _claims(_claims_of(a), _claims_of(b))
    moved, stayed = _parts(a, b)
    return Difference(
        kind="explanation",
        a=names[0],
        b=names[1],
        asked=_asked(a.request, b.request),
        claims_flipped=tuple(flipped),
        claims_only=tuple(only),
        claims_same=same,
        components_moved=tuple(moved),
        components_same=stayed,
        rule="explained by one alone, or with another tag, role or verdict",
        metrics=_explained_figures([a], [b]),
        notes=_notes(a.request, b.request),
    )


def _of_discoveries(a: Discovery, b: Discovery, *names: str) -> Difference:
    size = min(one.checks.size if one.checks is not None else _nonzero(one) for one in (a, b))
    scores = [{row.id: row.score for row in one.components} for one in (a, b)]
    first, second = ({row.id for row in one.components[:size] if row.score} for one in (a, b))
    moved = [
        ComponentDifference(
            component=name, what=f"among the strongest {size}", a=_yes(name, first), b=_yes(name, second)
        )
        for name in sorted(first ^ second)
    ]
    shared = [name for name in scores[0] if name in scores[1]]
    checks = [{} if one.checks is None else one.checks.metrics for one in (a, b)]
    figures = {
        **_pairs({**a.metrics, **checks[0]}, {**b.metrics, **checks[1]}),
        "shared among the strongest": _both(len(first & second)),
        "rank correlation of scores": _both(_rank_correlation([[one[name] for name in shared] for one in scores])),
    }
    return Difference(
        kind="discovery",
        a=names[0],
        b=names[1],
        asked=_asked(a.request, b.request),
        components_moved=tuple(moved),
        components_same=len(first & second),
        rule=f"among the {size} strongest components of one circuit alone",
        metrics=figures,
        notes=_notes(a.request, b.request),
    )


def _of_sweeps(a: Sweep, b: Sweep, *names: str) -> Difference:
    rows = [{row.id: row for row in one.components} for one in (a, b)]
    moved = []
    for name in dict.fromkeys(chain(*rows)):
        first, second = rows[0].get(name), rows[1].get(name)
        if first is None or second is None:
            moved.append(
                ComponentDifference(
                    component=name,
                    what="swept",
                    a=None if first is None else first.effect,
                    b=None if second is None else second.effect,
                )
            )
        elif _apart(first.ci_low, first.ci_high, second.ci_low, second.ci_high):
            moved.append(ComponentDifference(component=name, what="effect", a=first.effect, b=second.effect))
    shared = [name for name in rows[0] if name in rows[1]]
    effects = [[one[name].effect for name in shared] for one in rows]
    figures = {
        "baseline": _pair(a.baseline, b.baseline, (a.baseline_low, a.baseline_high), (b.baseline_low, b.baseline_high)),
        "rank correlation of effects": _both(_rank_correlation(effects)),
    }
    moved.sort(key=lambda one: -abs(float(one.a or 0.0) - float(one.b or 0.0)))
    return Difference(
        kind="sweep",
        a=names[0],
        b=names[1],
        asked=_asked(a.request, b.request),
        components_moved=tuple(moved),
        components_same=len(set(chain(*rows))) - len(moved),
        rule="the 95 % intervals of the two effects do not overlap",
        metrics=figures,
        notes=_notes(a.request, b.request),
    )


def _of_benchmarks(a: Path, b: Path) -> Difference:
    runs = [read_run(one)["settings"] for one in (a, b)]
    if runs[0].get("benchmark") != runs[1].get("benchmark"):
        kinds = [f"{one} is a run of `bench {run.get('benchmark')}`" for one, run in zip((a, b), runs, strict=True)]
        raise BadInput(f"{' and '.join(kinds)}; give two of the same benchmark")
    cards = [read_scorecard(one) for one in (a, b)]
    asked = {name: (runs[0].get(name), runs[1].get(name)) for name in dict.fromkeys(chain(*runs))}
    common: dict[str, Any] = {
        "kind": "benchmark",
        "a": str(a),
        "b": str(b),
        "asked": {name: pair for name, pair in asked.items() if pair[0] != pair[1]},
    }
    figures = _metric_pairs(*(card.metrics for card in cards))
    if runs[0].get("benchmark") == FUNCTIONS:
        return _of_function_runs(a, b, common, figures)
    first, second = (_explanations(one) for one in (a, b))
    cases = [case for case in first if case in second]
    flipped, only, moved = [], [], []
    same = stayed = 0
    for case in cases:
        turned, alone, kept = _claims(_claims_of(first[case]), _claims_of(second[case]), case)
        parts, left = _parts(first[case], second[case], case)
        flipped, only, moved = [*flipped, *turned], [*only, *alone], [*moved, *parts]
        same, stayed = same + kept, stayed + left
    left_out = len(first) + len(second) - 2 * len(cases)
    return Difference(
        **common,
        claims_flipped=tuple(flipped),
        claims_only=tuple(only),
        claims_same=same,
        components_moved=tuple(moved),
        components_same=stayed,
        rule="explained by one alone, or with another tag, role or verdict",
        metrics={**figures, **_explained_figures([first[case] for case in cases], [second[case] for case in cases])},
        notes=(f"{left_out} cases are in one run alone; their claims are left out",) if left_out else (),
    )


def _of_function_runs(a: Path, b: Path, common: dict[str, Any], figures: dict[str, FigurePair]) -> Difference:
    """Functions that one run has right and the other has not, or to another degree."""
    first, second = decisions(a), decisions(b)
    shared = [name for name in first if name in second]
    moved = [
        ComponentDifference(component=name, what=first[name][0], a=first[name][1], b=second[name][1])
        for name in shared
        if first[name] != second[name]
    ]
    left_out = len(first) + len(second) - 2 * len(shared)
    return Difference(
        **common,
        components_moved=tuple(moved),
        components_same=len(shared) - len(moved),
        rule="here functions: the figure that says whether an answer is right is another one",
        metrics=figures,
        notes=(f"{left_out} functions are graded in one run alone; they are left out",) if left_out else (),
    )


def _explanations(run: Path) -> dict[str, Explanation]:
    directory = run / EXPLANATIONS
    paths = sorted(directory.glob("*.json")) if directory.is_dir() else []
    return {path.stem: read_explanation(path) for path in paths}


def _claims_of(explanation: Explanation) -> Claims:
    return {
        (part.id, claim.kind, claim.text): claim.verdict for part in explanation.components for claim in part.claims
    }


def _claims(
    a: Claims, b: Claims, specimen: str | None = None
) -> tuple[list[ClaimDifference], list[ClaimDifference], int]:
    """Claims with two verdicts, claims of one alone, and how many are the same."""
    flipped, only = [], []
    for key in dict.fromkeys([*a, *b]):
        first, second = a.get(key), b.get(key)
        if first == second:
            continue
        component, kind, text = key
        entry = ClaimDifference(specimen=specimen, component=component, kind=kind, text=text, a=first, b=second)
        (only if first is None or second is None else flipped).append(entry)
    return flipped, only, sum(a.get(key) == verdict for key, verdict in b.items())


def _parts(a: Explanation, b: Explanation, specimen: str | None = None) -> tuple[list[ComponentDifference], int]:
    """Components that differ in what is said of them, and how many do not."""
    parts = [{part.id: part for part in one.components} for one in (a, b)]
    moved: list[ComponentDifference] = []
    names = dict.fromkeys(chain(*parts))
    for name in names:
        first, second = parts[0].get(name), parts[1].get(name)
        if first is None or second is None:
            there = [None if one is None else one.role or one.tag or one.verdict for one in (first, second)]
            moved.append(
                ComponentDifference(specimen=specimen, component=name, what="explained", a=there[0], b=there[1])
            )
            continue
        for what in ("tag", "role", "verdict"):
            one, other = getattr(first, what), getattr(second, what)
            if one != other:
                moved.append(ComponentDifference(specimen=specimen, component=name, what=what, a=one, b=other))
    return moved, len(names) - len({one.component for one in moved})


def _explained_figures(a: Sequence[Explanation], b: Sequence[Explanation]) -> dict[str, FigurePair]:
    """Verdicts of claims, roles of natural models, and how far the program agrees with the model."""
    if not a or not b:
        return {}
    verdicts = [
        Counter(claim.verdict for one in side for part in one.components for claim in part.claims) for side in (a, b)
    ]
    roles = [Counter(part.role for one in side for part in one.components if part.role) for side in (a, b)]
    figures = {
        f"claims {name}": _pair(verdicts[0][name], verdicts[1][name]) for name in dict.fromkeys(chain(*verdicts))
    }
    figures |= {f"components: {name}": _pair(roles[0][name], roles[1][name]) for name in dict.fromkeys(chain(*roles))}
    if len(a) == len(b) == 1:
        first, second = a[0].program_agreement, b[0].program_agreement
        if first is not None and second is not None:
            ends = ((one.low, one.high) for one in (first, second))
            figures["program_agreement"] = _pair(first.value, second.value, *ends)
        figures["cost"] = _pair(a[0].cost, b[0].cost)
    return figures


def _metric_pairs(a: Mapping[str, Metric], b: Mapping[str, Metric]) -> dict[str, FigurePair]:
    return {
        name: _pair(
            one and one.value, other and other.value, one and (one.low, one.high), other and (other.low, other.high)
        )
        for name in dict.fromkeys([*a, *b])
        for one, other in [(a.get(name), b.get(name))]
    }


def _pairs(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, FigurePair]:
    return {name: _pair(a.get(name), b.get(name)) for name in dict.fromkeys([*a, *b])}


def _pair(
    a: float | None,
    b: float | None,
    a_ends: tuple[float | None, float | None] | None = None,
    b_ends: tuple[float | None, float | None] | None = None,
) -> FigurePair:
    ends = [*(a_ends or (None, None)), *(b_ends or (None, None))]
    return FigurePair(
        a=a,
        b=b,
        difference=None if a is None or b is None else b - a,
        a_low=ends[0],
        a_high=ends[1],
        b_low=ends[2],
        b_high=ends[3],
        apart=None if None in ends else _apart(*ends),
    )


def _both(value: float | None) -> FigurePair:
    """One figure about the pair, not one of each."""
    return FigurePair(a=value, b=value)


def _apart(a_low: float | None, a_high: float | None, b_low: float | None, b_high: float | None) -> bool:
    if a_low is None or a_high is None or b_low is None or b_high is None:
        return False
    return a_high < b_low or b_high < a_low


def _asked(a: Request | None, b: Request | None) -> dict[str, tuple[Any, Any]]:
    """What the two requests do not share, options by name."""
    sides = [_flat_request(one) for one in (a, b)]
    return {
        name: (sides[0].get(name), sides[1].get(name))
        for name in dict.fromkeys(chain(*sides))
        if sides[0].get(name) != sides[1].get(name)
    }


def _flat_request(request: Request | None) -> dict[str, Any]:
    if request is None:
        return {}
    data = request.as_data()
    options = data.pop("options", None) or {}
    return {name: value for name, value in {**data, **options}.items() if name not in LEFT_OUT and value is not None}


def _notes(a: Request | None, b: Request | None) -> tuple[str, ...]:
    names = [None if one is None else (one.specimen, one.behaviour) for one in (a, b)]
    notes: list[str] = []
    if names[0] and names[1] and names[0][0] != names[1][0]:
        notes.append(
            "Two models: a component's name means the same in both only if one was made from the other (by"
            " fine-tuning, say)."
        )
    if names[0] and names[1] and names[0][1] != names[1][1]:
        notes.append("Two behaviours: claims are about other prompts and other answers.")
    return tuple(notes)


def _nonzero(discovery: Discovery) -> int:
    return sum(bool(row.score) for row in discovery.components)


def _yes(name: str, members: Iterable[str]) -> str:
    return "yes" if name in members else "no"


def _rank_correlation(pair: Sequence[Sequence[float]]) -> float | None:
    """Spearman's correlation; None where one side is constant or too short."""
    from vesalius.statistics import spearman

    rho = spearman(*map(np.array, pair)) if len(pair[0]) >= 3 else math.nan
    return None if math.isnan(rho) else rho
