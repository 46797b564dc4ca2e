"""`sweep`: effects of all components, saved as they come, with a table and a picture.

The edited scores are written to `scores.safetensors` after every portion of work, together with a key that stands
for everything they depend on. The same command finds them again and computes only what is missing.
"""

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from rich.table import Table
from torch import Tensor

from vesalius.api import sweep_sets
from vesalius.behaviours.trial import Trial, trial
from vesalius.cli.catalogue import open_specimen
from vesalius.cli.console import print_json, progress, stdout
from vesalius.cli.places import out_directory
from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.intervene import Cost, Recordings
from vesalius.intervene.effects import KINDS, ComponentSet, Effects, Replacement, effect_columns
from vesalius.model.files import read_tensors, write_tensors
from vesalius.model.specimen import Specimen
from vesalius.report.heatmap import draw_heatmap
from vesalius.statistics import mean_interval
from vesalius.version import __version__

ROWS_BETWEEN_SAVES = 512
SCHEMA = 1


@dataclass(frozen=True)
class Request:
    """Everything the numbers depend on, apart from the weights."""

    specimen: str
    behaviour: str | None
    kind: str
    pairs: bool
    components: list[str] | None
    n: int
    seed: int
    split: str


def run(request: Request, *, out: str | None, top: int, device: str, as_json: bool) -> None:
    """Do the sweep and report it."""
    if request.kind not in KINDS:
        raise BadInput(f"kind {request.kind!r} does not exist; choose one of {', '.join(KINDS)}")
    specimen = open_specimen(request.specimen, request.behaviour, device=device)
    sets = list(sweep_sets(specimen, request.components, pairs=request.pairs))
    material = trial(specimen, request.n, seed=request.seed, split=request.split)
    directory = _directory(request, specimen, out)
    found = _measure(request, specimen, sets, material, directory)
    document = _document(request, found, directory)
    if not request.pairs:
        document["heatmap"] = str(_picture(specimen, request, found, directory))
    write_json(directory / "sweep.json", document)
    if as_json:
        return print_json(document)
    _print(document, top)
    return None


def _measure(
    request: Request, specimen: Specimen, sets: list[ComponentSet], material: Trial, directory: Path
) -> Effects:
    """Compute what the directory does not hold yet, saving as it goes."""
    start, cost = time.perf_counter(), Cost()
    store = _Store(directory, _key(request, specimen), len(material.batch), len(sets))
    recordings = Recordings(specimen.model, material.batch.to(specimen.model.device), material.readout)
    baseline = recordings.scores().cpu()
    cost.rows += request.n
    missing = store.missing()
    if missing:
        replacement = Replacement.of_kind(
            request.kind, specimen.model, material.batch, counterfactual=material.counterfactual
        )
        with progress(f"{request.kind} sweep of {len(missing)} {'pairs' if request.pairs else 'components'}") as tell:
            parts = effect_columns(
                recordings,
                replacement,
                [sets[i] for i in missing],
                positions=material.where if request.kind == "resample" else None,
                cost=cost,
                progress=tell,
                block=ROWS_BETWEEN_SAVES,
            )
            for span, scores in parts:
                store.add([missing[i] for i in span], scores, cost.rows, time.perf_counter() - start)
    matrix = baseline[:, None] - store.scores
    forwards, seconds = store.spent(cost.rows, time.perf_counter() - start)
    return Effects(tuple(sets), baseline, matrix, request.kind, material.readout.unit, forwards / request.n, seconds)


