"""Single neurons and experts: exact replacement against hooked loops, attribution, names and refusals."""

import pytest
import torch
from torch import Tensor

from tests.intervene.pairs import prompt_pairs
from tests.models import STRUCTURES, random_model, small_config
from vesalius.components import STYLES, Component, Edge, mlp_units
from vesalius.errors import BadInput
from vesalius.intervene import (
    Batch,
    Plan,
    Readout,
    Recordings,
    Row,
    ablation_named,
    attribute,
    attribute_units,
    effects,
    run,
)
from vesalius.intervene.attribution import RULES, Rule, unit_changes
from vesalius.intervene.values import Values, activations, reordered, zeros
from vesalius.model import Transformer
from vesalius.model.hooks import HookPoint, Tap
from vesalius.model.mlp import ExpertMlp


def hooked(model: Transformer, batch: Batch, readout: Readout, row: Row, values: Values) -> Tensor:
    """The naive twin: one forward for one row, its neurons replaced by hooks, its heads and MLPs as well."""
    where = torch.zeros(batch.tokens.shape[1], dtype=torch.bool)
    where[list(range(len(where)) if row.positions is None else row.positions)] = True
    hooks = []
    for name, choice in row.edits.items():
        part = Component.parse(name)
        table, point = {
            (True, False): (values.z, "attn.hook_z"),
            (False, False): (values.mlp, "hook_mlp_out"),
            (False, True): (values.units, "mlp.hook_post"),
        }[part.is_head, part.is_neuron]

        def replace(value: Tensor, hook: object, part=part, table=table, choice=choice) -> Tensor:
            value, new = value.clone(), table[part.layer][choice].expand(value.shape[1], *value.shape[2:])
            if part.is_head:
                value[0, where, part.head] = new[where, part.head]
            elif part.is_neuron:
                value[0, where, part.neuron] = new[where, part.neuron]
            else:
                value[0, where] = new[where] + model.blocks[part.layer].mlp_bias
            return value

        hooks.append((f"blocks.{part.layer}.{point}", replace))
    prompt, one = row.prompt, torch.tensor([row.prompt])
    mask = None if batch.mask is None else batch.mask[one]
    logits = model.run_with_hooks(batch.tokens[one], mask=mask, fwd_hooks=hooks)
    assert readout.at is not None
    assert readout.choose is not None
    return readout.score(logits[:, readout.at[prompt]][:, :, readout.choose[prompt]], one)[0]


ROWS = [
    Row(0, {"L0N3": 0}),
    Row(1, {"L1N19": 1}),
    Row(2, {"L0N0": 2, "L0N7": 1, "L1N4": 2}),
    Row(0, {"L1N2": 0, "L0H1": 0, "L1H3": 2}),
    Row(1, {"L0N5": 1, "L1_MLP": 0, "L0_MLP": 2, "L1N0": 0}),
    Row(2, {"L0N1": 0, "L1N1": 1}, positions=[1, 4]),
    Row(0, {}),
    Row(0, {f"L{layer}N{neuron}": 1 for layer in range(2) for neuron in range(1, 20)}),
]


@pytest.mark.parametrize("name", ["plain", "wide-heads", *(n for n in STRUCTURES if "experts" not in n)])
def test_neurons_are_replaced_as_by_hooks(name: str) -> None:
    """Rows over many neurons at a time, with heads, MLPs and positions; wide heads are computed token by token."""
    changes = {"d_head": 16} if name == "wide-heads" else STRUCTURES.get(name, {})
    model = random_model(small_config(**changes), 4).double()
    batch, other, readout = prompt_pairs(model.config, 4)
    other = Batch(torch.cat([batch.tokens[:, :2], other.tokens[:, 2:]], 1), other.mask)  # alike at the beginning
    values = activations(model, other, neurons=True)
    recordings = Recordings(model, batch, readout)
    scores = run(recordings, Plan.of(model.config, ROWS, width=5), values)
    expected = torch.stack([hooked(model, batch, readout, row, values) for row in ROWS])
    assert torch.allclose(scores, expected, atol=1e-9)
    assert (recordings.scores()[0] - scores[0]).abs() > 1e-6
    small = run(recordings, Plan.of(model.config, ROWS, width=5), values, memory=1)
    assert torch.allclose(small, expected, atol=1e-9)


