"""What a page says, what it never contains, and what it refuses."""

import base64
import hashlib
import re
import sys
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tests.report.explanations import evidence, frac_prevs, index_rows, invert_if_sorted, natural
from vesalius.api import load
from vesalius.documents.claims import read_records, read_table, spell
from vesalius.documents.explanation import ClaimRecord, ComponentExplanation, Explanation, commands, draw_profile
from vesalius.documents.request import Request
from vesalius.documents.view import duration, figure
from vesalius.errors import BadInput, Failed
from vesalius.report.charts import bars_of
from vesalius.report.html import LIMIT_BYTES, linked, short_role
from vesalius.report.layout import plot
from vesalius.report.pages import IndexRow, render_index, render_page

EVIL = "<script>alert(\"x\")</script> & 'quoted' <img src=x onerror=alert(1)>"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Reader(HTMLParser):
    """Collects tags with attributes and visible text, and checks that tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)


UNSEEN = "".join(map(chr, [0, 7, 27, 0x202E, 0x2066, 0x200B, 0xFEFF]))


@pytest.mark.parametrize("long", [False, True])
def test_unseen_characters_and_endless_texts(tmp_path: Path, long: bool) -> None:
    text = ("y" * 1_000_000 if long else "moved") + UNSEEN
    found = frac_prevs().model_copy(update={"task_description": UNSEEN + text, "information_flow": text})
    html = render_page(found, tmp_path / "page.html").read_text(encoding="utf-8")
    assert not set(html) & set(UNSEEN)
    assert r"\x00\x07\x1b\u202e\u2066\u200b\ufeff" in html
    assert ("(1,000,014 characters)" in html) == long
    assert len(html) < LIMIT_BYTES


def read(path: Path) -> tuple[Reader, str]:
    """The parsed page and its visible text in one line."""
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == []
    return reader, " ".join(" ".join(reader.text).split())


def evil() -> Explanation:
    """Every free text of an explanation carries markup."""
    component = ComponentExplanation(
        id="L0_MLP",
        tag="MAPPER",
        tag_by_experiment="MAPPER",
        note=EVIL,
        verdict="supported",
        program=EVIL,
        reads=(EVIL,),
        claims=(
            ClaimRecord(
                kind=EVIL,
                text=EVIL,
                verdict="supported",
                evidence=(evidence(experiment=EVIL, measure=EVIL, rule=EVIL, controls={EVIL: 0.5}),),
            ),
        ),
        refuted=({EVIL: EVIL, "list": [EVIL], "nested": {"a": EVIL}},),
        table={EVIL: EVIL},
    )
    return Explanation(
        specimen=EVIL,
        scientist=EVIL,
        components=(component,),
        information_flow=EVIL,
        edges=((EVIL, "L0_MLP", 0.5), ("L0_MLP", EVIL + "2", 0.5)),
        task_description=EVIL,
        program=EVIL,
        program_agreement=evidence(experiment=EVIL, measure=EVIL, rule=EVIL, controls={EVIL: None}),
        seconds=1.0,
        seed=0,
    )


def test_frac_prevs_says_everything(tmp_path: Path) -> None:
    page = render_page(frac_prevs(), tmp_path / "page.html", specimen=load("frac_prevs"))
    assert page == tmp_path / "page.html"
    _, text = read(page)
    for words in (
        'At every position, the fraction of tokens so far that are "x".',
        "What components compute 2 of 2 supported, 0 refuted, 0 undecided",
        "3 supported, 1 refuted, 0 undecided, 1 untested",
        "L1H2 averages is_x over positions up to its own.",
        "copies, 4 of this kind tried",
        "0.987 0.967 to 0.995",
        "matched random component 0.031",
        "interval's lower end at least 0.95 and above every control seed 7",
        "Hypotheses tried and refuted (1)",
        "token == 'a'",
        "No experiment was run.",
        "81,920 model rows",
        "before = select(indices, indices, <=)",
        "vesalius explain frac_prevs --seed 0",
        "Mean over",
        "Token by position, mean over inputs",
    ):
        assert words in text
    assert "By experiment alone" not in text


def test_both_tags_where_they_differ(tmp_path: Path) -> None:
    _, text = read(render_page(invert_if_sorted(), tmp_path / "page.html"))
    assert text.count("By experiment alone") == 3
    assert "No program was found for the whole circuit." in text
    assert "made without the model at hand" in text
    assert "4.3 min" in text


@pytest.mark.parametrize("explanation", [frac_prevs(), invert_if_sorted(), evil()], ids=["small", "ten", "evil"])
def test_self_contained_and_small(tmp_path: Path, explanation: Explanation) -> None:
    specimen = None if explanation.specimen == EVIL else load(explanation.specimen)
    page = render_page(explanation, tmp_path / "page.html", specimen=specimen)
    assert page.stat().st_size < LIMIT_BYTES
    reader, _ = read(page)
    for tag, attributes in reader.tags:
        assert "src" not in attributes
        assert tag not in ("link", "img", "iframe", "object")
        assert not any(name.startswith("on") for name in attributes)
        if tag == "a":
            assert (attributes["href"] or "").startswith("#")
    assert len([tag for tag, _ in reader.tags if tag == "script"]) == 1
    assert not re.search(r"https?://|@import|url\(", page.read_text(encoding="utf-8"))


def test_policy_names_the_one_script(tmp_path: Path) -> None:
    text = render_page(frac_prevs(), tmp_path / "page.html").read_text(encoding="utf-8")
    code = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    named = re.search(r"script-src 'sha256-([^']+)'", text)
    assert code
    assert named
    assert base64.b64encode(hashlib.sha256(code[1].encode()).digest()).decode() == named[1]


def test_markup_in_texts_is_text(tmp_path: Path) -> None:
    page = render_page(evil(), tmp_path / "page.html", title=EVIL)
    _, text = read(page)
    assert text.count(EVIL) >= 20
    assert "<img" not in page.read_text(encoding="utf-8")


def test_every_link_has_a_target_and_ids_are_unique(tmp_path: Path) -> None:
    reader, _ = read(render_page(invert_if_sorted(), tmp_path / "page.html"))
    ids = [attributes["id"] for _, attributes in reader.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    targets = {(attributes["href"] or "")[1:] for tag, attributes in reader.tags if tag == "a"}
    assert targets <= set(ids)
    assert {f"component-{part.id}" for part in invert_if_sorted().components} <= targets


def test_names_in_a_sentence_lead_to_their_component() -> None:
    text = linked("L1H2 and L1H22 <b> of a0.h1, L1H2.", ["L1H2", "a0.h1"])
    there = '<a href="#component-L1H2">L1H2</a>'
    assert text == f'{there} and L1H22 &lt;b&gt; of <a href="#component-a0-h1">a0.h1</a>, {there}.'
    assert linked("<i>", []) == "&lt;i&gt;"


def test_pictures_have_words(tmp_path: Path) -> None:
    reader, _ = read(render_page(frac_prevs(), tmp_path / "page.html", specimen=load("frac_prevs")))
    for tag, attributes in reader.tags:
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
    labels = " ".join(attributes.get("aria-label") or "" for _, attributes in reader.tags)
    assert "L1H2, attention head, AGGREGATOR, supported" in labels
    assert "looks at" in labels


def test_same_input_same_page(tmp_path: Path) -> None:
    one, two = (
        render_page(frac_prevs(), tmp_path / name, specimen=load("frac_prevs")).read_bytes() for name in ("1", "2")
    )
    assert one == two


def test_large_page_loses_pictures_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explanation, specimen = invert_if_sorted(), load("invert_if_sorted")
    bare = render_page(explanation, tmp_path / "bare.html").stat().st_size
    whole = render_page(explanation, tmp_path / "whole.html", specimen=specimen).stat().st_size
    monkeypatch.setattr(sys.modules["vesalius.report.pages"], "LIMIT_BYTES", whole)
    lean = render_page(explanation, tmp_path / "lean.html", specimen=specimen)
    assert bare < lean.stat().st_size < whole
    monkeypatch.setattr(sys.modules["vesalius.report.pages"], "LIMIT_BYTES", bare + 3000)
    assert "Left out to keep" in read(render_page(explanation, tmp_path / "none.html", specimen=specimen))[1]
    monkeypatch.setattr(sys.modules["vesalius.report.pages"], "LIMIT_BYTES", 1000)
    with pytest.raises(Failed, match="explain fewer components"):
        render_page(explanation, tmp_path / "never.html", specimen=specimen)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="could not be written"):
        render_page(frac_prevs(), tmp_path / "nowhere" / "page.html")
    stranger = frac_prevs().components[0].model_copy(update={"id": "the big one"})
    with pytest.raises(BadInput, match="'the big one' is not a name"):
        render_page(frac_prevs().model_copy(update={"components": (stranger,)}), tmp_path / "page.html")


def test_commands_are_quoted() -> None:
    odd = frac_prevs().model_copy(update={"specimen": "my runs/$(x)", "scientist": "hyve", "seed": 4, "request": None})
    # The explanation does not say what was asked.
    assert commands(odd) == ["vesalius show 'my runs/$(x)'"]
    known = Request(
        command="explain",
        specimen="my runs/$(x)",
        components=("L0_MLP",),
        method="hyve",
        backbone="local:small",
        seed=4,
    )
    assert commands(odd.model_copy(update={"request": known}))[0] == (
        "vesalius explain 'my runs/$(x)' --components L0_MLP --scientist hyve --backbone local:small --seed 4"
    )


def test_interval_plot() -> None:
    drawn = plot(evidence(0.5, low=0.25, high=0.75, controls={"a": 0.0, "b": None}))
    assert drawn is not None
    assert (drawn.value, drawn.low, drawn.high, drawn.controls, drawn.zero, drawn.one) == (50, 25, 75, (0,), 0, 100)
    wide = plot(evidence(3.0, low=-1.0, high=3.0, controls={}))
    assert wide is not None
    assert (wide.zero, wide.one, wide.value) == (25, 50, 100)
    counted = plot(evidence(0.5, low=0.25, high=0.75, controls={"cells": 12.0, "shuffled": 0.1}))
    assert counted is not None
    assert (counted.value, counted.controls, counted.one) == (50.0, (10.0,), 100.0)
    assert plot(evidence(None)) is None
    assert plot(evidence(float("nan"))) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0.98765, "0.988"),
        (1, "1.000"),
        (12.34, "12.3"),
        (1234.5, "1,234"),
        (2e-5, "2.0e-05"),
    ],
)
def test_figures(value: float | None, text: str) -> None:
    assert figure(value) == text


def test_durations() -> None:
    assert [duration(1.44), duration(255.2), duration(7200)] == ["1.4 s", "4.3 min", "2.0 h"]


def test_read_off_tables() -> None:
    (flat,) = read_table({"a": 0, "x": True}).sheets
    assert (flat.columns, flat.rows) == (("input", "value"), [("a", 0), ("x", "true")])
    (grid,) = read_table({"a": {"1": 0, "2": 5}, "b": {"2": 7}}).sheets
    assert (grid.columns, grid.rows) == (("", "1", "2"), [("a", 0, 5), ("b", "–", 7)])
    record = read_table({"columns": ["token", "value"], "classes": 2, "rows": [["a", 0]], "by_token": {"a": [1, 2]}})
    assert record.facts == (("classes", "2"),)
    assert [(sheet.title, sheet.columns) for sheet in record.sheets] == [
        ("rows", ("token", "value")),
        ("by token", ("input", "value")),
    ]
    assert read_table({}).sheets == ()
    long = read_table({str(i): i for i in range(100)}).sheets[0]
    assert len(long.rows) == 100
    records = read_records([{"hypothesis": "h", "score": 0.25}, {"hypothesis": "g", "why": None}])
    assert records.rows == [("h", 0.25, "–"), ("g", "–", "–")]
    assert [spell(0.123456), spell(True), spell([1, "a"]), spell({"a": 1})] == ["0.1235", "true", "1, a", '{"a": 1}']


def test_index(tmp_path: Path) -> None:
    reader, text = read(render_index(index_rows(), tmp_path / "index.html", title="A run"))
    for words in ("<b>frac</b> & co", "Tags right 8 of 13 (0.615)", "10 of 13", "1 of 3", "4.3 min"):
        assert words in text
    links = [attributes["href"] for tag, attributes in reader.tags if tag == "a"]
    assert links == ["#main", "pages/frac%20prevs.html", "javascript%3Aalert%281%29"]
    assert [attributes["aria-sort"] for tag, attributes in reader.tags if "aria-sort" in attributes].count(
        "ascending"
    ) == 1


def test_a_benchmarks_index_has_its_figures_to_sort_by(tmp_path: Path) -> None:
    rows = [
        IndexRow("3", "frac_prevs", 2, 2, 1.4, None, 2, 0.998, iia=0.9876, iia_changed=0.75, exact=True),
        IndexRow("130", "clip", 3, 1, 1.0, None, 1, None, exact=False),
    ]
    reader, text = read(render_index(rows, tmp_path / "index.html"))
    for words in ("Programs exact when graded 1 of 2", "IIA, changed outputs", "0.988", "0.750", "yes", "no"):
        assert words in text
    cells = [attributes["data-value"] for tag, attributes in reader.tags if tag == "td"]
    third = str(1 / 3)
    assert cells[:9] == ["3", "2", "1.0", "1.0", "0.998", "0.9876", "0.75", "1", "1.4"]
    assert cells[9:] == ["130", "3", third, third, "", "", "", "0", "1.0"]
    assert "IIA" not in read(render_index(index_rows(), tmp_path / "plain.html"))[1]


def test_ungraded_index_has_no_tag_column(tmp_path: Path) -> None:
    row = IndexRow.of(frac_prevs(), id="3", page="frac_prevs.html")
    assert row == IndexRow("3", "frac_prevs", 2, 2, 1.4, "frac_prevs.html", None, 0.998)
    _, text = read(render_index([row], tmp_path / "index.html"))
    assert "Tags right" not in text
    assert "1 of 1" in text
    assert read(render_index([], tmp_path / "empty.html"))[1]


#: Colour vision deficiencies as matrices on linear RGB, severity 1 (Machado, Oliveira and Fernandes 2009).
DEFICIENCIES = {
    "none": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    x, y, z = np.cbrt(np.maximum(TO_XYZ @ rgb.clip(0, 1) / np.array([0.9505, 1.0, 1.089]), 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_tag_colours_stay_apart(theme: int, deficiency: str, tmp_path: Path) -> None:
    text = render_index([], tmp_path / "index.html").read_text(encoding="utf-8")
    colours = {
        name: (light, dark)[theme] for name, light, dark in re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", text)
    }
    tags = [linear(colours[name]) for name in ("indicator", "aggregator", "router", "mapper", "combiner")]
    seen = [lab(DEFICIENCIES[deficiency] @ tag) for tag in tags]
    assert min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2)) > 20
    paper = TO_XYZ[1] @ linear(colours["paper"])
    for tag in tags:
        low, high = sorted((TO_XYZ[1] @ tag, paper))
        assert (high + 0.05) / (low + 0.05) >= 3


def test_a_natural_model_shows_roles_bars_and_how_to_make_it_again(tmp_path: Path) -> None:
    page = render_page(natural(), tmp_path / "natural.html")
    reader, text = read(page)
    assert "previous-token head, necessary upstream" in text
    assert "duplicate-token head, lens-positive but redundant" in text
    assert "replaced alone 0.65 0.55 to 0.75" in text
    assert "first A 0.90 0.80 to 0.97" in text
    assert "Group: heads that look at previous (L16H0, L11H1)." in text
    assert "vesalius explain smollm2-135m --behaviour induction --n 16 --top 12 --seed 0" in text
    assert "No program was found" not in text
    assert sum(attributes.get("class") == "bars" for tag, attributes in reader.tags if tag == "table") == 5
    assert page.stat().st_size < LIMIT_BYTES


def test_bars_stand_on_one_scale_that_holds_zero_and_one() -> None:
    effects = {"solo": [0.5, 0.25, 1.5], "lens": [-0.5, -0.5, -0.001], "joint": [None, 0.0, 0.0], "unknown": [1, 1, 1]}
    (profile,) = draw_profile({"effects": effects})
    bars = bars_of(profile)
    assert [bar.label for bar in bars.rows] == ["replaced alone", "logit lens: what it writes by itself"]
    alone, lens = bars.rows
    assert (alone.zero, alone.value, alone.low, alone.high) == (25.0, 50.0, 37.5, 100.0)
    assert (alone.left, alone.width) == (25.0, 25.0)
    assert (lens.left, lens.width, lens.figures) == (0.0, 25.0, (-0.5, -0.5, 0.0))
    assert draw_profile({}) == ()


def test_a_box_of_the_circuit_gets_the_first_half_of_a_role() -> None:
    assert short_role("induction head, backup mover") == "induction head"
    assert short_role("lens-positive but redundant") == "lens-positive"
    assert short_role("writes the answer (interchange 0.73)") == "writes the answer"
    assert short_role("carries the second operand at operand B") == "carries the second …"
