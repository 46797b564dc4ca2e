"""The evidence page: one explanation as one HTML file that opens anywhere.

The page says what was found, shows the circuit, and puts under every sentence the experiment it rests on. It is
made from the explanation alone; with the specimen at hand it also shows the components at work. A page that would
grow past its limit first loses the single-input pictures, then all pictures, and says so.
"""

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, ComponentExplanation, Evidence, Explanation, Tag, Verdict
from vesalius.documents.request import Request
from vesalius.documents.summary import GAPS_HEADING, PATHS_HEADING
from vesalius.documents.views import subject_of
from vesalius.errors import Failed
from vesalius.model.specimen import Specimen
from vesalius.report.diagram import Diagram, draw_circuit
from vesalius.report.html import LIMIT_BYTES, SHARED, render, write
from vesalius.report.pictures import Picture, draw_components
from vesalius.report.profiles import Bars, draw_profile
from vesalius.report.tables import Reading, Sheet, read_records, read_table

TAG_MEANINGS: dict[Tag, str] = {
    "INDICATOR": "marks whether a condition holds",
    "AGGREGATOR": "collapses many positions into one value",
    "ROUTER": "moves a value from one position to another",
    "MAPPER": "maps one value to another",
    "COMBINER": "combines several values",
}
NO_SPECIMEN = "This page was made without the model at hand, so there is no picture of the component at work."
TOO_LARGE = "Left out to keep this page under its size limit; make a page for fewer components to see it."


@dataclass(frozen=True)
class Plot:
    """An interval on a scale of 100: where the value, its interval, its controls and the ends 0 and 1 stand."""

    value: float | None
    low: float
    high: float
    controls: tuple[float, ...]
    zero: float
    one: float


@dataclass(frozen=True)
class Part:
    """A component as the page shows it."""

    record: ComponentExplanation
    kind: str
    picture: Picture
    table: Reading | None
    refuted: Sheet | None
    profile: tuple[Bars, ...]
    claims: tuple[tuple[ClaimRecord, tuple[tuple[Evidence, Plot | None], ...]], ...]

    @property
    def at_fixed_position(self) -> bool:
        """What it computes was established place by place only."""
        return self.record.verdict == "supported" and any(
            claim.kind == "computes" and evidence.outcome in ("fixed", "untested")
            for claim, shown in self.claims
            for evidence, _ in shown
        )


def render_page(
    explanation: Explanation, path: Path | str, *, specimen: Specimen | None = None, title: str | None = None
) -> Path:
    """Write the evidence page of an explanation as one self-contained HTML file and return its path.

    With `specimen`, heads are shown by their attention and MLPs by what they write, on inputs drawn with the
    explanation's seed.
    """
    path = Path(path)
    html = ""
    for pictures in _ever_fewer_pictures(explanation, specimen):
        html = _page(explanation, pictures, specimen=specimen, title=title)
        if len(html.encode()) < LIMIT_BYTES:
            return write(path, html)
    size = len(html.encode()) / 1e6
    raise Failed(
        f"{path}: the page would have {size:.1f} MB, {LIMIT_BYTES / 1e6:.0f} MB is the limit; explain fewer components"
    )


def _ever_fewer_pictures(explanation: Explanation, specimen: Specimen | None) -> Iterator[dict[str, Picture]]:
    names = [part.id for part in explanation.components]
    if specimen is None:
        yield dict.fromkeys(names, Picture(NO_SPECIMEN))
        return
    pictures = draw_components(specimen, names, seed=explanation.seed)
    yield pictures
    yield {name: Picture(picture.caption, picture.grids[:1]) for name, picture in pictures.items()}
    yield dict.fromkeys(names, Picture(TOO_LARGE))


def _page(
    explanation: Explanation, pictures: dict[str, Picture], *, specimen: Specimen | None, title: str | None
) -> str:
    parts = [_part(record, pictures[record.id]) for record in explanation.components]
    agreement = explanation.program_agreement
    return render(
        "page.html",
        ["theme.js"],
        explanation=explanation,
        name=_display_name(explanation, specimen),
        title=title,
        parts=parts,
        parts_by_id={part.record.id: part for part in parts},
        diagram=draw_explained(explanation) if parts else None,
        summary=None if explanation.behaviour is None else explanation.in_short(),
        paths_heading=PATHS_HEADING,
        gaps_heading=GAPS_HEADING,
        edges=sorted(explanation.edges, key=lambda edge: -abs(edge[2]) if math.isfinite(edge[2]) else 0.0),
        tags=TAG_MEANINGS,
        fixed_parts=sum(part.at_fixed_position for part in parts),
        component_verdicts=_tally(part.verdict for part in explanation.components),
        claim_verdicts=_tally(claim.verdict for part in explanation.components for claim in part.claims),
        agreement=None if agreement is None else (agreement, plot(agreement)),
        commands=commands(explanation, specimen),
        examples=() if specimen is None else specimen.examples[:5],
    )