def test_effects_of_neurons_and_of_all_of_them() -> None:
    """Every neuron alone and, without a norm behind it, all neurons of a layer together: that is the whole MLP."""
    model = random_model(small_config(), 6).double()
    batch, other, readout = prompt_pairs(model.config, 6)
    neurons = mlp_units(model.config)
    assert len(neurons) == 2 * 20
    layer = [part for part in neurons if part.layer == 1]
    for kind in ("zero", "mean", "resample"):
        sets = [*((part,) for part in neurons), layer, ("L1_MLP",)]
        swept = effects(model, batch, readout, kind=kind, sets=sets, counterfactual=other)
        assert torch.allclose(swept.matrix[:, -2], swept.matrix[:, -1], atol=1e-9), kind
    table = zeros(model)
    for i in (0, 13, 39):
        row = Row(2, {neurons[i]: 0})
        clean = Recordings(model, batch, readout).scores()[2]
        zero = effects(model, batch, readout, sets=[(neurons[i],)])
        assert float(zero.matrix[2, 0]) == pytest.approx(float(clean - hooked(model, batch, readout, row, table)))


def test_neurons_beside_a_layer_of_experts() -> None:
    """Every kind of replacement where only some layers have neurons, against hooks."""
    model = random_model(small_config(**STRUCTURES["one-layer-of-experts"]), 8).double()
    batch, other, readout = prompt_pairs(model.config, 8)
    assert {part.layer for part in mlp_units(model.config) if part.is_neuron} == {0}
    for kind in ("zero", "mean", "resample"):
        swept = effects(model, batch, readout, kind=kind, sets=[("L0N3",), ("L0N5", "L0N19")], counterfactual=other)
        replacement = ablation_named(kind).table(model, batch, counterfactual=other, neurons=True)
        clean = Recordings(model, batch, readout).scores()
        for prompt, choice in enumerate(replacement.choices.tolist()):
            row = Row(prompt, {"L0N5": choice, "L0N19": choice})
            expected = clean[prompt] - hooked(model, batch, readout, row, replacement.values)
            assert float(swept.matrix[prompt, 1]) == pytest.approx(float(expected), abs=1e-9), kind
    moved = reordered(activations(model, batch, neurons=True), torch.arange(5).flip(0).expand(3, 5))
    assert moved.units[1].shape == (3, 5, 3, model.config.d_model)


def test_attribution_is_the_slope_of_every_neuron() -> None:
    """Move each neuron a small way towards its replacement: the effect over the share moved is the estimate."""
    model = random_model(small_config(activation="gelu"), 7).double()
    batch, other, readout = prompt_pairs(model.config, 7)
    replacement = ablation_named("resample").table(model, batch, counterfactual=other, neurons=True)
    estimated = attribute_units(model, batch, readout, replacement, rows=2)
    clean, share = activations(model, batch, neurons=True), 1e-6
    near = tuple(a + share * (b - a) for a, b in zip(clean.units, replacement.values.units, strict=True))
    table = Values(clean.z, clean.mlp, clean.embed, units=near)
    recordings, neurons = Recordings(model, batch, readout), mlp_units(model.config)
    plan = Plan.grid(model.config, [(part,) for part in neurons], choices=torch.arange(3))
    slopes = (recordings.scores() - run(recordings, plan, table).view(len(neurons), 3)).T / share
    assert estimated.shape == slopes.shape == (3, 40)
    assert slopes.abs().max() > 0.01
    assert torch.allclose(estimated, slopes, atol=1e-5)


