"""The page of a discovered circuit: which components, which edges, and how far to trust them, from `discovery.json`.

Everything is drawn from the numbers in the directory, so the page can be made again without the model. The same
drawings are written beside it as SVG files, and the head map also as PNG.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.components import Edge
from vesalius.discovery.detectors import ROLES
from vesalius.documents.checks import Checks, Curve, Overlap, Specificity
from vesalius.documents.discovery import CIRCUIT_FILE, DISCOVERY_FILE, Discovery
from vesalius.documents.rivals import Rivals, circuit_name
from vesalius.documents.views import subject_of, title_of
from vesalius.files import write_text
from vesalius.report.diagram import Diagram, draw_circuit
from vesalius.report.faithfulness import Chart, draw_curve
from vesalius.report.headmap import HeadMap, draw_headmap
from vesalius.report.heatmap import draw_heatmap
from vesalius.report.html import duration, figure, macro, package_text, render, write
from vesalius.report.profiles import Bars, bars_of
from vesalius.report.tables import Sheet, sheet

NUMBERS, PAGE, CIRCUIT = DISCOVERY_FILE, "discovery.html", CIRCUIT_FILE
#: What the page draws and lists.
CONNECTIONS, LISTED = 18, 15
#: Scores below these parts of the strongest are not named, or not drawn.
WORTH_NAMING, WORTH_DRAWING = 0.05, 0.02


def _meaning(discovery: Discovery) -> str:
    if not discovery.meaning and discovery.circuit.edges:
        return "A component's score is the largest magnitude among its outgoing edges."
    return discovery.meaning or f"A component's score is what the method {discovery.method} gave it."


def _heads_only(discovery: Discovery) -> bool:
    return all(part.is_head for part in discovery.circuit.components)


def render_discovery(directory: Path) -> Path:
    """Write the page and the pictures of a discovery from its files, and return the page's path."""
    return draw_discovery(Discovery.read(directory / DISCOVERY_FILE), directory)


def draw_discovery(discovery: Discovery, directory: Path) -> Path:
    """Write the page and the pictures of a discovery into a directory, and return the page's path."""
    ranked, edges = discovery.circuit.ranked(), discovery.circuit.ranked_edges()[: 20 * CONNECTIONS]
    headmap = draw_headmap(ranked, n_layers=discovery.layers, n_heads=discovery.heads)
    diagram = _diagram(edges) if edges else None
    checks = discovery.checks
    chart = _chart(checks) if checks else None
    scores = {str(part): f"{score:.3g}" for part, score in ranked}
    _write_pictures(directory, discovery, headmap, diagram, chart, scores)
    score_column = _score_column(discovery)
    html = render(
        "discovery.html",
        ["theme.js"],
        discovery=discovery,
        name=_name(discovery),
        lede=_lede(discovery),
        facts=discovery_facts(discovery),
        headmap=headmap,
        negative=any(score < 0 for _, score in ranked),
        score_meaning=_meaning(discovery),
        strongest=_strongest(discovery, score_column),
        diagram=diagram,
        scored="heads" if _heads_only(discovery) else "components",
        box_scores=scores,
        n_edges=discovery.n_edges,
        listed_edges=len(discovery.edges),
        edge_sheet=sheet(
            "", ("edge", score_column), [(edge.format("canonical"), score) for edge, score in edges[:LISTED]]
        ),
        selection=_selection(discovery),
        rivals=discovery.rivals,
        rival_section=_rival_section(discovery.rivals) if discovery.rivals else None,
        guarantee=_guarantee(checks) if checks else None,
        checks=checks,
        checks_intro=_intro(checks) if checks else "",
        chart=chart,
        curve_caption=_curve_caption(checks.faithfulness, checks) if checks and checks.faithfulness else "",
        figures=_figures(checks) if checks else None,
        drops=_drops(checks.specificity, discovery.behaviour or "") if checks and checks.specificity else None,
        missing=checks.missing if checks else {},
        command=discovery.request.command_line(),
    )
    return write(directory / PAGE, html)


