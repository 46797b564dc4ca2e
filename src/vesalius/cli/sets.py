"""`discover --method sets`: which heads matter together, and which back each other up."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from vesalius.api import load
from vesalius.api.notes import note_unperformed as warn_unperformed
from vesalius.api.places import directory_for as out_directory
from vesalius.api.places import removed_if_empty as leaving_nothing_empty
from vesalius.cli.console import print_json, stdout
from vesalius.discovery.sets.discover import NAMES, SetDiscovery, discover_sets
from vesalius.discovery.sets.queries import LEAST_SHARE
from vesalius.discovery.sets.synergy import synergy_matrix
from vesalius.errors import BadInput, choices
from vesalius.files import write_json
from vesalius.intervene import KINDS
from vesalius.progress import shown
from vesalius.report.synergy import draw_synergy

SCHEMA, SETS = 1, "sets.json"


@dataclass(frozen=True)
class Request:
    """Everything the answer depends on, apart from the weights."""

    specimen: str
    behaviour: str | None
    method: str
    search: str
    budget: int | None
    pool: list[str] | None
    kind: str
    least: float
    n: int
    seed: int

    def words(self, name: str) -> tuple[str | None, ...]:
        """The parts of the directory's name, where none was asked for: whatever decides what is found."""
        pool = None if self.pool is None else hashlib.sha256(",".join(self.pool).encode()).hexdigest()[:8]
        return (
            "sets",
            name,
            self.behaviour,
            self.search,
            self.kind,
            None if pool is None else f"pool{pool}",
            None if self.budget is None else f"budget{self.budget}",
            None if self.least == LEAST_SHARE else f"least{self.least:g}",
            f"n{self.n}",
            f"seed{self.seed}",
        )


def run(request: Request, *, out: str | None, top: int, device: str, as_json: bool, force: bool = False) -> None:
    """Search, confirm, write and report."""
    if request.search not in NAMES:
        raise BadInput(f"search {request.search!r} does not exist; choose one of {choices(NAMES)}")
    if request.kind not in KINDS:
        raise BadInput(f"kind {request.kind!r} does not exist; choose one of {choices(KINDS)}")
    specimen = load(request.specimen, behaviour=request.behaviour, device=device)
    directory = out_directory(out, *request.words(specimen.name))
    with leaving_nothing_empty(directory), shown() as tell:
        found = discover_sets(
            specimen,
            request.search,
            pool=request.pool,
            budget=request.budget,
            kind=request.kind,
            least=request.least,
            n=request.n,
            seed=request.seed,
            directory=directory / "effects",
            force=force,
            progress=tell,
        )
    document: dict[str, Any] = {**found.document(), "schema": SCHEMA, **asdict(request), "directory": str(directory)}
    document |= {"pool": list(found.queries.source.heads), "budget": found.queries.budget}
    warn_unperformed(specimen.name, request.behaviour, found.performance)
    if found.synergies:
        document["picture"] = str(_picture(found, request, directory))
    write_json(directory / SETS, document)
    if as_json:
        return print_json(document)
    _print(document, top)
    return None


def _picture(found: SetDiscovery, request: Request, directory: Path) -> Path:
    heads, marked = found.queries.source.heads, [s.heads for s in found.synergies if s.verdict != "none"]
    subject = ", ".join(filter(None, (Path(request.specimen).name, request.behaviour)))
    return draw_synergy(
        synergy_matrix(heads, found.synergies),
        heads,
        directory / "synergy.png",
        title=f"{subject}: pairs, {request.kind} ablation, {request.n} prompts",
        unit=found.queries.source.unit,
        marked=marked,
    )


def _print(document: dict[str, Any], top: int) -> None:
    metrics = document["metrics"]
    stdout.print(
        f"clean {metrics['clean']:.3f} {document['unit']}; effect = clean minus edited, value = effect less "
        f"{document['price']:.3g} per head",
        soft_wrap=True,
    )
    table = Table("set", "effect", "95 % interval", "value", box=None)
    for row in document["sets"][: min(top, 5)]:
        shown = " ".join(row["heads"][:8]) + (f" ... ({len(row['heads'])})" if len(row["heads"]) > 8 else "")
        table.add_row(shown, *_effect(row), f"{row['value']:+.3f}")
    stdout.print(table)
    groups = Table("backup group", "together", "95 % interval", "alone", "sum alone", "synergy", box=None)
    for row in document["backup_groups"][:top]:
        alone = " ".join(f"{member['effect']:+.3f}" for member in row["alone"])
        surplus = f"{row['sum_alone']:+.3f}", f"{row['synergy']:+.3f}"
        groups.add_row(" ".join(row["heads"]), *_effect(row), alone, *surplus)
    stdout.print(groups if document["backup_groups"] else "no backup group held on the held-out prompts")
    stdout.print(
        f"{document['search']} search: {metrics['queries']} of {document['budget']} queries"
        f"{'' if document['complete'] else ' (budget spent)'}, {metrics['queries_to_confirm']} to confirm; "
        f"all pairs: {metrics['all_pairs']}; {document['forwards']:.1f} forward-equivalents, "
        f"{document['seconds']:.1f} s",
        soft_wrap=True,
    )
    for name in ("picture", "directory"):
        if name in document:
            stdout.print(f"{name}: {document[name]}", soft_wrap=True)


def _effect(row: dict[str, Any]) -> tuple[str, str]:
    return f"{row['effect']:+.3f}", f"[{row['low']:+.3f}, {row['high']:+.3f}]"
