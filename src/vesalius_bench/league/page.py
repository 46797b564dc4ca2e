"""The page of one row of a league: every metric with its interval, and the circuits behind it."""

from pathlib import Path

from vesalius.report.html import duration, figure, render, write
from vesalius.report.tables import sheet
from vesalius_bench.league.documents import LEAGUE_HEADLINES, League, LeagueRow


def render_row(row: LeagueRow, league: League, path: Path) -> Path:
    """Write the page of a row."""
    order = list(dict.fromkeys([*(name for name in LEAGUE_HEADLINES if name in row.metrics), *row.metrics]))
    metrics = [
        (name, figure(metric.value), _interval(metric.low, metric.high), metric.n, figure(metric.baseline))
        for name in order
        for metric in [row.metrics[name]]
    ]
    circuits = [
        (one.id, one.components, one.tags_right, one.supported, one.supported_wrong, figure(one.iia or one.node_auroc))
        for one in row.circuits
    ]
    last = "interchange accuracy" if row.kind == "explanations" else "node AUROC"
    columns = ("circuit", "components", "tags right", "supported", "of these wrong", last)
    facts = [
        ("By", row.scientist or row.method or row.name),
        *([("Language model", row.backbone)] if row.backbone else []),
        *([("Functions by", row.interpreter)] if row.interpreter else []),
        ("Circuits", f"{row.n} of {len(league.circuits)}, {row.n_error} errors"),
        ("Seed", str(row.seed)),
        ("League", f"made {league.made}, key {row.league[:16]}"),
        ("Work", duration(row.seconds)),
    ]
    html = render(
        "league.html",
        ["theme.js"],
        title=row.name,
        facts=facts,
        metrics=sheet("", ("metric", "value", "95 % interval", "n", "baseline"), metrics),
        circuits=sheet("", columns, circuits),
        errors=[(error.case, error.reason) for error in row.errors],
        kind=row.kind,
    )
    return write(path, html)


def _interval(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{figure(low)} to {figure(high)}"