def _write_pictures(
    directory: Path,
    discovery: Discovery,
    headmap: HeadMap,
    diagram: Diagram | None,
    chart: Chart | None,
    scores: Mapping[str, str],
) -> None:
    write_text(directory / "heads.svg", _file("headmap", headmap))
    drawn = {
        "circuit.svg": diagram and _file("circuit", diagram, scores),
        "curve.svg": chart and _file("curve", chart),
    }
    for name, text in drawn.items():
        if text:
            write_text(directory / name, text)
        else:  # one of an earlier discovery in the same directory would be taken for this one's
            (directory / name).unlink(missing_ok=True)
    draw_heatmap(
        discovery.circuit.components,
        directory / "heads.png",
        title=f"{_name(discovery)}: {discovery.method}, {discovery.n} prompts",
        unit=discovery.unit,
        n_layers=discovery.layers,
        n_heads=discovery.heads,
        label=_score_column(discovery),
    )


def _file(name: str, *values: Any) -> str:
    """A drawing as a file of its own: light colours, on paper."""
    return macro("drawings.html", name, *values, style=package_text("drawing.css"))


def _name(discovery: Discovery) -> str:
    return subject_of(discovery.specimen, discovery.behaviour)


def _lede(discovery: Discovery) -> str:
    ranked = discovery.components
    least = WORTH_NAMING * abs(ranked[0].score) if ranked else 0.0
    strongest = ", ".join(row.id for row in ranked[:5] if abs(row.score) > least)
    return f"Scored by {discovery.method} on {discovery.n} prompts. Strongest: {strongest or 'none'}."


def discovery_facts(discovery: Discovery) -> list[tuple[str, str]]:
    """How the circuit was found, how well the model performs the behaviour, and the areas against a known circuit."""
    facts = [("Method", f"{discovery.method}, seed {discovery.seed}"), ("Prompts", str(discovery.n))]
    if performance := discovery.performance:
        facts.append((f"Accuracy on {title_of(discovery.behaviour or '')}", performance.accuracy_figures))
    facts.append(("Discovery", f"{discovery.forwards:.1f} forward passes of them, {duration(discovery.seconds)}"))
    if discovery.checks:
        facts.append(("Checks", f"{discovery.checks_forwards:.1f} more, {duration(discovery.checks.seconds)}"))
    names = {"auroc": "Head AUROC" if _heads_only(discovery) else "Node AUROC", "edge_auroc": "Edge AUROC"}
    facts += [(words, figure(discovery.metrics[name])) for name, words in names.items() if name in discovery.metrics]
    return facts


def _diagram(edges: Sequence[tuple[Edge, float]]) -> Diagram:
    """The strongest connections; edges into several inputs of one receiver are one, as strong as the strongest."""
    merged: dict[tuple[str, str], float] = {}
    for edge, score in edges:
        ends = (str(edge.sender or "embedding"), str(edge.receiver or "logits"))
        if abs(score) > WORTH_DRAWING * abs(edges[0][1]) and len(merged) < CONNECTIONS:
            merged.setdefault(ends, score)
    return draw_circuit([], [(*ends, score) for ends, score in merged.items()])


def _chart(checks: Checks) -> Chart | None:
    circuit, control = checks.faithfulness, checks.faithfulness_random
    if circuit is None or control is None:
        return None
    return draw_curve({"circuit": circuit, "random order": control})


@dataclass(frozen=True)
class SelectionSection:
    """How the circuit was cut: a sentence, the figures of every rule, and their curves where they were measured."""

    intro: str
    figures: Sheet
    chart: Chart | None


def _selection(discovery: Discovery) -> SelectionSection | None:
    if (selection := discovery.selection) is None:
        return None
    why = f", the smallest budget that keeps {selection.least_kept:g} of the behaviour" if selection.least_kept else ""
    intro = (
        f"The circuit holds at most {selection.budget} of {selection.candidates:,} {selection.by}{why}, chosen by the "
        f"rule {selection.rule.rule}. An edge counts only on a path from the embedding to the logits."
        + (f" Faithfulness was not measured: {selection.missing}." if selection.missing else "")
    )
    rows = [
        (row.rule, row.size, row.value, row.faithfulness, row.curve and row.curve.cmd, row.curve and row.curve.cpr)
        for row in selection.rules
    ]
    curves = {row.rule: row.curve for row in selection.rules if row.curve is not None}
    columns = ("rule", f"{selection.by} kept", "sum of scores", "faithfulness", "CMD", "CPR")
    return SelectionSection(intro, sheet("", columns, rows), draw_curve(curves) if curves else None)


@dataclass(frozen=True)
class Section:
    """A part of a page in words and tables alone."""

    title: str
    words: tuple[str, ...]
    sheets: tuple[Sheet, ...]


