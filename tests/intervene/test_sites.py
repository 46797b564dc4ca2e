"""Sites against plain hooks: one hooked run per prompt and site, written without the code under test, on models built
like GPT-2, Llama (heads that share keys and values) and GPT-NeoX (parallel blocks), with padded prompts.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.intervene.twin import naive_logits
from tests.models import ROUNDING, random_model, small_config
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Readout, Recordings, Row, activations, zeros
from vesalius.intervene.ablations import Mean, Resample, ValueBias, Zero
from vesalius.intervene.effects import effects
from vesalius.intervene.engine import Cost
from vesalius.intervene.sites import SiteValues, placed_sets, site_columns, site_scores
from vesalius.model import Transformer
from vesalius.model.hooks import HookPoint
from vesalius.sites import Site, parse_sites, sites_of

FAMILIES = {
    "gpt2": {"norm": "layer", "rotary": None, "gated": False, "activation": "gelu_tanh", "n_kv_heads": 4},
    "llama": {},
    "gpt_neox": {"norm": "layer", "block": "parallel", "gated": False, "activation": "gelu", "n_kv_heads": 4},
}
N, WIDTH = 3, 6


class Setting:
    """A model with padded prompts, counterfactuals, and what is read: three tokens at each prompt's last position."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        generator = torch.Generator().manual_seed(1)
        tokens, other = (torch.randint(1, 17, (N, WIDTH), generator=generator) for _ in range(2))
        self.ends = torch.tensor([5, 3, 4])
        mask = torch.arange(WIDTH)[None] <= self.ends[:, None]
        self.batch, self.other = Batch(tokens, mask), Batch(other, mask)
        choose = torch.tensor([[1, 2, 3]]).repeat(N, 1)
        self.readout = Readout(lambda logits, _: logits[:, 0, 0] - 2 * logits[:, 0, 1], self.ends[:, None], choose)
        self.recordings = Recordings(model, self.batch, self.readout)
        self.sources = [
            model.run_with_cache(one.tokens, mask=one.mask)[1]
            for one in (self.other.take(slice(row, row + 1)) for row in range(N))
        ]

    def edited(self, names: str, kind: object = None, where: Tensor | None = None) -> Tensor:
        """What the code under test gives."""
        sites = parse_sites(names, self.model.config)
        (placed,) = placed_sets([sites], lambda at: self.marked(at), where)
        kind = kind or Resample()
        values = SiteValues.make(self.model, kind, self.batch, [placed], counterfactual=self.other)  # type: ignore[arg-type]
        return site_scores(self.recordings, values, placed)

    def marked(self, at: object) -> Tensor:
        mask = torch.zeros(N, WIDTH, dtype=torch.bool)
        for one in at:  # type: ignore[attr-defined]
            places = self.ends + 1 + one if one < 0 else torch.full((N,), one)
            mask[torch.arange(N), places] = True
        return mask

    def hooked(self, hooks: Callable[[int, dict[str, Tensor]], list]) -> Tensor:
        """Plain runs, one a prompt, with hooks made from the counterfactual's cache."""
        scores = []
        for row in range(N):
            one, made = self.batch.take(slice(row, row + 1)), hooks(row, self.sources[row])  # type: ignore[arg-type]
            logits = self.model.run_with_hooks(one.tokens, mask=one.mask, fwd_hooks=made)
            scores.append(logits[0, self.ends[row], 1] - 2 * logits[0, self.ends[row], 2])
        return torch.stack(scores)


@pytest.fixture(scope="module", params=list(FAMILIES))
def setting(request: pytest.FixtureRequest) -> Setting:
    return Setting(random_model(small_config(**FAMILIES[request.param])))


def patched(hook: str, at: Callable[[int], object]) -> Callable[[int, dict[str, Tensor]], list]:
    """A hook that copies the counterfactual's activation at an index."""

    def make(row: int, cache: dict[str, Tensor]) -> list:
        def copy(value: Tensor, point: HookPoint) -> Tensor:
            value = value.clone()
            value[at(row)] = cache[hook][at(row)]
            return value

        return [(hook, copy)]

    return make


