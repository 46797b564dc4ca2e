"""Tags that do not contradict what their component's claims say."""

import pytest

import vesalius.api as ves
from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord
from vesalius_programs import explain
from vesalius_programs.classify import agreeing_tag, contradictions

HEAD, MLP = Component(1, 0), Component(1)


def claim(kind: str, *variables: str, verdict: str = "supported", fixed: bool = False) -> ClaimRecord:
    text = f"{'At a fixed position, ' if fixed else ''}it is so."
    prediction = {"variables": list(variables)} if variables else {}
    return ClaimRecord(kind=kind, text=text, verdict=verdict, evidence=(), prediction=prediction)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tag", "reads", "one", "contradicted"),
    [
        ("COMBINER", ("L0H0",), claim("depends_only_on", "L0H0"), True),
        ("COMBINER", ("L0H0",), claim("depends_only_on", "L0H0", fixed=True), False),
        ("COMBINER", ("L0H0",), claim("depends_only_on", "L0H0", verdict="undecided"), False),
        ("COMBINER", ("L0H0",), claim("depends_only_on", "L0H0", "tokens"), False),
        ("COMBINER", ("L0H0",), claim("computes"), True),
        ("MAPPER", ("L0H0",), claim("computes"), False),
        ("MAPPER", ("L0H0", "tokens"), claim("computes", fixed=True), True),
        ("MAPPER", ("L0H0", "indices"), claim("computes", fixed=True), False),
        ("MAPPER", ("L0H0", "indices"), claim("computes"), True),
        ("INDICATOR", ("L0H0", "L0H1"), claim("combines", "L0H0", "L0H1"), True),
        ("COMBINER", ("L0H0", "L0H1"), claim("combines", "L0H0", "L0H1"), False),
        ("MAPPER", ("L0H0",), claim("necessary"), False),
    ],
)
def test_what_contradicts_the_tag_of_an_mlp(tag, reads, one, contradicted) -> None:
    assert bool(contradictions(tag, MLP, reads, [one])) == contradicted


def test_a_head_that_copies_is_not_an_aggregator() -> None:
    assert contradictions("AGGREGATOR", HEAD, ("tokens",), [claim("copies")])
    assert not contradictions("ROUTER", HEAD, ("tokens",), [claim("copies")])
    assert not contradictions("AGGREGATOR", HEAD, ("tokens",), [claim("aggregates")])


def test_the_first_reading_that_agrees_is_the_tag() -> None:
    alone = [claim("depends_only_on", "L0H0")]
    assert agreeing_tag(("COMBINER", "MAPPER"), MLP, ("L0H0",), alone) == "MAPPER"
    assert agreeing_tag(("COMBINER", "MAPPER"), MLP, ("L0H0",), []) == "COMBINER"
    assert agreeing_tag(("COMBINER", "COMBINER"), MLP, ("L0H0",), alone) == "MAPPER"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frac_prevs", "54", "69", "77", "95"])
def test_seeds_do_not_change_a_tag(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "LAB_PAIRS", 512)
    tags = []
    for seed in range(3):
        parts = explain.explain_specimen(ves.load(name), seed=seed).components
        tags.append({part.id: part.tag for part in parts})
        for part in parts:
            assert part.tag is not None
            assert not contradictions(part.tag, Component.parse(part.id), part.reads, part.claims)
    assert tags[0] == tags[1] == tags[2]