def discovery_sections(discovery: Discovery) -> list[Section]:
    """The checks of a discovery and its rivals, as pages without pictures show them."""
    sections = []
    if checks := discovery.checks:
        missing = (f"Not measured, {check}: {why}." for check, why in checks.missing.items())
        words = (_intro(checks), _guarantee(checks), *missing)
        sections.append(Section("Can it be trusted?", tuple(filter(None, words)), (_figures(checks),)))
    if rivals := discovery.rivals:
        part = _rival_section(rivals)
        sheets = (part.circuits, part.exchangeable, part.distinctions)
        sections.append(Section("Rival circuits", (part.intro, part.core), tuple(filter(None, sheets))))
    return sections


def _guarantee(checks: Checks) -> str | None:
    """What the circuit keeps for certain; None where no bound was computed."""
    words = checks.guarantee.sentence() if checks.guarantee else ""
    if checks.guarantee is None or not words:
        return None
    return f"On {checks.guarantee.n} further prompts, none of which had a part in choosing the circuit: {words}."


@dataclass(frozen=True)
class RivalSection:
    """What a page says about rivals: the circuits, what is exchangeable, and what distinguishes them."""

    intro: str
    core: str
    circuits: Sheet
    exchangeable: Sheet | None
    distinctions: Sheet | None


def _rival_section(rivals: Rivals) -> RivalSection:
    circuits = [
        (
            circuit_name(place),
            _joined(row.edges or row.components),
            row.faithfulness.figures,
            f"{row.overlap:.2f}",
            "yes" if row.as_faithful else "no",
        )
        for place, row in enumerate(rivals.circuits)
    ]
    exchangeable = [
        (pair.one, pair.other, f"{pair.without:.2f}", f"{pair.exchanged:.2f}", f"{pair.synergy:+.2f}")
        for pair in rivals.exchangeable
    ]
    distinctions = [
        (
            _joined(one.ablated),
            f"{circuit_name(one.first)}: {one.first_predicts:.2f}",
            f"{circuit_name(one.second)}: {one.second_predicts:.2f}",
            one.outcome.figures,
            one.verdict,
        )
        for one in rivals.distinctions
    ]
    part = rivals.by[:-1]
    intro = (
        f"Each circuit keeps at least {rivals.least_kept:g} of the behaviour on the discovery's prompts. The best was "
        f"cut by removing the weakest {rivals.by} first, a rival by removing what earlier circuits hold first. A rival "
        f"is as faithful as the best if it keeps as much, less {rivals.tolerance:g}, on {rivals.n} held-out prompts. "
        "Overlap is the Jaccard index with the best."
    )
    core = f"In all that are as faithful as the best: {_joined(rivals.core) or 'nothing'}."
    return RivalSection(
        intro,
        "No rival was found." if len(rivals.circuits) == 1 else core,
        sheet("", ("circuit", rivals.by, "faithfulness", "overlap", "as faithful"), circuits),
        sheet("", (f"{part} of the best", "replaced by", "without it", "replaced", "synergy"), exchangeable)
        if exchangeable
        else None,
        sheet("", ("ablated", "prediction", "prediction", "the model keeps", "speaks for"), distinctions)
        if distinctions
        else None,
    )


def _joined(parts: Sequence[str]) -> str:
    """Names of components or edges in a sentence; an arrow does not break over lines."""
    return ", ".join(parts).replace("->", "→")


def _intro(checks: Checks) -> str:
    fewer = "" if checks.n == checks.asked else f" (all there are; {checks.asked} were asked for)"
    return (
        f"Checked on {checks.n} prompts that the discovery has not seen{fewer}. "
        "Where a check needs a circuit of one size, "
        + ("it takes the strongest component." if checks.size == 1 else f"it takes the {checks.size} strongest.")
    )


def _curve_caption(curve: Curve, checks: Checks) -> str:
    kept = "Every head but the strongest is" if checks.heads_only else "Everything but the strongest components is"
    return (
        f"{kept} replaced by its value on the counterfactual prompt{'; MLPs stay' if checks.heads_only else ''}. "
        f"1 is the whole model ({figure(curve.full)} {curve.unit}), 0 is nothing kept "
        f"({figure(curve.ablated)}). CMD is the area between the curve and 1, CPR the area under it, both "
        "on a linear scale of shares."
    )


def _score_column(discovery: Discovery) -> str:
    return f"score ({discovery.unit})" if discovery.unit else "score"


