"""Names of sites: read in every notation, printed without loss, refused in one line with the nearest right name."""

import pytest

from tests.models import small_config
from vesalius.components import Component, Edge
from vesalius.errors import BadInput
from vesalius.sites import Activation, Feature, Site, only_components, parse_sites, sites_of


@pytest.mark.parametrize(
    ("name", "site"),
    [
        ("L12.resid", Site(Activation(12, "resid"))),
        ("L12.resid@S2", Site(Activation(12, "resid"), ("S2",))),
        ("L12.resid_pre@0@-1", Site(Activation(12, "resid_pre"), (0, -1))),
        ("L3H1.q", Site(Activation(3, "q", 1))),
        ("L3.H1.q", Site(Activation(3, "q", 1))),
        ("L3.pattern", Site(Activation(3, "pattern"))),
        ("L2.mlp_post@-1", Site(Activation(2, "mlp_post"), (-1,))),
        ("blocks.3.hook_resid_post", Site(Activation(3, "resid"))),
        ("blocks.3.attn.hook_k[2]", Site(Activation(3, "k", 2))),
        ("blocks.3.mlp.hook_pre", Site(Activation(3, "mlp_pre"))),
        ("a1.h2@end", Site(Component(1, 2), ("end",))),
        ("blocks.0.hook_mlp_out", Site(Component(0))),
        ("L3N17", Site(Component(3, neuron=17))),
        ("L3F17@end", Site(Feature(3, 17), ("end",))),
        ("L3.error", Site(Feature(3, None))),
        ("L0H1->L5H3.k", Site(Edge(Component(0, 1), Component(5, 3), "k"))),
        ("a0.h1->a5.h3<k>@IO", Site(Edge(Component(0, 1), Component(5, 3), "k"), ("IO",))),
        ("input->m1", Site(Edge(None, Component(1), "mlp"))),
        ("L0H1->logits", Site(Edge(Component(0, 1), None, "logits"))),
    ],
)
def test_names_are_read_and_printed_without_loss(name: str, site: Site) -> None:
    assert Site.parse(name) == site
    assert Site.parse(str(site)) == site


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("L3.residd", "did you mean L3.resid?"),
        ("L3H1.querry", "did you mean L3H1.q?"),
        ("L3H1.patern", "did you mean L3H1.pattern?"),
        ("L3.mlp_pots", "did you mean L3.mlp_post?"),
        ("layer3.resid", "did you mean L3.resid?"),
        ("l4h2", "did you mean L4H2?"),
        ("nothing", "is not a name; expected"),
        ("L3H1.resid", "heads have q, k, v, z, pattern; take L3.resid"),
        ("L9.resid", "layers 0 to 1"),
        ("L0H9.q", "heads 0 to 3"),
        ("L0.resid@", "nothing follows an @"),
        ("L1H0->L0H0.q", "runs backwards"),
        ("L0H0->L1H0", "add <q>, <k> or <v>"),
        ("L0H0->L7H0.q", "not in this model"),
        ("L0N99", "neurons 0 to 19"),
        ("", "empty"),
        ("L0.resid\n\x1b[31m" + "x" * 500, "is not a name"),
        ("L" + "9" * 5000 + ".resid", "is not a name"),
        ("L0H1->L" + "9" * 5000 + "H1.k", "is not a name"),
        ("layer" + "9" * 5000 + " resid", "is not a name"),
    ],
)
def test_what_is_no_name_gets_one_line(name: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_sites(name, small_config())
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_all_sites_of_a_kind() -> None:
    config = small_config()
    assert [str(site) for site in sites_of("resid", config)] == ["L0.resid", "L1.resid"]
    assert len(sites_of("q,attn_out", config)) == 2 * 4 + 2
    assert [str(site) for site in sites_of("L1H2.q", config)] == ["L1H2.q"]
    assert [str(site) for site in sites_of("resid,L1.resid,resid_post", config)] == ["L0.resid", "L1.resid"]
    assert [str(site) for site in parse_sites("L0H1,a0.h1,L1.resid@-1", config)] == ["L0H1", "L1.resid@-1"]
    with pytest.raises(BadInput, match="did you mean resid"):
        sites_of("redis", config)
    with pytest.raises(BadInput, match="parallel"):
        sites_of("resid_mid", small_config(block="parallel"))
    experts = {"n_experts": 3, "n_active": 1, "d_expert": 6, "renormalise": False, "layers": (1,)}
    assert [str(site) for site in sites_of("mlp_post", small_config(experts=experts))] == ["L0.mlp_post"]
    with pytest.raises(BadInput, match="made of experts"):
        parse_sites("L1.mlp_post", small_config(experts=experts))
    everywhere = small_config(experts={**experts, "layers": (0, 1)})  # what is left is nothing, and is not swept
    with pytest.raises(BadInput, match=r"L0\.mlp_pre: the MLP of layer 0 is made of experts; take L0\.mlp_out or an"):
        sites_of("mlp_pre", everywhere)


def test_components_alone_are_left_to_the_engine() -> None:
    assert only_components(parse_sites("L0H1,L1_MLP", small_config()))
    assert not only_components(parse_sites("L0H1@2", small_config()))
    assert not only_components(parse_sites("L0H1.q", small_config()))
