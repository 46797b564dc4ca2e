"""An explanation: a summary of one screen, or every claim."""

import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.padding import Padding
from rich.text import Text

from vesalius.api.explanations import ACCURACY, FREE_CODE
from vesalius.cli.console import print_line, stdout
from vesalius.documents import ClaimRecord, ComponentExplanation, Evidence, Explanation
from vesalius.documents.explanation import NO_TAG

#: A screen: the summary never has more lines than this, nor longer ones.
LINES, COLUMNS = 24, 100
#: Lines of the description and of the program that a summary shows.
DESCRIPTION_LINES, PROGRAM_LINES = 3, 6


def print_explanation(explanation: Explanation, *, claims: bool = False) -> None:
    """The summary; with `claims` also every claim with its evidence."""
    for line in summary(explanation):
        print_line(line)
    if claims:
        _print_claims(explanation)


def summary(explanation: Explanation) -> list[str]:
    """What was found, in at most `LINES` lines of `COLUMNS` characters, the page's path as the last."""
    asked = explanation.request and explanation.request.specimen
    subject = ", ".join(filter(None, (asked or explanation.specimen, explanation.behaviour)))
    head = f"{subject}, explained by {explanation.scientist}"
    description = _wrapped(explanation.task_description, DESCRIPTION_LINES)
    program = _program(explanation.program)
    counts = [f"components: {_tally(part.verdict for part in explanation.components)}"]
    counts += [f"claims: {_tally(claim.verdict for part in explanation.components for claim in part.claims)}"]
    agreement = explanation.program_agreement
    if agreement is not None and agreement.value is not None:
        counts.append(f"the program gives the model's outputs on {agreement.value:.3f} of {agreement.n} fresh inputs")
    page = [] if explanation.directory is None else [f"page: {Path(explanation.directory) / 'report.html'}"]
    fixed = [head, *description, "", *program, *counts, *page]
    parts = _components(explanation.components, LINES - len(fixed))
    return [_cut(line) for line in [head, *description, "", *parts, *program, *counts]] + page


def _components(parts: tuple[ComponentExplanation, ...], room: int) -> list[str]:
    """One line each: name, role or tag, verdict, what it computes; those supported come first where not all fit."""
    if not parts:
        return []
    shown = list(parts)
    if len(shown) + 1 > room:
        shown = sorted(shown, key=lambda part: part.verdict != "supported")[: room - 2]
        shown.sort(key=parts.index)
    rows = [(part.id, part.role or part.tag or NO_TAG, part.verdict, _computes(part)) for part in shown]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    widths[1] = min(widths[1], 40)
    lines = [
        "  ".join([*(text[:width].ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    left_out = len(parts) - len(shown)
    return [*lines, *([f"and {left_out} more: --claims prints them"] if left_out else []), ""]


def _computes(part: ComponentExplanation) -> str:
    """The variable a component computes, or the first sentence about it."""
    text = part.program or part.note
    text = " ".join(text.split()).removeprefix(f"{part.id} = ")
    return text if part.program else text.split(". ")[0]


def _program(program: str | None) -> list[str]:
    """The lines that compute something; those before the first blank line say what the program is for."""
    if not program:
        return []
    _, _, body = program.strip().partition("\n\n")
    lines = (body or program).strip().splitlines()
    shown = lines if len(lines) <= PROGRAM_LINES else lines[: PROGRAM_LINES - 1]
    more = [] if len(shown) == len(lines) else [f"({len(lines) - len(shown)} more lines: --claims prints them)"]
    return [*shown, *more, ""]


def _tally(verdicts: Iterable[str]) -> str:
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("supported", "refuted", "untested"))


def _wrapped(text: str, most: int) -> list[str]:
    return textwrap.wrap(text, COLUMNS, max_lines=most, placeholder=" ...") or [""]


def _cut(line: str) -> str:
    return line.rstrip() if len(line) <= COLUMNS else f"{line[: COLUMNS - 4]} ..."


def _print_claims(explanation: Explanation) -> None:
    stdout.print(f"\n{explanation.task_description}", markup=False)
    for part in explanation.components:
        stdout.print(f"\n[bold]{part.id}[/bold]  {part.role or part.tag or NO_TAG}  ({part.verdict})", highlight=False)
        stdout.print(Padding(Text(part.note), (0, 0, 0, 2)))
        for claim in part.claims:
            by = " (by the language model)" if claim.kind == FREE_CODE else ""
            line = Text(f"{claim.verdict}{by}: {claim.text}{_figure(claim)}")
            stdout.print(Padding(line, (0, 0, 0, 4)), highlight=False)
    stdout.print(f"\n{explanation.information_flow}", markup=False)
    if explanation.program:
        stdout.print(f"\n{explanation.program}", markup=False, highlight=False)


def _figure(claim: ClaimRecord) -> str:
    """The figure beside a claim: interchange accuracy where it was measured, else the first."""
    accuracy: Iterable[Evidence] = (evidence for evidence in claim.evidence if evidence.measure == ACCURACY)
    evidence = next(iter(accuracy), claim.evidence[0] if claim.evidence else None)
    if evidence is None or evidence.value is None or evidence.low is None or evidence.high is None:
        return ""
    return f" {evidence.value:.3f} [{evidence.low:.3f}, {evidence.high:.3f}], n = {evidence.n}"