@pytest.mark.parametrize(
    ("kind", "hook"),
    [
        ("resid_pre", "hook_resid_pre"),
        ("resid", "hook_resid_post"),
        ("attn_out", "hook_attn_out"),
        ("mlp_out", "hook_mlp_out"),
        ("mlp_pre", "mlp.hook_pre"),
        ("mlp_post", "mlp.hook_post"),
        ("z", "attn.hook_z"),
    ],
)
def test_the_map_of_layers_and_positions(setting: Setting, kind: str, hook: str) -> None:
    """Every layer at every position, in one sweep, against one plain hooked run each."""
    config = setting.model.config
    layers = {str(site): site for site in parse_sites([f"L{i}.{kind}" for i in range(config.n_layers)], config)}
    sites = [[site.placed(at)] for site in layers.values() for at in range(WIDTH)]
    placed = placed_sets(sites, setting.marked)
    values = SiteValues.make(setting.model, Resample(), setting.batch, placed, counterfactual=setting.other)
    table, cost = torch.full((N, len(sites)), torch.nan), Cost()
    for columns, scores in site_columns(setting.recordings, values, placed, cost=cost):
        table[:, columns] = scores
    for column, (site,) in enumerate(sites):
        plain = setting.hooked(patched(f"blocks.{site.layer}.{hook}", lambda row, at=site.at[0]: (0, at)))
        assert torch.allclose(table[:, column], plain, atol=ROUNDING)
    clean = setting.recordings.scores()
    assert (table - clean[:, None]).abs().max() > 1e-2  # something was replaced
    after_end = torch.arange(WIDTH)[None].repeat(1, config.n_layers) > setting.ends[:, None]
    assert torch.allclose(table[after_end], clean[:, None].expand_as(table)[after_end], atol=ROUNDING)  # padding


@pytest.mark.parametrize("port", ["q", "k", "v"])
def test_one_heads_query_key_and_value(setting: Setting, port: str) -> None:
    """Also of a head that shares its key and value with another: its own is replaced, not the other's. The twin
    replaces the whole activation, runs attention, and keeps the z of the other heads.
    """

    def hooks(row: int, cache: dict[str, Tensor]) -> list:
        kept: dict[str, Tensor] = {}
        one, groups = setting.batch.take(torch.tensor([row])), setting.model.config.queries_per_kv
        _, clean = setting.model.run_with_cache(one.tokens, mask=one.mask)
        kept["z"] = clean["blocks.1.attn.hook_z"]

        def put(value: Tensor, point: HookPoint) -> Tensor:
            value, head = value.clone(), 3 if port == "q" else 3 // groups
            value[:, 2, head] = cache[f"blocks.1.attn.hook_{port}"][:, 2, head]
            return value

        def others(z: Tensor, point: HookPoint) -> Tensor:
            z = z.clone()
            z[:, :, :3] = kept["z"][:, :, :3]
            return z

        return [(f"blocks.1.attn.hook_{port}", put), ("blocks.1.attn.hook_z", others)]

    edited = setting.edited(f"L1H3.{port}@2")
    assert torch.allclose(edited, setting.hooked(hooks), atol=ROUNDING)


def test_a_pattern_at_a_query(setting: Setting) -> None:
    edited = setting.edited("L1H2.pattern@-1")
    plain = setting.hooked(patched("blocks.1.attn.hook_pattern", lambda row: (0, 2, int(setting.ends[row]))))
    assert torch.allclose(edited, plain, atol=ROUNDING)


@pytest.mark.parametrize(
    "names",
    [
        "L0H1->L1H3.k",
        "L0_MLP->L1H2.q",
        "input->L1H0.v",
        "L0H2->L1_MLP",
        "L0H3->logits",
        "L1H1,L0H1->L1H3.v,L0H0->logits",
        "L0H1,L1_MLP",
    ],
)
def test_edges_and_components_are_those_of_the_plain_twin(setting: Setting, names: str) -> None:
    values = activations(setting.model, setting.other)
    sites = parse_sites(names, setting.model.config)
    edges = [site.place for site in sites if "->" in str(site)]
    others = [site.place for site in sites if "->" not in str(site)]
    for at in (None, [1, 3]):
        where = None if at is None else setting.marked(at)
        edited = setting.edited(names, where=where)
        for row in range(N):
            plain = Row(row, {str(part): row for part in others}, {str(edge): row for edge in edges}, at)
            logits = naive_logits(setting.model, setting.batch, plain, values)[setting.ends[row]]
            assert edited[row] == pytest.approx(float(logits[1] - 2 * logits[2]), abs=ROUNDING)


@pytest.mark.parametrize("kind", [Zero(), Mean(), Resample(), ValueBias()])
def test_components_equal_the_engine_under_every_ablation(setting: Setting, kind: object) -> None:
    model, batch = setting.model, setting.batch
    expected = effects(
        model, batch, setting.readout, kind=kind, sets=[["L0H1", "L1_MLP"]], counterfactual=setting.other
    )  # type: ignore[arg-type]
    edited = setting.edited("L0H1,L1_MLP", kind)
    assert torch.allclose(expected.baseline - edited, expected.matrix[:, 0], atol=ROUNDING)


