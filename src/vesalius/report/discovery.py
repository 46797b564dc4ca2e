"""The page of a discovered circuit: which components, which edges, and how far to trust them, from `discovery.json`.

Everything is drawn from the numbers in the directory, so the page can be made again without the model. The same
drawings are written beside it as SVG files, and the head map also as PNG.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, FiniteFloat, PositiveInt, ValidationError

from vesalius.components import Component, Edge
from vesalius.discovery.detectors import ROLES
from vesalius.discovery.search.live import SEARCHES
from vesalius.errors import BadInput
from vesalius.files import read_json, write_text
from vesalius.intervene.edge_graph import EdgeGraph
from vesalius.report.diagram import Diagram, draw_circuit
from vesalius.report.faithfulness import Chart, draw_curve
from vesalius.report.headmap import HeadMap, draw_headmap
from vesalius.report.heatmap import draw_heatmap
from vesalius.report.html import duration, figure, macro, package_text, render, write
from vesalius.report.profiles import Bars, bars_of
from vesalius.report.tables import Sheet, sheet

NUMBERS, PAGE, CIRCUIT = "discovery.json", "discovery.html", "circuit.json"
#: What the page draws and lists.
CONNECTIONS, LISTED = 18, 15
#: Scores below these parts of the strongest are not named, or not drawn.
WORTH_NAMING, WORTH_DRAWING = 0.05, 0.02
MEANINGS = {
    "sweep": "A component's score is the clean minus the edited score when it alone is replaced.",
    "acdc": "A component's score is the largest threshold at which one of its outgoing edges survives pruning.",
    **dict.fromkeys(
        SEARCHES,
        "A head's score is the clean minus the edited score when it alone is replaced; a head that the search never "
        "paid for scores 0, and MLPs were not searched.",
    ),
}
BY_EDGES = "A component's score is the largest magnitude among its outgoing edges."


def is_discovery(directory: Path) -> bool:
    """Whether a directory is one that `vesalius discover` has written."""
    return (directory / NUMBERS).is_file()


def render_discovery(directory: Path) -> Path:
    """Write the page and the pictures of a discovery from its numbers, and return the page's path."""
    document = _read(directory / NUMBERS)
    shape = EdgeGraph(document["layers"], document["heads"])
    ranked = [(Component.parse(row["id"]).within(shape), row["score"]) for row in document["components"]]
    edges = [(Edge.parse(row["id"]).within(shape), row["score"]) for row in document["edges"][: 20 * CONNECTIONS]]
    headmap = draw_headmap(ranked, n_layers=document["layers"], n_heads=document["heads"])
    diagram = _diagram(edges) if edges else None
    trust = document.get("trust")
    chart = _chart(trust) if trust and trust["faithfulness"] else None
    scores = {str(part): f"{score:.3g}" for part, score in ranked}
    _write_pictures(directory, document, ranked, headmap, diagram, chart, scores)
    html = render(
        "discovery.html",
        ["theme.js"],
        document=document,
        name=_name(document),
        lede=_lede(document, ranked),
        facts=_facts(document),
        headmap=headmap,
        negative=any(score < 0 for _, score in ranked),
        score_meaning=MEANINGS.get(document["method"], BY_EDGES),
        strongest=_strongest(ranked, trust, _score_column(document)),
        diagram=diagram,
        scored="heads" if document["method"] in SEARCHES else "components",
        box_scores=scores,
        n_edges=document.get("n_edges", len(document["edges"])),
        listed_edges=len(document["edges"]),
        edge_sheet=sheet(
            "", ("edge", _score_column(document)), [(edge.format("canonical"), score) for edge, score in edges[:LISTED]]
        ),
        trust=trust,
        trust_intro=_intro(trust) if trust else "",
        chart=chart,
        curve_caption=_curve_caption(trust) if trust and chart else "",
        figures=_figures(trust) if trust else None,
        drops=_drops(trust["specificity"], document["behaviour"]) if trust and trust["specificity"] else None,
        missing=trust["missing"] if trust else {},
        command=_command(document),
    )
    return write(directory / PAGE, html)


def _read(path: Path) -> dict[str, Any]:
    """The numbers, refused in one line where they are not whole."""
    document = read_json(path)
    try:
        _Numbers.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BadInput(f"{path}: {place}: {first['msg'].lower()}; run `vesalius discover` again") from None
    absent = {"edges": [], "behaviour": None, "trust": None, "performance": None, "search": {}, "unit": ""}
    trust = document.get("trust") and {"heads_only": False, "asked": document["trust"]["n"], **document["trust"]}
    return {**absent, **document, "trust": trust}


class _Score(BaseModel):
    id: str
    score: FiniteFloat


