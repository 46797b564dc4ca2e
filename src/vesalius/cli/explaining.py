"""`explain` and `report`: say what each component does, with the experiments behind every sentence.

A run directory holds `explanation.json`, which any later command can read, and `report.html`, the evidence page; where
a language model explained, also `trace.json`, how it came about, and `calls.jsonl`, every call it made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.padding import Padding
from rich.text import Text

from vesalius.api import load
from vesalius.api.places import directory_for as out_directory
from vesalius.cli.console import print_json, stdout
from vesalius.cli.sets import SETS
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import ClaimRecord, Evidence, Explanation
from vesalius.errors import BadInput, Failed, note
from vesalius.explanations.circuits import explained_components
from vesalius.explanations.claims.interchange import ACCURACY
from vesalius.explanations.either import explain_either
from vesalius.explanations.hyve.verdicts import FREE_CODE
from vesalius.files import read_json, write_json
from vesalius.model.specimen import Specimen
from vesalius.model.states import fingerprint
from vesalius.progress import shown
from vesalius.report.discovery import CIRCUIT, NUMBERS, is_discovery, render_discovery
from vesalius.report.page import render_page
from vesalius.report.run import render_run
from vesalius.runs.directory import is_run, read_explanation

EXPLANATION, PAGE, TRACE = "explanation.json", "report.html", "trace.json"


@dataclass(frozen=True)
class Request:
    """What is to be explained; `circuit` is a file, `n`, `top` and `force` are for natural models."""

    specimen: str
    behaviour: str | None
    components: list[str] | None
    circuit: str | None
    n: int | None
    top: int | None
    force: bool
    seed: int

    def chosen(self, specimen: Specimen) -> list[str] | None:
        """The components asked for by name or by a circuit file; None where neither was given."""
        if self.circuit is None:
            return self.components
        if self.components is not None:
            raise BadInput("--components and --circuit both say what to explain; leave one out")
        found = explained_components(specimen, Circuit.read(Path(self.circuit)), source=self.circuit)
        _require_own(Path(self.circuit), specimen)
        return [str(part) for part in found or ()]


@dataclass(frozen=True)
class Asked:
    """The options that say which language model explains, and how."""

    scientist: str | None = None
    backbone: str | None = None
    protocol: str = "typed"
    base_url: str | None = None
    max_cost: float | None = None
    max_tokens: int = 4096
    prices: str | None = None
    record: str | None = None
    replay: str | None = None
    unsafe_sandbox: bool = False

    @property
    def by_model(self) -> bool:
        """Whether a language model explains; a backbone alone is enough to say so."""
        if self.scientist not in (None, "builtin", "hyve"):
            raise BadInput(f"--scientist {self.scientist!r} does not exist; use builtin or hyve")
        if self.scientist == "builtin" and self.backbone:
            raise BadInput(f"--backbone {self.backbone}: the built-in scientist uses none; give --scientist hyve")
        if self.scientist == "hyve" and not self.backbone:
            raise BadInput("--scientist hyve needs a language model; give --backbone, such as openai:gpt-5.4")
        if self.backbone and self.protocol not in ("typed", "paper"):
            raise BadInput(f"--protocol {self.protocol!r} does not exist; use typed or paper")
        return self.backbone is not None


def _require_own(circuit: Path, specimen: Specimen) -> None:
    """Where a discovery lies beside its circuit, refuse that of other weights, and name another behaviour."""
    numbers = circuit.with_name(NUMBERS)
    found = read_json(numbers) if circuit.name == CIRCUIT and numbers.is_file() else {}
    model, behaviour = found.get("model"), found.get("behaviour")
    if model is not None and model != (mine := fingerprint(specimen.model)):
        raise BadInput(
            f"{circuit}: found in model {model} ({found.get('specimen')}), not in this one ({mine}); discover again "
            "or copy the file elsewhere to explain it all the same"
        )
    if found and behaviour != specimen.behaviour:
        told = f"note: {circuit} was found for {behaviour} and is explained for {specimen.behaviour}"
        note(told)


def explain(request: Request, *, out: str | None, device: str, as_json: bool, asked: Asked | None = None) -> None:
    """Explain a specimen, save the explanation and its page, and print it."""
    asked = asked or Asked()
    by_model = asked.by_model
    if by_model and (request.n is not None or request.top is not None or request.force):
        raise BadInput("--n, --top and --force are for natural models, which HyVE does not explain; leave them out")
    specimen = load(request.specimen, behaviour=request.behaviour, device=device)
    components = request.chosen(specimen)
    with shown() as status:
        if by_model:
            directory = out_directory(out, "explain", specimen.name, "hyve", asked.protocol, f"seed{request.seed}")
            seed = request.seed
            found = _by_model(
                specimen,
                asked,
                directory,
                components=components,
                seed=seed,
                progress=status,
            )
        else:
            found = explain_either(
                specimen,
                components,
                n=request.n,
                top=request.top,
                force=request.force,
                seed=request.seed,
                progress=status,
            )
            directory = out_directory(out, "explain", specimen.name, specimen.behaviour, f"seed{request.seed}")
    write_json(directory / EXPLANATION, found.model_dump(mode="json"))
    page = render_page(found, directory / PAGE, specimen=specimen)
    if as_json:
        return print_json(found.model_dump(mode="json"))
    _print(found)
    stdout.print(f"evidence page: {page}", soft_wrap=True)
    return None


def _by_model(
    specimen: Specimen,
    asked: Asked,
    directory: Path,
    *,
    components: list[str] | None,
    seed: int,
    progress: Callable[[str, int, int], None],
) -> Explanation:
    """Let a language model explain; its calls are recorded, so the same command goes on where it was stopped."""
    from vesalius.backbones import open_backbone
    from vesalius.explanations.hyve import explain_hyve

    backbone = open_backbone(
        asked.backbone or "",
        base_url=asked.base_url,
        max_tokens=asked.max_tokens,
        record=None if asked.replay else asked.record or directory,
        replay=asked.replay,
        prices=asked.prices,
        cap=asked.max_cost,
    )
    with backbone:
        found = explain_hyve(
            specimen,
            backbone=backbone.within(f"{specimen.id} {asked.protocol} seed {seed}"),
            protocol=cast(Any, asked.protocol),
            components=components,
            seed=seed,
            sandbox_unsafe=asked.unsafe_sandbox,
            progress=progress,
        )
    write_json(directory / TRACE, found.trace.model_dump(mode="json"))
    return found.explanation


def report(run: str, *, as_json: bool) -> None:
    """Render the pages of a run directory again: the evidence page, a discovery's, or all pages of a benchmark."""
    directory = Path(run)
    if not directory.is_dir():
        raise BadInput(f"{run}: no such directory; name one made by `vesalius explain`, `discover` or `bench`")
    if is_run(directory):
        with shown() as tell:
            page = render_run(directory, progress=tell)
    elif is_discovery(directory):
        page = render_discovery(directory)
    elif (directory / SETS).is_file():
        raise BadInput(f"{run}: sets of heads have no page; {SETS} holds the numbers and synergy.png draws all pairs")
    else:
        found = read_explanation(directory / EXPLANATION)
        page = render_page(found, directory / PAGE, specimen=_specimen_of(found))
    print_json({"page": str(page)}) if as_json else stdout.print(str(page), soft_wrap=True)