def test_zeros_means_neurons_and_heads_by_another_name(setting: Setting) -> None:
    assert torch.allclose(setting.edited("L0H1.z"), setting.edited("L0H1"), atol=ROUNDING)
    zeroed = setting.hooked(lambda row, cache: [("blocks.0.hook_resid_post", lambda x, point: torch.zeros_like(x))])
    assert torch.allclose(setting.edited("L0.resid", Zero()), zeroed, atol=ROUNDING)
    neuron = setting.edited("L1N7@-1")
    plain = setting.hooked(patched("blocks.1.mlp.hook_post", lambda row: (0, int(setting.ends[row]), 7)))
    assert torch.allclose(neuron, plain, atol=ROUNDING)
    _, cache = setting.model.run_with_cache(setting.batch.tokens, mask=setting.batch.mask)
    mean = cache["blocks.0.mlp.hook_post"][setting.batch.mask].mean(0)
    put = setting.hooked(lambda row, cache: [("blocks.0.mlp.hook_post", lambda x, point: mean.expand_as(x))])
    assert torch.allclose(setting.edited("L0.mlp_post", Mean()), put, atol=ROUNDING)


def test_several_sites_at_once_and_the_order_of_their_names(setting: Setting) -> None:
    """The later site sees what the earlier one did; both orders are the same row."""
    both = setting.edited("L0.resid@1,L1H1.q@3")
    assert torch.allclose(both, setting.edited("L1H1.q@3,L0.resid@1"), atol=ROUNDING)

    def hooks(row: int, cache: dict[str, Tensor]) -> list:
        first = patched("blocks.0.hook_resid_post", lambda row: (0, 1))(row, cache)
        return [*first, *patched("blocks.1.attn.hook_q", lambda row: (0, 3, 1))(row, cache)]

    assert torch.allclose(both, setting.hooked(hooks), atol=ROUNDING)


def test_an_edge_with_two_names_is_cut_once(setting: Setting) -> None:
    """What cutting an edge adds to its receiver's input would add up: the same place twice, or at @3 and everywhere."""
    end = int(setting.ends[0])
    for edge in ("L0H1->L1H3.k", "L0_MLP->logits"):
        whole, last = setting.edited(edge), setting.edited(f"{edge}@-1")
        assert not torch.allclose(whole, setting.recordings.scores(), atol=ROUNDING)
        assert torch.allclose(setting.edited(f"{edge},{edge}"), whole, atol=ROUNDING)
        assert torch.allclose(setting.edited(f"{edge}@-1,{edge}"), whole, atol=ROUNDING)
        assert torch.allclose(setting.edited(f"{edge}@-1,{edge}@{end}")[0], last[0], atol=ROUNDING)
        both = setting.edited(f"{edge}@1@3")
        assert torch.allclose(setting.edited(f"{edge}@1,{edge}@3"), both, atol=ROUNDING)


def test_what_has_no_value_is_refused(setting: Setting) -> None:
    with pytest.raises(BadInput, match=r"kind 'mean' has no value for L0H0.pattern"):
        setting.edited("L0H0.pattern", Mean())
    with pytest.raises(BadInput, match=r"kind 'value-bias' has no value for L0.resid"):
        setting.edited("L0.resid", ValueBias())


def test_experts_and_layers_that_start_late_cost_less() -> None:
    experts = {"n_experts": 4, "n_active": 2, "d_expert": 6, "renormalise": True, "layers": (0, 1)}
    setting = Setting(random_model(small_config(experts=experts)))
    edited = setting.edited("L1E2")
    expected = effects(
        setting.model, setting.batch, setting.readout, kind=Resample(), sets=[["L1E2"]], counterfactual=setting.other
    )
    assert torch.allclose(expected.baseline - edited, expected.matrix[:, 0], atol=ROUNDING)
    recordings = Recordings(setting.model, setting.batch, setting.readout)
    recordings.scores()
    cost, sets = Cost(), placed_sets([[site] for site in sites_of("resid_pre", setting.model.config)], setting.marked)
    values = SiteValues.make(setting.model, Zero(), setting.batch, sets)
    list(site_columns(recordings, values, sets, cost=cost))
    assert cost.rows == pytest.approx(N * 1.5)
    assert isinstance(sets[0][0].site, Site)
    assert len(zeros(setting.model)) == 1
