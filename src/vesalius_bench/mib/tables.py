"""Submissions to MIB on the console."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius_bench.mib.documents import MibScore, MibSubmission


def print_submission(submission: MibSubmission) -> None:
    """Every folder, then whether MIB would take the submission."""
    table = Table("folder", "task", "model", "level", "form", "items", box=None)
    for row in submission.folders:
        table.add_row(row.folder, row.task, row.model, row.level, row.form, f"{row.items:,}")
    stdout.print(table)
    print_line("; ".join(submission.problems) or "complete: MIB takes at least two tasks and two models")


def print_score(score: MibScore) -> None:
    """Both areas, and the curves behind them."""
    table = Table("share", "edges", "by score", "by magnitude", box=None)
    for share, edges, signed, magnitude in zip(
        score.shares, score.edges, score.by_score, score.by_magnitude, strict=True
    ):
        table.add_row(f"{share:.1%}", f"{edges:,}", f"{signed:.3f}", f"{magnitude:.3f}")
    stdout.print(table)
    print_line(repr(score))