class _Checks(BaseModel):
    """The checks, each None where it was not made; what is in them is what `examine` wrote."""

    size: int
    n: int
    asked: int | None = None
    heads_only: bool = False
    seconds: float
    missing: dict[str, str]
    faithfulness: dict[str, Any] | None
    faithfulness_random: dict[str, Any] | None
    edge_faithfulness: dict[str, Any] | None
    stability: dict[str, Any] | None
    specificity: dict[str, Any] | None
    detectors: dict[str, Any] | None
    known_heads: dict[str, Any] | None


class _Numbers(BaseModel):
    """What the page needs of `discovery.json`."""

    specimen: str
    method: str
    n: int
    seed: int
    layers: PositiveInt
    heads: PositiveInt
    forwards: FiniteFloat
    seconds: FiniteFloat
    metrics: dict[str, FiniteFloat]
    components: list[_Score] = Field(min_length=1)
    edges: list[_Score] = []
    trust: _Checks | None = None
    trust_forwards: FiniteFloat = 0.0


def _write_pictures(
    directory: Path,
    document: Mapping[str, Any],
    ranked: Sequence[tuple[Component, float]],
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
        else:  # one of an earlier discovery in the same directory would pass for this one's
            (directory / name).unlink(missing_ok=True)
    draw_heatmap(
        dict(ranked),
        directory / "heads.png",
        title=f"{_name(document)}: {document['method']}, {document['n']} prompts",
        unit=document["unit"],
        n_layers=document["layers"],
        n_heads=document["heads"],
        label=_score_column(document),
    )


def _file(name: str, *values: Any) -> str:
    """A drawing as a file of its own: light colours, on paper."""
    return macro("drawings.html", name, *values, style=package_text("drawing.css"))


def _name(document: Mapping[str, Any]) -> str:
    return f"{document['specimen']}, {document['behaviour']}" if document.get("behaviour") else document["specimen"]


def _lede(document: Mapping[str, Any], ranked: Sequence[tuple[Component, float]]) -> str:
    least = WORTH_NAMING * abs(ranked[0][1]) if ranked else 0.0
    strongest = ", ".join(str(part) for part, score in ranked[:5] if abs(score) > least)
    return f"Scored by {document['method']} on {document['n']} prompts. Strongest: {strongest or 'none'}."


def _facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    trust = document.get("trust")
    facts = [("Method", f"{document['method']}, seed {document['seed']}"), ("Prompts", str(document["n"]))]
    if performance := document["performance"]:
        verdict = "" if performance["performs"] else ": not performed, what is found may be noise"
        facts.append((f"Accuracy on {document['behaviour']}", f"{performance['accuracy']:.2f}{verdict}"))
    facts.append(("Discovery", f"{document['forwards']:.1f} forward passes of them, {duration(document['seconds'])}"))
    if trust:
        facts.append(("Checks", f"{document['trust_forwards']:.1f} more, {duration(trust['seconds'])}"))
    names = {"auroc": "Head AUROC" if document["method"] in SEARCHES else "Node AUROC", "edge_auroc": "Edge AUROC"}
    facts += [
        (words, figure(document["metrics"][name])) for name, words in names.items() if name in document["metrics"]
    ]
    return facts


def _diagram(edges: Sequence[tuple[Edge, float]]) -> Diagram:
    """The strongest connections; edges into several inputs of one receiver are one, as strong as the strongest."""
    merged: dict[tuple[str, str], float] = {}
    for edge, score in edges:
        ends = (str(edge.sender or "embedding"), str(edge.receiver or "logits"))
        if abs(score) > WORTH_DRAWING * abs(edges[0][1]) and len(merged) < CONNECTIONS:
            merged.setdefault(ends, score)
    return draw_circuit([], [(*ends, score) for ends, score in merged.items()])


def _chart(trust: Mapping[str, Any]) -> Chart:
    return draw_curve({"circuit": trust["faithfulness"], "random order": trust["faithfulness_random"]})


def _intro(trust: Mapping[str, Any]) -> str:
    fewer = "" if trust["n"] == trust["asked"] else f" (all there are; {trust['asked']} were asked for)"
    return (
        f"Checked on {trust['n']} prompts that the discovery has not seen{fewer}. "
        "Where a check needs a circuit of one size, "
        + ("it takes the strongest component." if trust["size"] == 1 else f"it takes the {trust['size']} strongest.")
    )


def _curve_caption(trust: Mapping[str, Any]) -> str:
    curve = trust["faithfulness"]
    kept = "Every head but the strongest is" if trust["heads_only"] else "Everything but the strongest components is"
    return (
        f"{kept} replaced by its value on the counterfactual prompt{'; MLPs stay' if trust['heads_only'] else ''}. "
        f"1 is the whole model ({figure(curve['full'])} {curve['unit']}), 0 is nothing kept "
        f"({figure(curve['ablated'])}). CMD is the area between the curve and 1, CPR the area under it, both "
        "on a linear scale of shares."
    )


def _score_column(document: Mapping[str, Any]) -> str:
    return f"score ({document['unit']})" if document["unit"] else "score"


def _strongest(ranked: Sequence[tuple[Component, float]], trust: Mapping[str, Any] | None, score_column: str) -> Sheet:
    """The strongest components, with what is known of each."""
    flagged = ((trust or {}).get("detectors") or {}).get("flagged", {})
    published = ((trust or {}).get("known_heads") or {}).get("roles", {})
    rows = []
    for rank, (part, score) in enumerate(ranked[:LISTED], 1):
        looks = ", ".join(ROLES[role] for role, heads in flagged.items() if str(part) in heads)
        rows.append((rank, str(part), score, looks or None, *([published.get(str(part))] if published else [])))
    columns = ("rank", "component", score_column, "by its attention", *(["published as"] if published else []))
    return sheet("", columns, rows)


def _figures(trust: Mapping[str, Any]) -> Sheet:
    """One row per figure: value, interval, what chance gives, and what it means."""
    rows: list[tuple[str, float | None, str | None, float | None, str]] = []
    curve, chance = trust["faithfulness"], trust["faithfulness_random"]
    if curve:
        for name, words in (("cmd", "0 is perfect"), ("cpr", "high is good; no upper bound")):
            interval = _interval(curve[f"{name}_low"], curve[f"{name}_high"])
            rows.append((name.upper(), curve[name], interval, chance[name], f"{words}; control: a random order"))
    if edges := trust["edge_faithfulness"]:
        rows += [
            (f"{name.upper()} by edges", edges[name], _interval(edges[f"{name}_low"], edges[f"{name}_high"]), None, "")
            for name in ("cmd", "cpr")
        ]
    if stability := trust["stability"]:
        words = f"likeness of circuits of {stability['top']} on {stability['resamples']} resamples of the prompts"
        interval = _interval(stability["low"], stability["high"])
        rows.append(
            ("Jaccard", stability["value"], interval, stability["chance"], f"{words}; control: random circuits")
        )
    if special := trust["specificity"]:
        words = f"own drop divided by the others' mean drop ({figure(special['others_mean'])})"
        rows.append(("Specificity", special["ratio"], None, 1.0, f"{words}; 1: it serves the others as much"))
    for name, found in (("Detectors", trust["detectors"]), ("Known heads", trust["known_heads"])):
        if found:
            source = f"published ({found['source']})" if "source" in found else "told by their attention"
            words = f"{len(found['both'])} of {found['chosen']} heads are among the {found['known']} {source}"
            rows.append((name, found["share"], None, found["expected"], f"{words}; p = {figure(found['p'])} by chance"))
    printed = [
        (name, figure(value), interval, figure(control), words) for name, value, interval, control, words in rows
    ]
    return sheet("", ("check", "value", "95 % interval", "control", "meaning"), printed)


def _interval(low: float, high: float) -> str:
    return f"{figure(low)}\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}{figure(high)}"


def _drops(special: Mapping[str, Any], behaviour: str) -> Bars:
    """What cutting the circuit's heads and random heads costs each behaviour and text."""
    values: dict[str, tuple[float | None, float | None, float | None]] = {}
    measured = {f"{behaviour} (its own)": special["own"], **special["others"]}
    if special["text"]:
        measured["ordinary text: rise of the loss"] = special["text"]
    for name, drop in measured.items():
        beside = "" if drop["random"] is None else f"; random heads {round(drop['random'], 2) + 0.0:.2f}"
        values[f"{name}{beside}"] = (drop["drop"], drop["low"], drop["high"])
    undone = [name for name, drop in measured.items() if drop["drop"] is None]
    caption = (
        f"The {len(special['heads'])} strongest heads ({', '.join(special['heads'])}) are replaced by their mean "
        "output; bars are shares of the clean logit difference (of the clean loss, for text) that are lost."
    )
    return bars_of("What cutting the heads costs", caption + _not_performed(undone), values)


def _not_performed(names: Sequence[str]) -> str:
    return f" Not performed by this model, so left out: {', '.join(names)}." if names else ""


def _command(document: Mapping[str, Any]) -> str:
    words = ["vesalius", "discover", shlex.quote(document["specimen"])]
    if document.get("behaviour"):
        words += ["--behaviour", shlex.quote(document["behaviour"])]
    words += ["--method", document["method"], "--n", str(document["n"]), "--seed", str(document["seed"])]
    search = document["search"]
    words += [f"--{name} {search[name]}" for name in ("budget", "steps") if search.get(name)]
    words += [f"--seeds {search['seeds']}"] if search.get("seeds", 1) > 1 else []
    words += ["--paper"] if search.get("paper") else []
    if document["performance"] and not document["performance"]["performs"]:
        words.append("--force")
    return " ".join([*words, *([] if document.get("trust") else ["--quick"])])