def _specimen_of(found: Explanation) -> Specimen | None:
    """The specimen explained, or None where it is no longer there."""
    try:
        return load(found.specimen, behaviour=found.behaviour)
    except (BadInput, Failed):
        return None


def _telling(claim: ClaimRecord) -> Evidence | None:
    """The figure to print beside a claim: interchange accuracy where it was measured, else the first."""
    accuracy = (evidence for evidence in claim.evidence if evidence.measure == ACCURACY)
    return next(accuracy, claim.evidence[0] if claim.evidence else None)


def _print(found: Explanation) -> None:
    stdout.print(f"[bold]{found.specimen}[/bold]", highlight=False)
    stdout.print(found.task_description, markup=False)
    for part in found.components:
        stdout.print(f"\n[bold]{part.id}[/bold]  {part.role or part.tag}  ({part.verdict})", highlight=False)
        stdout.print(Padding(Text(part.note), (0, 0, 0, 2)))
        for claim in part.claims:
            evidence = _telling(claim)
            shown = (
                f" {evidence.value:.3f} [{evidence.low:.3f}, {evidence.high:.3f}], n = {evidence.n}"
                if (evidence and evidence.value is not None and evidence.low is not None and evidence.high is not None)
                else ""
            )
            by = " (by the language model)" if claim.kind == FREE_CODE else ""
            line = Text(f"{claim.verdict}{by}: {claim.text}{shown}")
            stdout.print(Padding(line, (0, 0, 0, 4)), highlight=False)
    stdout.print(f"\n{found.information_flow}", markup=False)
    if found.program:
        stdout.print(f"\n{found.program}", markup=False, highlight=False, soft_wrap=True)
    if found.program_agreement and found.program_agreement.value is not None:
        stdout.print(
            f"\nthe program gives the model's outputs on {found.program_agreement.value:.3f} of fresh sequences"
        )