def _strongest(discovery: Discovery, score_column: str) -> Sheet:
    """The strongest components, with what is known of each."""
    checks, intervals = discovery.checks, discovery.circuit.intervals
    flagged = checks.detectors.flagged if checks and checks.detectors else {}
    published = checks.known_heads.roles if checks and checks.known_heads else {}
    strongest = discovery.circuit.ranked()[:LISTED]
    columns: dict[str, list[Any]] = {
        "rank": [*range(1, len(strongest) + 1)],
        "component": [str(part) for part, _ in strongest],
        score_column: [score for _, score in strongest],
    }
    if intervals:
        columns["95 % interval"] = [_interval(*intervals[part]) if part in intervals else None for part, _ in strongest]
    columns["by its attention"] = [
        ", ".join(ROLES[role] for role, heads in flagged.items() if str(part) in heads) or None for part, _ in strongest
    ]
    if published:
        columns["published as"] = [published.get(str(part)) for part, _ in strongest]
    return sheet("", tuple(columns), [*zip(*columns.values(), strict=True)])


Row = tuple[str, float | None, str | None, float | None, str]


def _figures(checks: Checks) -> Sheet:
    """One row per figure: value, interval, what chance gives, and what it means."""
    rows: list[Row] = [*_curve_rows(checks)]
    if stability := checks.stability:
        words = f"likeness of circuits of {stability.top} on {stability.resamples} resamples of the prompts"
        interval = _interval(stability.low, stability.high)
        rows.append(("Jaccard", stability.value, interval, stability.chance, f"{words}; control: random circuits"))
    if special := checks.specificity:
        words = f"own drop divided by the others' mean drop ({figure(special.others_mean)})"
        rows.append(("Specificity", special.ratio, None, 1.0, f"{words}; 1: it serves the others as much"))
    if detectors := checks.detectors:
        rows.append(_overlap_row("Detectors", detectors, "identified by their attention"))
    if known := checks.known_heads:
        rows.append(_overlap_row("Known heads", known, f"published ({known.source})"))
    printed = [
        (name, figure(value), interval, figure(control), words) for name, value, interval, control, words in rows
    ]
    return sheet("", ("check", "value", "95 % interval", "control", "meaning"), printed)


def _curve_rows(checks: Checks) -> Iterator[Row]:
    curve, control, edges = checks.faithfulness, checks.faithfulness_random, checks.edge_faithfulness
    if curve:
        for name, words in (("cmd", "0 is perfect"), ("cpr", "high is good; no upper bound")):
            value, low, high = _area(curve, name)
            chance = None if control is None else _area(control, name)[0]
            yield name.upper(), value, _interval(low, high), chance, f"{words}; control: a random order"
    if edges:
        for name in ("cmd", "cpr"):
            value, low, high = _area(edges, name)
            yield f"{name.upper()} by edges", value, _interval(low, high), None, ""


def _area(curve: Curve, name: str) -> tuple[float, float, float]:
    return getattr(curve, name), getattr(curve, f"{name}_low"), getattr(curve, f"{name}_high")


def _overlap_row(name: str, overlap: Overlap, source: str) -> Row:
    words = f"{len(overlap.both)} of {overlap.chosen} heads are among the {overlap.known} {source}"
    return name, overlap.share, None, overlap.expected, f"{words}; p = {figure(overlap.p)} by chance"


def _interval(low: float, high: float) -> str:
    return f"{figure(low)}\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}{figure(high)}"


def _drops(specificity: Specificity, behaviour: str) -> Bars:
    """What cutting the circuit's heads and random heads costs each behaviour and text."""
    values: dict[str, tuple[float | None, float | None, float | None]] = {}
    measured = {f"{title_of(behaviour)} (its own)": specificity.own, **specificity.others}
    if specificity.text:
        measured["ordinary text: rise of the loss"] = specificity.text
    for name, drop in measured.items():
        beside = "" if drop.random is None else f"; random heads {round(drop.random, 2) + 0.0:.2f}"
        values[f"{name}{beside}"] = (drop.drop, drop.low, drop.high)
    not_performed = [name for name, drop in measured.items() if drop.drop is None]
    caption = (
        f"The {len(specificity.heads)} strongest heads ({', '.join(specificity.heads)}) are replaced by their mean "
        "output; bars are shares of the clean logit difference (of the clean loss, for text) that are lost."
    )
    if not_performed:
        caption += f" Not performed by this model, so left out: {', '.join(not_performed)}."
    return bars_of("What cutting the heads costs", caption, values)