def draw_explained(explanation: Explanation) -> Diagram:
    """The circuit of an explanation; that of a natural model with compositions, and with its gaps as open ends."""
    ports: dict[tuple[str, str], str] = {}
    for link in explanation.compositions:
        pair = link.sender, link.receiver
        ports[pair] = f"{ports[pair]}, {link.port}" if pair in ports else link.port
    names = [part.id for part in explanation.components]
    return draw_circuit(names, explanation.edges, ports=ports, show_gaps=explanation.behaviour is not None)


def _part(record: ComponentExplanation, picture: Picture) -> Part:
    return Part(
        record=record,
        kind="attention head" if Component.parse(record.id).is_head else "MLP",
        picture=picture,
        table=None if record.table is None else read_table(record.table),
        refuted=read_records(record.refuted) if record.refuted else None,
        profile=draw_profile(record.profile) if record.profile else (),
        claims=tuple(
            (claim, tuple((evidence, plot(evidence)) for evidence in claim.evidence)) for claim in record.claims
        ),
    )


def _display_name(explanation: Explanation, specimen: Specimen | None) -> str:
    return subject_of(explanation.specimen if specimen is None else specimen.name, explanation.behaviour)


def _tally(verdicts: Iterable[Verdict]) -> dict[str, int]:
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in get_args(Verdict)}


def plot(evidence: Evidence) -> Plot | None:
    """The evidence on a common scale that holds 0, 1, the interval and every control; None without an interval.

    Counts among the controls (how many cells were tested) are not on that scale.
    """
    if evidence.low is None or evidence.high is None:
        return None
    on_scale = (value for name, value in evidence.controls.items() if name not in SHARED["counts"])
    controls = [value for value in on_scale if value is not None]
    points = [evidence.low, evidence.high, *controls, *([] if evidence.value is None else [evidence.value])]
    if not all(map(math.isfinite, points)):
        return None
    bottom, top = min(0.0, *points), max(1.0, *points)

    def place(value: float) -> float:
        return round(100 * (value - bottom) / (top - bottom), 1)

    return Plot(
        value=None if evidence.value is None else place(evidence.value),
        low=place(evidence.low),
        high=place(evidence.high),
        controls=tuple(map(place, controls)),
        zero=place(0.0),
        one=place(1.0),
    )


def commands(explanation: Explanation, specimen: Specimen | None = None) -> list[str]:
    """The command lines that make this explanation again, quoted for a shell."""
    request = explanation.request or _request(explanation, specimen)
    behaviour = "" if request.behaviour is None else f" --behaviour {shlex.quote(request.behaviour)}"
    explain, name = request.command_line(), shlex.quote(request.specimen or explanation.specimen)
    show = f"vesalius show {name}{behaviour}"
    if request.method == "hyve" and request.backbone is None:
        # The file does not say which language model it was; a command without one would only be refused.
        return [show]
    return [explain, f"{explain} --json", show]


def _request(explanation: Explanation, specimen: Specimen | None) -> Request:
    """What was asked, for explanations of schema 1, as far as they say: natural ones keep options in a profile."""
    kept = next((part.profile.get("request") for part in explanation.components if part.profile), None) or {}
    chosen = kept.get("top") is None if kept else specimen is not None and _other_components(explanation, specimen)
    return Request(
        command="explain",
        specimen=explanation.specimen,
        behaviour=explanation.behaviour or (None if specimen is None else specimen.behaviour),
        components=tuple(part.id for part in explanation.components) if chosen else None,
        method=None if explanation.scientist == "builtin" else explanation.scientist,
        options={name: kept.get(name) for name in ("n", "top", "force")},
        seed=explanation.seed,
    )


def _other_components(explanation: Explanation, specimen: Specimen) -> bool:
    """Whether components were chosen that are not the specimen's own circuit."""
    return {part.id for part in explanation.components} != set(map(str, specimen.components))