def test_changes_are_those_of_the_counterfactual() -> None:
    """The baseline ranking: a neuron that puts out the same on both prompts has nothing to keep, however large."""
    model = random_model(small_config(), 9).double()
    model.blocks[0].mlp.W_gate[:, 3] = 0.0  # silu(0) = 0 on every prompt
    batch, other, _ = prompt_pairs(model.config, 9)
    replacement = ablation_named("resample").table(model, batch, counterfactual=other, neurons=True)
    sizes = unit_changes(model, batch, replacement)
    assert float(sizes[3]) == 0.0
    real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask
    names = [f"blocks.{layer}.mlp.hook_post" for layer in range(2)]
    clean, changed = (
        model.run_with_cache(one.tokens, mask=one.mask, names=lambda name: name in names)[1] for one in (batch, other)
    )
    for i, part in ((7, Component(0, neuron=7)), (25, Component(1, neuron=5))):
        moved = (clean[names[part.layer]] - changed[names[part.layer]])[real][:, part.neuron].abs().mean()
        length = model.blocks[part.layer].mlp.W_out[part.neuron].norm()
        assert float(sizes[i]) == pytest.approx(float(moved * length), rel=1e-5)  # sizes are float32


def test_names_round_trip_and_are_refused_where_they_do_not_fit() -> None:
    part = Component(3, neuron=17)
    assert [Component.parse(part.format(style)) for style in STYLES] == [part] * len(STYLES)
    assert (str(part), part.is_head, part.is_neuron) == ("L3N17", False, True)
    assert sorted([Component(0), Component(0, neuron=2), Component(0, 5)]) == [
        Component(0, 5),
        Component(0, neuron=2),
        Component(0),
    ]
    config = small_config(**STRUCTURES["one-layer-of-experts"])
    with pytest.raises(BadInput, match="L0N2 is a neuron; heads and MLPs are needed"):
        Component.parse("L0N2").within(config)
    with pytest.raises(BadInput, match="L0N20 is not in this model; its MLPs have neurons 0 to 19"):
        Component.parse("L0N20").within(config, neurons=True)
    with pytest.raises(BadInput, match="the MLP of layer 1 is made of experts; take L1_MLP or an expert, L1E0"):
        Component.parse("L1N0").within(config, neurons=True)
    assert mlp_units(config)[19:] == [Component(0, neuron=19), *(Component(1, expert=i) for i in range(3))]
    for name, why in {"L1E3": "experts 0 to 2", "L0E0": "not made of experts; take L0_MLP or a neuron"}.items():
        with pytest.raises(BadInput, match=why):
            Component.parse(name).within(config, neurons=True)
    expert = Component(3, expert=5)
    assert [Component.parse(expert.format(style)) for style in STYLES] == [expert] * len(STYLES)
    assert (str(expert), expert.is_head, expert.is_neuron, expert.is_unit) == ("L3E5", False, False, True)
    with pytest.raises(BadInput, match="not neurons"):
        Edge.parse("L0N2->L1_MLP")
    model = random_model(small_config())
    batch, other, readout = prompt_pairs(model.config, 0)
    with pytest.raises(BadInput, match="has none of neurons and experts"):
        run(Recordings(model, batch, readout), Plan.of(model.config, ROWS, width=5), activations(model, other))


def added_by(mlp: ExpertMlp, inputs: Tensor, expert: int) -> Tensor:
    """What one expert adds at one prompt's positions, by hand: its output times the weight that the router gives it."""
    probabilities = (inputs @ mlp.W_router).softmax(-1)
    best, chosen = probabilities.topk(mlp.experts.n_active, -1)
    weights = best / best.sum(-1, keepdim=True) if mlp.experts.renormalise else best
    weight = (weights * (chosen == expert)).sum(-1, keepdim=True)
    gated = torch.nn.functional.silu(inputs @ mlp.W_gate[expert]) * (inputs @ mlp.W_in[expert])
    return gated @ mlp.W_out[expert] * weight


