"""Component and edge names: every notation of the field, read and printed without loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import small_config
from vesalius.components import STYLES, Edge, Style, all_components, parse_components
from vesalius.errors import BadInput
from vesalius.model import Component

numbers = st.integers(0, 10**6)
components = st.builds(Component, numbers, st.none() | numbers)
styles = st.sampled_from(STYLES)


@st.composite
def edges(draw: st.DrawFn) -> Edge:
    """Any edge that runs forwards, from the embedding or a component into a component or the logits."""
    if draw(st.booleans()):
        return Edge(draw(st.none() | components), None, "logits")
    receiver = draw(components)
    port = draw(st.sampled_from("qkv")) if receiver.is_head else "mlp"
    senders = [st.none()]
    if receiver.layer:
        senders.append(st.builds(Component, st.integers(0, receiver.layer - 1), st.none() | numbers))
    if not receiver.is_head:
        senders.append(st.builds(Component, st.just(receiver.layer), numbers))
    return Edge(draw(st.one_of(senders)), receiver, port)


@given(components, styles)
def test_every_style_reads_back(component: Component, style: Style) -> None:
    assert Component.parse(component.format(style)) == component
    assert Component.parse(f" {component.format(style)}\n") == component


@given(edges(), styles)
def test_every_style_of_an_edge_reads_back(edge: Edge, style: Style) -> None:
    assert Edge.parse(edge.format(style)) == edge
    assert Edge.parse(str(edge)) == edge


@given(components, components, styles)
def test_names_differ_where_components_differ(first: Component, second: Component, style: Style) -> None:
    assert (first.format(style) == second.format(style)) == (first == second)


@pytest.mark.parametrize(
    ("name", "layer", "head"),
    [
        ("L1H2", 1, 2),
        ("L1.H2", 1, 2),
        ("1.2", 1, 2),
        ("L1H2_ATTN", 1, 2),
        ("a1.h2", 1, 2),
        ("blocks.1.attn.hook_result[2]", 1, 2),
        ("blocks.1.attn.hook_z[2]", 1, 2),
        ("L10H11", 10, 11),
        ("L0_MLP", 0, None),
        ("L0.MLP", 0, None),
        ("0.mlp", 0, None),
        ("m0", 0, None),
        ("blocks.0.mlp.hook_post", 0, None),
        ("blocks.0.hook_mlp_out", 0, None),
    ],
)
def test_notations_by_hand(name: str, layer: int, head: int | None) -> None:
    assert Component.parse(name) == Component(layer, head)


@pytest.mark.parametrize(
    ("style", "head", "mlp"),
    [
        ("canonical", "L1H2", "L0_MLP"),
        ("hook", "blocks.1.attn.hook_result[2]", "blocks.0.mlp.hook_post"),
        ("paper", "L1.H2", "L0.MLP"),
        ("short", "1.2", "0.mlp"),
        ("bench", "L1H2_ATTN", "L0_MLP"),
        ("eap", "a1.h2", "m0"),
    ],
)
def test_printed_by_hand(style: Style, head: str, mlp: str) -> None:
    assert (Component(1, 2).format(style), Component(0).format(style)) == (head, mlp)


@pytest.mark.parametrize(
    ("name", "edge"),
    [
        ("a0.h1->m1", Edge(Component(0, 1), Component(1), "mlp")),
        ("a0.h1->m0", Edge(Component(0, 1), Component(0), "mlp")),
        ("a0.h1->a5.h5<q>", Edge(Component(0, 1), Component(5, 5), "q")),
        ("L0H1->L5H5<k>", Edge(Component(0, 1), Component(5, 5), "k")),
        ("input->a0.h0<v>", Edge(None, Component(0, 0), "v")),
        ("m11->logits", Edge(Component(11), None, "logits")),
        ("input->logits", Edge(None, None, "logits")),
        ("blocks.0.mlp.hook_post->blocks.1.attn.hook_result[2]<q>", Edge(Component(0), Component(1, 2), "q")),
    ],
)
def test_edges_by_hand(name: str, edge: Edge) -> None:
    assert Edge.parse(name) == edge


def test_the_canonical_name_is_what_str_gives() -> None:
    assert (str(Component(3, 4)), str(Component(3)), str(Edge.parse("L0H1->L1_MLP"))) == ("L3H4", "L3_MLP", "a0.h1->m1")


def test_order_is_order_of_computation() -> None:
    names = ["L1_MLP", "L1H0", "L0_MLP", "L0H10", "L0H2"]
    in_order = [str(c) for c in sorted(map(Component.parse, names))]
    assert in_order == ["L0H2", "L0H10", "L0_MLP", "L1H0", "L1_MLP"]
    everything = all_components(small_config())
    assert everything == sorted(everything)
    assert [str(c) for c in everything[:6]] == ["L0H0", "L0H1", "L0H2", "L0H3", "L0_MLP", "L1H0"]


def test_lists_of_heads_or_mlps_alone() -> None:
    config = small_config()
    assert len(all_components(config)) == 2 * (4 + 1)
    assert [str(c) for c in all_components(config, heads=False)] == ["L0_MLP", "L1_MLP"]
    assert all(c.is_head for c in all_components(config, mlps=False))


@pytest.mark.parametrize(
    "name", ["", "H2", "L1", "L1H", "1.2.3", "L-1H2", "mlp", "blocks.1.attn.hook_pattern[2]", "L1H2x"]
)
def test_a_wrong_name_says_what_was_expected(name: str) -> None:
    with pytest.raises(BadInput, match="expected a head such as L1H2") as refusal:
        Component.parse(name)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["L2H0", "L0H4", "L2_MLP"])
def test_outside_the_model_says_what_the_model_has(name: str) -> None:
    expected = f"component {name} is not in this model; it has layers 0 to 1 with heads 0 to 3 and an MLP each"
    with pytest.raises(BadInput, match=expected):
        parse_components(["L0H0", name], small_config())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a0.h1", "expected for example a0.h1->a5.h5<q>"),
        ("a0.h1->a1.h0", "enters a head: add <q>, <k> or <v>"),
        ("a0.h1->m1<q>", "cannot enter by 'q'"),
        ("a0.h1->logits<q>", "enters the logits"),
        ("a1.h1->a1.h0<q>", "runs backwards"),
        ("m1->m1", "runs backwards"),
        ("m1->a1.h0<k>", "runs backwards"),
        ("logits->m1", "not a name"),
        ("a0.h1->nowhere", "not a name"),
    ],
)
def test_impossible_edges_are_refused(name: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        Edge.parse(name)


def test_both_ends_of_an_edge_must_be_in_the_model() -> None:
    config = small_config()
    assert Edge.parse("a0.h1->m1").within(config).receiver == Component(1)
    for name in ("a0.h4->m1", "a0.h1->m2"):
        with pytest.raises(BadInput, match="not in this model"):
            Edge.parse(name).within(config)


def test_empty_lists_negative_numbers_and_unknown_styles_are_refused() -> None:
    with pytest.raises(BadInput, match="list of components is empty"):
        parse_components([], small_config())
    with pytest.raises(BadInput, match="count from 0"):
        Component(-1)
    with pytest.raises(BadInput, match="choose one of canonical"):
        Component(0).format("camel")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["L0F3", "L12.error", "L3.resid@S2", "L0H1.q", "L0H1@end", "L0_MLP@-1"])
def test_a_site_where_components_are_taken_is_sent_to_the_verbs_that_take_it(name: str) -> None:
    with pytest.raises(BadInput, match="`sweep`, `what-if` and `complete` take other sites") as refusal:
        Component.parse(name)
    assert repr(name) in str(refusal.value)
