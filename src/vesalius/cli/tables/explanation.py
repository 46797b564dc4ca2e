"""An explanation: a summary of one screen, or every claim."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.padding import Padding
from rich.text import Text

from vesalius.api.explanations import ACCURACY, FREE_CODE
from vesalius.cli.console import print_line, stdout
from vesalius.documents import ClaimRecord, ComponentExplanation, Evidence, Explanation
from vesalius.documents.explanation import NO_TAG
from vesalius.documents.summary import GAPS_HEADING, PATHS_HEADING, verdict_counts

#: A screen: the summary never has more lines than this, nor longer ones; that of a natural model has a few more lines.
LINES, NATURAL_LINES, COLUMNS = 24, 30, 100
#: Lines of the description and of the program that a summary shows.
DESCRIPTION_LINES, PROGRAM_LINES = 3, 6
#: Lines about what is not established that are kept free.
GAP_LINES = 6


def print_explanation(explanation: Explanation, *, claims: bool = False) -> None:
    """The summary; with `claims` also every claim with its evidence."""
    for line in summary(explanation):
        print_line(line)
    if claims:
        _print_claims(explanation)


def summary(explanation: Explanation) -> list[str]:
    """What was found, in at most `LINES` lines of `COLUMNS` characters, the page's path as the last."""
    if explanation.behaviour is not None:
        return _natural(explanation)
    head = explanation.title
    description = _wrapped(explanation.task_description, DESCRIPTION_LINES)
    program = _program(explanation.program)
    counts = [f"components: {verdict_counts(part.verdict for part in explanation.components)}"]
    counts += [f"claims: {verdict_counts(sum((part.decided for part in explanation.components), Counter()))}"]
    agreement = explanation.program_agreement
    if agreement is not None and agreement.value is not None:
        counts.append(f"the program gives the model's outputs on {agreement.value:.3f} of {agreement.n} fresh inputs")
    page = _page(explanation)
    fixed = [head, *description, "", *program, *counts, *page]
    parts = _components(explanation.components, LINES - len(fixed))
    return [_cut(line) for line in [head, *description, "", *parts, *program, *counts]] + page


def _natural(explanation: Explanation) -> list[str]:
    """The screen of a natural model: sentences, the connected part of the circuit, what is not established."""
    screen, page = explanation.in_short(), _page(explanation)
    sentences = [line for text in screen.sentences for line in _wrapped(text, DESCRIPTION_LINES)]
    counts = f"claims: {screen.verdicts}; --claims prints them with their evidence"
    head = [_cut(screen.title), *sentences, ""]
    foot = [counts, *page]
    path_lines = [
        part for line in screen.path_lines for part in textwrap.wrap(line, COLUMNS - 4, subsequent_indent="  ")
    ]
    room = NATURAL_LINES - len(head) - len(foot) - 2  # a heading and a blank line for each of two lists
    gaps = _section(GAPS_HEADING, screen.gaps, max(GAP_LINES, room - len(path_lines) - 2))
    paths = _section(PATHS_HEADING, path_lines, room - len(gaps))
    return [*head, *paths, *gaps, *foot]


def _section(heading: str, lines: Sequence[str], room: int) -> list[str]:
    """A heading, as many lines as there is room for, and a blank line."""
    if not lines:
        return []
    shown = (
        list(lines)
        if len(lines) <= room
        else [*lines[: room - 1], f"and {len(lines) - room + 1} more lines; the page has them"]
    )
    return [heading, *(_cut(f"  {line}") for line in shown), ""]


def _page(explanation: Explanation) -> list[str]:
    return [] if explanation.directory is None else [f"page: {Path(explanation.directory) / 'report.html'}"]


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
