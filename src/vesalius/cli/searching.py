"""`bench mechrl`: the published tables of MechRL on a natural model, as published and corrected."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from vesalius.behaviours.controls import factbook
from vesalius.behaviours.natural import require_performance
from vesalius.cli.catalogue import open_specimen
from vesalius.cli.console import print_json, stderr, stdout, steps, warn_unperformed
from vesalius.cli.places import out_directory
from vesalius.discovery.mechrl.environment import PAPER_QUIRKS
from vesalius.discovery.mechrl.study import Scope, study, train_policies, trainings
from vesalius.discovery.mechrl.suite import (
    CONTROL,
    PAPER_TRAINING,
    SIZES,
    TRAINING,
    Plan,
    load_suite,
    measure_suite,
    missing_sources,
)
from vesalius.errors import BadInput, choices
from vesalius.files import write_json
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.report.regret import draw_learning, draw_regret
from vesalius.runs.training import train_apart

SCHEMA = 1


@dataclass(frozen=True)
class Request:
    """What to study."""

    specimen: str
    paper: bool
    seeds: int
    steps: int
    episodes: int
    size: str
    training: tuple[str, ...]
    held_out: tuple[str, ...]

    def plan(self) -> Plan:
        """What is measured for it."""
        if self.size not in SIZES:
            raise BadInput(f"size {self.size!r} does not exist; choose one of {choices(SIZES)}")
        training = self.training or (PAPER_TRAINING if self.paper else TRAINING)
        return replace(SIZES[self.size], training=training, held_out=self.held_out)


def bench(request: Request, *, matrices: str | None, jobs: int, out: str | None, device: str, as_json: bool) -> None:
    """Measure what is missing, train what is missing, and print the tables."""
    mode, plan = "paper" if request.paper else "corrected", request.plan()
    directory = out_directory(out, "bench-mechrl", Path(request.specimen).name, request.size)
    effects = Path(matrices) if matrices else directory / "matrices"
    if effects.exists() and not effects.is_dir():
        raise BadInput(f"--matrices {effects}: not a directory; name one of effect matrices, or an empty one")
    specimen = open_specimen(request.specimen, None, device=device)
    with steps() as tell:
        if missing := missing_sources(effects, plan):
            _warn_of_unperformed(specimen, [source for source in missing if source != CONTROL])
            measure_suite(specimen, factbook(), effects, plan=plan, progress=tell)
        suite = load_suite(effects, plan=plan, model=specimen.model)
        scope = Scope(request.paper, request.seeds, request.steps, request.episodes)
        wanted = trainings(scope, directory / "policies")
        tell("training policies", 0, len(wanted))
        for done, training in enumerate(train_apart(wanted, effects, plan, jobs=jobs), 1):
            tell(f"trained {training.name}, seed {training.settings.seed}", done, len(wanted))
        policies = train_policies(suite, wanted)
        tell("playing", 0, 1)
        found = study(suite, policies, scope)
    document = {
        "schema": SCHEMA,
        "benchmark": "mechrl",
        "specimen": specimen.name,
        **found,
        "quirks": PAPER_QUIRKS if request.paper else {},
    }
    title, regret = f"{specimen.name}, {mode}", directory / f"regret-{mode}.png"
    pictures = [
        draw_regret(found["regret"], regret, title=title, held_out=plan.held_out),
        draw_learning(found["curves"], directory / f"learning-{mode}.png", title=title),
    ]
    write_json(directory / f"mechrl-{mode}.json", document)
    if as_json:
        return print_json(document)
    show(document)
    stdout.print(f"numbers: {directory / f'mechrl-{mode}.json'}", soft_wrap=True)
    for picture in pictures:
        stdout.print(f"picture: {picture}", soft_wrap=True)
    return None


def _warn_of_unperformed(specimen: Specimen, behaviours: Sequence[str]) -> None:
    """Heads that a model needs for what it does not do are noise; the tables are made all the same."""
    if isinstance(specimen.vocabulary, TextVocabulary):
        measured = {name: require_performance(replace(specimen, behaviour=name), force=True) for name in behaviours}
        for name, performance in measured.items():
            warn_unperformed(specimen.name, name, performance)


def show(document: dict[str, Any]) -> None:
    """Print the tables in the published form."""
    for name, quirk in document["quirks"].items():
        stderr.print(f"paper mode, {name}: {quirk}", markup=False, soft_wrap=True)
    _print("Table 1: best reward found and the best there is", _gaps(document))
    _print("Table 2: rank of the heads that look like induction heads", _ranks(document))
    _print("Table 3: groups among the ten most picked heads", _groups(document))
    _print("Table 4: transfer to tasks never trained on", _transfer(document))
    _print("Regret against queries paid", _regret(document))
    for line in conclusions(document):
        stdout.print(line, markup=False, soft_wrap=True)


def conclusions(document: dict[str, Any]) -> list[str]:
    """One line per task: at which budgets a learned policy wins, draws and loses, and against whom."""
    lines = []
    for task in dict.fromkeys(row["task"] for row in document["verdicts"]):
        rows = [row for row in document["verdicts"] if row["task"] == task]
        parts = []
        for result in ("wins", "draw", "loses"):
            at = [f"{row['budget']:g} ({row['policy']} / {row['rival']})" for row in rows if row["result"] == result]
            parts += [f"{result} at {', '.join(at)}"] if at else []
        held = " (held out)" if rows[0]["held_out"] else ""
        lines.append(f"{task}{held}: RL {'; '.join(parts)}")
    return lines


def _gaps(document: dict[str, Any]) -> Table:
    table = Table("task", "method", "policy", "oracle", "gap", box=None)
    for row in document["table1"]:
        task = f"{row['task']} (held-out)" if row["held_out"] else row["task"]
        table.add_row(task, row["method"], *(_interval(row[name]) for name in ("policy", "oracle", "gap")))
    return table


def _ranks(document: dict[str, Any]) -> Table:
    table = Table("head", "method", "policy rank (each seed)", "oracle rank", box=None)
    beyond = document["heads"] if document["mode"] == "paper" else float("inf")
    for row in document["table2"]:
        ranks = ", ".join("-" if rank > beyond else f"{rank:g}" for rank in row["policy_ranks"])
        table.add_row(row["head"], row["method"], ranks, f"{row['oracle_rank']:g}")
    return table


def _groups(document: dict[str, Any]) -> Table:
    table = Table("group", "heads", "method", "overlap (each seed)", box=None)
    for row in document["table3"]:
        table.add_row(
            row["group"], str(row["size"]), row["method"], ", ".join(f"{part:.3g}" for part in row["overlap"])
        )
    return table


def _transfer(document: dict[str, Any]) -> Table:
    table = Table("task", "method", "condition", "best reward found", box=None)
    for row in document["table4"]:
        table.add_row(row["task"], row["method"], row["condition"], _interval(row["found"]))
    return table


def _regret(document: dict[str, Any]) -> Table:
    budgets = document["regret"][0]["methods"][0]["budgets"]
    table = Table("task", "method", *(f"{budget:g}" for budget in budgets), box=None)
    for found in document["regret"]:
        for method in found["methods"]:
            table.add_row(found["task"], method["method"], *(f"{mean:.2f}" for mean in method["mean"]))
    return table


def _interval(figure: dict[str, Any]) -> str:
    if figure["low"] is None:
        return f"{figure['value']:.3f}"
    return f"{figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"


def _print(title: str, table: Table) -> None:
    stdout.print(f"\n[bold]{title}[/bold]")
    stdout.print(table)
