"""`explain` and `report`: say what each component does, with the experiments behind every sentence.

A run directory holds `explanation.json`, which any later command can read, and `report.html`, the evidence page.
"""

from dataclasses import dataclass
from pathlib import Path

from rich.padding import Padding

from vesalius.cli.catalogue import open_specimen
from vesalius.cli.console import print_json, stderr, stdout, steps
from vesalius.cli.places import out_directory
from vesalius.errors import BadInput, Failed
from vesalius.explain.claims.interchange import ACCURACY
from vesalius.explain.either import explain_either
from vesalius.explain.explanation import ClaimRecord, Evidence, Explanation
from vesalius.model.files import write_json
from vesalius.model.specimen import Specimen
from vesalius.report.page import render_page
from vesalius.report.run import render_run
from vesalius.runs.directory import is_run, read_explanation

EXPLANATION, PAGE = "explanation.json", "report.html"


@dataclass(frozen=True)
class Request:
    """What is to be explained; `n`, `top` and `force` are for natural models."""

    specimen: str
    behaviour: str | None
    components: list[str] | None
    n: int | None
    top: int | None
    force: bool
    seed: int


def explain(request: Request, *, out: str | None, device: str, as_json: bool) -> None:
    """Explain a specimen, save the explanation and its page, and print it."""
    specimen = open_specimen(request.specimen, request.behaviour, device=device)
    with stderr.status(f"explaining {specimen.name}") as status:
        found = explain_either(
            specimen,
            request.components,
            n=request.n,
            top=request.top,
            force=request.force,
            seed=request.seed,
            progress=status.update,
        )
    directory = out_directory(out, "explain", specimen.name, specimen.behaviour, f"seed{request.seed}")
    write_json(directory / EXPLANATION, found.model_dump(mode="json"))
    page = render_page(found, directory / PAGE, specimen=specimen)
    if as_json:
        return print_json(found.model_dump(mode="json"))
    _print(found)
    stdout.print(f"evidence page: {page}", soft_wrap=True)
    return None


def report(run: str, *, as_json: bool) -> None:
    """Render the pages of a run directory again: the evidence page, or all pages of a benchmark."""
    directory = Path(run)
    if is_run(directory):
        with steps() as tell:
            page = render_run(directory, progress=tell)
    else:
        found = read_explanation(directory / EXPLANATION)
        page = render_page(found, directory / PAGE, specimen=_specimen_of(found))
    print_json({"page": str(page)}) if as_json else stdout.print(str(page), soft_wrap=True)


def _specimen_of(found: Explanation) -> Specimen | None:
    """The specimen explained, or None where it is no longer there."""
    try:
        return open_specimen(found.specimen, found.behaviour)
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
        stdout.print(Padding(part.note, (0, 0, 0, 2)))
        for claim in part.claims:
            evidence = _telling(claim)
            shown = (
                f" {evidence.value:.3f} [{evidence.low:.3f}, {evidence.high:.3f}], n = {evidence.n}"
                if (evidence and evidence.value is not None and evidence.low is not None and evidence.high is not None)
                else ""
            )
            stdout.print(Padding(f"{claim.verdict}: {claim.text}{shown}", (0, 0, 0, 4)), highlight=False)
    stdout.print(f"\n{found.information_flow}", markup=False)
    if found.program:
        stdout.print(f"\n{found.program}", markup=False, highlight=False)
    if found.program_agreement and found.program_agreement.value is not None:
        stdout.print(
            f"\nthe program gives the model's outputs on {found.program_agreement.value:.3f} of fresh sequences"
        )
