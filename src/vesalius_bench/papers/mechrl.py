"""MechRL: Tables 1 to 4. Its text names no figure; learning curves and regret are drawn from our runs.

Every table is filled by `vesalius bench mechrl`. The published numbers are for GPT-2 small.
"""

from collections.abc import Sequence

from vesalius.documents.metric import Figure
from vesalius_bench.papers.documents import Cell, PaperRow
from vesalius_bench.papers.entries import Entry, PaperTables
from vesalius_bench.papers.sources import Sources
from vesalius_mechrl.documents import MechrlStudy

COMMAND = "vesalius bench mechrl MODEL --paper"
PUBLISHED_MODEL = "the published numbers are for GPT-2 small, ours for the model of your run"
TRANSFERRED = "docstring"
#: Names of tasks as the paper has them.
_TASKS = {"induction-out": "induction"}
_K = {"paper K=1": "K=1", "paper K=5": "K=5"}


def _gaps(sources: Sources) -> list[PaperRow]:
    """Table 1."""
    return [
        PaperRow(
            name=_task(row.task) + (" (held out)" if row.held_out else ""),
            source=_source(label, study, row.method),
            values={"policy": row.policy.value, "oracle": row.oracle.value, "gap": _interval(row.gap)},
        )
        for label, study in sources.documents("mechrl").items()
        for row in study.table1
    ]


def _ranks(sources: Sources) -> list[PaperRow]:
    """Table 2: the ranks of each seed; beyond the ten most picked there are none in paper mode."""
    return [
        PaperRow(
            name=row.head,
            source=_source(label, study, row.method),
            values={"policy_rank": _seeds(row.policy_ranks, beyond=_beyond(study)), "oracle_rank": row.oracle_rank},
        )
        for label, study in sources.documents("mechrl").items()
        for row in study.table2
    ]


def _overlaps(sources: Sources) -> list[PaperRow]:
    """Table 3: of each seed; a category that attention cannot tell has no overlap."""
    return [
        PaperRow(
            name=row.group,
            source=_source(label, study, row.method),
            values={"heads": row.size, "overlap": _seeds(row.overlap) or "not told by attention"},
        )
        for label, study in sources.documents("mechrl").items()
        for row in study.table3
    ]


def _transfers(sources: Sources) -> list[PaperRow]:
    """Table 4: policies of K = 1 and K = 5 side by side, other methods under their own names."""
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for label, study in sources.documents("mechrl").items():
        for row in study.table4:
            column = _K.get(row.method)
            parts = [] if row.task == TRANSFERRED else [row.task]
            parts += [] if column or (row.method == "random") or (row.method == "oracle") else [row.method]
            parts += [_condition(row.condition) or row.method]
            name = ", ".join(dict.fromkeys(parts))
            rows.setdefault((name, _source(label, study)), {})[column or "reward"] = row.found.value
    return [PaperRow(name=name, source=source, values=values) for (name, source), values in rows.items()]


def _curves(sources: Sources) -> list[PaperRow]:
    """The best reward in validation episodes at the end of training, mean over seeds."""
    rows = []
    for label, study in sources.documents("mechrl").items():
        for method, runs in study.curves.items():
            for task in runs[0][-1]["evaluation"]:
                last = [run[-1]["evaluation"][task] for run in runs]
                values = {"reward": sum(last) / len(last), "seeds": len(last)}
                rows.append(PaperRow(name=_task(task), source=_source(label, study, method), values=values))
    return rows


def _regrets(sources: Sources) -> list[PaperRow]:
    """Mean regret of every strategy by budget."""
    return [
        PaperRow(
            name=f"{_task(task.task)}, {method.method}",
            source=_source(label, study),
            values={f"{budget:g}": mean for budget, mean in zip(method.budgets, method.mean, strict=True)},
        )
        for label, study in sources.documents("mechrl").items()
        for task in study.regret
        for method in task.methods
    ]


def _task(name: str) -> str:
    return _TASKS.get(name, name)


def _condition(text: str) -> str:
    first, _, task = text.partition(" ")
    return f"primed {_task(task)}" if first == "primed" else text


def _source(label: str, study: MechrlStudy, method: str = "") -> str:
    named = f", {method}" if method else ""
    return f"measured: {label}, {study.specimen}, {study.mode}{named}, {study.seeds} seeds"


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _beyond(study: MechrlStudy) -> float:
    return study.heads if study.mode == "paper" else float("inf")


def _seeds(values: Sequence[float], *, beyond: float = float("inf")) -> str:
    return ", ".join("–" if value > beyond else f"{value:.3g}" for value in values)


TABLES = PaperTables(
    "mechrl",
    "MechRL paper",
    (
        Entry(
            "Table 1",
            "best reward of policy and oracle",
            ("mechrl",),
            COMMAND,
            f"{PUBLISHED_MODEL}; without --paper on matched episodes",
            _gaps,
            "mechrl",
        ),
        Entry(
            "Table 2",
            "ranks of the canonical induction heads",
            ("mechrl",),
            COMMAND,
            f"{PUBLISHED_MODEL}; in other models the heads that attend most like induction heads, each seed alone",
            _ranks,
            "mechrl",
        ),
        Entry(
            "Table 3",
            "heads of the IOI categories among the ten most picked",
            ("mechrl",),
            COMMAND,
            f"{PUBLISHED_MODEL}; in other models only categories that attention tells, each seed alone",
            _overlaps,
            "mechrl",
        ),
        Entry(
            "Table 4",
            "transfer to a held-out task",
            ("mechrl",),
            COMMAND,
            f"{PUBLISHED_MODEL}; further held-out tasks, and other strategies without --paper",
            _transfers,
            "mechrl",
        ),
        Entry(
            "Figure learning",
            "learning curves",
            ("mechrl",),
            COMMAND,
            "the paper's text has no figure; ours is drawn from the run",
            _curves,
            "mechrl",
        ),
        Entry(
            "Figure regret",
            "regret against queries paid",
            ("mechrl",),
            "vesalius bench mechrl MODEL",
            "the paper's text has no figure; ours is drawn from the run",
            _regrets,
            "mechrl",
        ),
    ),
)
