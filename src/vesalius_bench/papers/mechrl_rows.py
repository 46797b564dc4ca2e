"""What our results give for every table and figure of MechRL.

Every table is filled by `vesalius bench mechrl`. The paper's text names no figure; learning curves, regret and the
collapse of a single environment are drawn from our runs.
"""

from collections.abc import Sequence
from itertools import groupby
from math import log

from vesalius.documents.metric import Figure
from vesalius_bench.papers.documents import Cell, PaperRow
from vesalius_bench.papers.sources import Sources
from vesalius_mechrl.documents import MechrlStudy
from vesalius_mechrl.trainings import PLANNED_K

#: MechRL's held-out task, and names of tasks, categories and policies as the paper has them.
TRANSFERRED = "docstring"
_TASKS = {"induction-out": "induction"} | {f"mechrl-{task}": task for task in ("induction", "ioi", "docstring")}
_CATEGORIES = {"Induction-in-IOI": "Induction"}
_K = {"paper K=1": "K=1", "paper K=5": "K=5"}
PLANNED, WITHOUT_K = f" best-of-{PLANNED_K}", ("random", "oracle")


def gaps(sources: Sources) -> list[PaperRow]:
    """Table 1, with intervals over seeds."""
    return [
        result.row(
            _task(row.task) + (" (held out)" if row.held_out else ""),
            {"policy": _interval(row.policy), "oracle": _interval(row.oracle), "gap": _interval(row.gap)},
            _study_details(result.document, row.method),
        )
        for result in sources.of("mechrl")
        for row in result.document.table1
    ]


def ranks(sources: Sources) -> list[PaperRow]:
    """Table 2: the ranks of each seed; beyond the ten most picked there are none in paper mode."""
    return [
        result.row(
            row.head,
            {"policy_rank": _seeds(row.policy_ranks, result.document), "oracle_rank": row.oracle_rank},
            _study_details(result.document, row.method),
        )
        for result in sources.of("mechrl")
        for row in result.document.table2
    ]


def overlaps(sources: Sources) -> list[PaperRow]:
    """Table 3: of each seed; a category that attention cannot tell has no overlap."""
    return [
        result.row(
            _CATEGORIES.get(row.group, row.group),
            {"heads": row.size, "overlap": _seeds(row.overlap) or "not told by attention"},
            _study_details(result.document, row.method),
        )
        for result in sources.of("mechrl")
        for row in result.document.table3
    ]


def transfers(sources: Sources) -> list[PaperRow]:
    """Table 4 with intervals over seeds: policies of K = 1 and K = 5 side by side, other methods under their own names.

    Random order and oracle have no K: both columns have the same figure, as the paper has it for random order. A search
    that is not planned has one candidate a step, K = 1.
    """
    made = []
    for result in sources.of("mechrl"):
        rows: dict[str, dict[str, Cell]] = {}
        for row in result.document.table4:
            column = _K.get(row.method) or ("K=5" if row.method.endswith(PLANNED) else "K=1")
            method = row.method.removesuffix(PLANNED)
            parts = [] if _task(row.task) == TRANSFERRED else [row.task]
            parts += [] if method in (*_K, *WITHOUT_K) else [method]
            parts += [_condition(row.condition) or method]
            name = ", ".join(dict.fromkeys(parts))
            for each in _K.values() if method in WITHOUT_K else (column,):
                rows.setdefault(name, {})[each] = _interval(row.found)
        made += [result.row(name, values, _study_details(result.document)) for name, values in rows.items()]
    return made


def curves(sources: Sources) -> list[PaperRow]:
    """The best reward in validation episodes at the end of training, mean over seeds."""
    rows = []
    for result in sources.of("mechrl"):
        for method, runs in result.document.curves.items():
            for task in runs[0][-1]["evaluation"]:
                last = [run[-1]["evaluation"][task] for run in runs]
                values: dict[str, Cell] = {"reward": sum(last) / len(last), "seeds": len(last)}
                rows.append(result.row(_task(task), values, _study_details(result.document, method)))
    return rows


def collapses(sources: Sources) -> list[PaperRow]:
    """How undecided each policy is about its first pick, in nats: every seed, near 2,000 steps and at the end."""
    rows = []
    for result in sources.of("mechrl"):
        study: MechrlStudy = result.document
        for name, group in groupby(study.first_picks(), key=lambda pick: pick[0]):
            picks = list(group)
            values: dict[str, Cell] = {
                "step": picks[0][2].step,
                "nats_then": _seeds([early.entropy for *_, early, _ in picks]),
                "last_step": picks[0][3].step,
                "nats_at_the_end": _seeds([last.entropy for *_, last in picks]),
                "any_head_alike": round(log(study.heads), 2),
            }
            rows.append(result.row(name, values, _study_details(study)))
    return rows


def regrets(sources: Sources) -> list[PaperRow]:
    """Mean regret of every strategy by budget."""
    return [
        result.row(
            f"{_task(task.task)}, {method.method}",
            {f"{budget:g}": mean for budget, mean in zip(method.budgets, method.mean, strict=True)},
            _study_details(result.document),
        )
        for result in sources.of("mechrl")
        for task in result.document.regret
        for method in task.methods
    ]


def _task(name: str) -> str:
    return _TASKS.get(name, name)


def _condition(text: str) -> str:
    first, _, task = text.partition(" ")
    return f"primed {_task(task)}" if first == "primed" else text


def _study_details(study: MechrlStudy, method: str = "") -> str:
    seeds = f"{study.seeds} seed{'s' * (study.seeds > 1)} of {study.steps} steps"
    episodes = f"{study.episodes} episodes of {study.rows_per_episode} {study.batches} prompts"
    return ", ".join(filter(None, (study.mode, method, seeds, episodes)))


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _seeds(values: Sequence[float], study: MechrlStudy | None = None) -> str:
    """The figure of each seed; in paper mode a rank beyond the heads of a study is none."""
    beyond = study.heads if study is not None and study.mode == "paper" else float("inf")
    return ", ".join("–" if value > beyond else f"{value:.3g}" for value in values)