def without_experts(model: Transformer, batch: Batch, other: Batch, readout: Readout, row: Row) -> Tensor:
    """The naive twin of experts: one forward, in which an MLP's output changes by what its experts add on the other
    prompt less what they add here.
    """
    inputs: dict[int, Tensor] = {}
    _, there = model.run_with_cache(other.tokens, mask=other.mask)

    def remember(value: Tensor, hook: HookPoint) -> None:
        inputs[hook.layer()] = model.blocks[hook.layer()].ln2(value, Tap())

    def change(out: Tensor, hook: HookPoint) -> Tensor:
        layer = hook.layer()
        for name, choice in row.edits.items():
            if (part := Component.parse(name)).layer == layer and part.expert is not None:
                mlp, block = model.blocks[layer].mlp, model.blocks[layer]
                new = added_by(mlp, block.ln2(there[f"blocks.{layer}.hook_resid_mid"][choice], Tap()), part.expert)
                out = out + new - added_by(mlp, inputs[layer], part.expert)
        return out

    hooks = [(lambda name: name.endswith("hook_resid_mid"), remember), (lambda name: name.endswith("mlp_out"), change)]
    one = torch.tensor([row.prompt])
    mask = None if batch.mask is None else batch.mask[one]
    logits = model.run_with_hooks(batch.tokens[one], mask=mask, fwd_hooks=hooks)
    assert readout.at is not None
    assert readout.choose is not None
    return readout.score(logits[:, readout.at[row.prompt]][:, :, readout.choose[row.prompt]], one)[0]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"d_head": 16}])
def test_experts_are_replaced_by_what_they_add(changes: dict[str, int]) -> None:
    """In float64: experts are chosen by comparison. All experts of a layer together are its MLP; wide heads are
    computed token by token.
    """
    model = random_model(small_config(**STRUCTURES["experts"], **changes), 5).double()
    batch, other, readout = prompt_pairs(model.config, 5)
    other = Batch(torch.cat([batch.tokens[:, :2], other.tokens[:, 2:]], 1), other.mask)
    sets = [(f"L{layer}E{expert}",) for layer in (0, 1) for expert in range(4)]
    sets += [("L0E1", "L0E3", "L1E0"), tuple(f"L1E{expert}" for expert in range(4)), ("L1_MLP",)]
    swept = effects(model, batch, readout, kind="resample", sets=sets, counterfactual=other)
    for column, members in enumerate(sets[:-1]):
        rows = [Row(prompt, dict.fromkeys(members, prompt)) for prompt in range(3)]
        expected = torch.stack([without_experts(model, batch, other, readout, row) for row in rows])
        assert torch.allclose(swept.baseline - swept.matrix[:, column], expected, atol=1e-9), members
    assert torch.allclose(swept.matrix[:, -2], swept.matrix[:, -1], atol=1e-9)
    assert (swept.matrix[:, :8].abs().amax(0) > 1e-6).sum() >= 6
    small = effects(model, batch, readout, kind="resample", sets=sets, counterfactual=other, memory=1)
    assert torch.allclose(small.matrix, swept.matrix, atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_experts_are_scored_as_parts_of_their_mlp(rule: Rule) -> None:
    """An MLP's output is the sum of what its experts add: their scores sum to its own, chosen or not."""
    model = random_model(small_config(**STRUCTURES["experts"]), 8).double()
    batch, other, readout = prompt_pairs(model.config, 8)
    replacement = ablation_named("resample").table(model, batch, counterfactual=other, neurons=True)
    units = attribute_units(model, batch, readout, replacement, rule=rule).view(3, 2, 4)
    parts = attribute(model, batch, readout, replacement, rule=rule)
    assert torch.allclose(units.sum(2), parts[:, [4, 9]], atol=1e-9)
    assert (units.abs().amax(0) > 1e-6).sum() >= 4