class _Store:
    """Edited scores on disk, NaN where not yet computed, with their key and the work they took.

    One file holds all three, so that numbers are never read under another request's key. A file that is damaged or
    belongs to another request counts as absent.
    """

    def __init__(self, directory: Path, key: bytes, n_prompts: int, n_sets: int) -> None:
        self.path = directory / "scores.safetensors"
        self.scores: Float[Tensor, "prompt set"] = torch.full((n_prompts, n_sets), torch.nan)
        self._key, self._before = torch.tensor(list(key), dtype=torch.uint8), (0.0, 0.0)
        try:
            saved = read_tensors(self.path)
        except BadInput:
            return
        if set(saved) == {"key", "scores", "spent"} and torch.equal(saved["key"], self._key):
            self.scores, self._before = saved["scores"], tuple(saved["spent"].tolist())

    def missing(self) -> list[int]:
        """Sets without scores."""
        return self.scores.isnan().any(0).nonzero()[:, 0].tolist()

    def add(self, columns: list[int], scores: Tensor, forwards: float, seconds: float) -> None:
        """Keep finished columns."""
        if not bool(scores.isfinite().all()):
            raise BadInput("the model's logits are not finite on these prompts; check its weights for overflow")
        self.scores[:, columns] = scores
        spent = torch.tensor(self.spent(forwards, seconds), dtype=torch.float64)
        write_tensors(self.path, {"key": self._key, "scores": self.scores, "spent": spent})

    def spent(self, forwards: float, seconds: float) -> tuple[float, float]:
        """Work of this and of earlier runs on the same numbers."""
        return self._before[0] + forwards, self._before[1] + seconds


def _key(request: Request, specimen: Specimen) -> bytes:
    """A digest of the request, the program's version and the weights."""
    digest = hashlib.sha256(json.dumps([asdict(request), __version__], sort_keys=True).encode())
    for name, weight in specimen.model.named_parameters():
        exact = weight.cpu().double()
        digest.update(f"{name} {tuple(weight.shape)} {exact.sum().item()} {exact.abs().sum().item()}".encode())
    return digest.digest()


def _directory(request: Request, specimen: Specimen, out: str | None) -> Path:
    words = [
        "sweep",
        specimen.name,
        request.behaviour,
        request.kind,
        "pairs" if request.pairs else None,
        f"n{request.n}",
        f"seed{request.seed}",
    ]
    return out_directory(out, *words)


def _document(request: Request, found: Effects, directory: Path) -> dict[str, Any]:
    low, high = found.interval(seed=request.seed)
    rows = [
        {"id": "+".join(map(str, members)), "effect": float(mean), "ci_low": float(a), "ci_high": float(b)}
        for members, mean, a, b in zip(found.sets, found.mean, low, high, strict=True)
    ]
    rows.sort(key=lambda row: -row["effect"])
    base_low, base_high = (float(x) for x in mean_interval(found.baseline[:, None], seed=request.seed))
    return {
        "schema": SCHEMA,
        **asdict(request),
        "unit": found.unit,
        "baseline": float(found.baseline.mean()),
        "baseline_low": base_low,
        "baseline_high": base_high,
        "components": rows,
        "forwards": found.forwards,
        "seconds": found.seconds,
        "directory": str(directory),
    }


def _picture(specimen: Specimen, request: Request, found: Effects, directory: Path) -> Path:
    config = specimen.model.config
    subject = f"{specimen.name}, {request.behaviour}" if request.behaviour else specimen.name
    title = f"{subject}: {request.kind} ablation, {request.n} prompts"
    means = {members[0]: float(mean) for members, mean in zip(found.sets, found.mean, strict=True)}
    path = directory / "heatmap.png"
    return draw_heatmap(means, path, title=title, unit=found.unit, n_layers=config.n_layers, n_heads=config.n_heads)


def _print(document: dict[str, Any], top: int) -> None:
    what = "pair" if document["pairs"] else "component"
    table = Table(
        what,
        "effect",
        "95 % interval",
        box=None,
        title=f"clean {document['baseline']:.3f} {document['unit']}; effect = clean minus edited",
    )
    rows = sorted(document["components"], key=lambda row: -abs(row["effect"]))[:top]
    for row in sorted(rows, key=lambda row: -row["effect"]):
        table.add_row(row["id"], f"{row['effect']:+.3f}", f"[{row['ci_low']:+.3f}, {row['ci_high']:+.3f}]")
    stdout.print(table)
    stdout.print(
        f"{len(document['components'])} {what}s, {document['n']} prompts, "
        f"{document['forwards']:.1f} forward-equivalents, {document['seconds']:.1f} s"
    )
    if "heatmap" in document:
        stdout.print(f"heatmap: {document['heatmap']}", soft_wrap=True)
    stdout.print(f"numbers: {document['directory']}/sweep.json", soft_wrap=True)
