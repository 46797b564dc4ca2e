import pytest
import torch

from tests.closeness import same_tensors
from tests.training.programs import CPU, lookup, mixed_stack, shift, small
from vesalius.model.states import build
from vesalius_truth.training.siit import Curriculum, tabulate
from vesalius_truth.training.stack import Copy, Stack, initial_weights
from vesalius_truth.training.stepper import Recipe, Stepper, rate_at


def with_random_biases(stack: Stack) -> Stack:
    """Add noise to every weight, biases included."""
    with torch.no_grad():
        noise = torch.randn(stack.weights.shape, generator=torch.Generator().manual_seed(1))
        stack.weights.add_(0.05 * noise * stack.mask)
    return stack


def test_every_padded_copy_computes_what_its_own_transformer_computes() -> None:
    stack = with_random_biases(mixed_stack())
    tables = tabulate(stack.settings, 40, seed=2, device=CPU)
    positions = torch.arange(tables.base.shape[2])[:, None]
    real = positions <= tables.base_lengths[stack.task][:, None]
    logits, nodes = stack.run(stack.weights, tables.base[stack.task].transpose(1, 2), real)
    for i, config in enumerate(stack.configs):
        model = build(config, stack.export(i), where="test")
        tokens = tables.base[stack.task[i], :, : config.n_ctx].long()
        expected, cache = model.run_with_cache(tokens)
        real_positions = real[i, : config.n_ctx].T
        computed = logits[i, : config.d_vocab_out, : config.n_ctx].permute(2, 1, 0)
        torch.testing.assert_close(computed[real_positions], expected[real_positions], atol=1e-5, rtol=1e-5)
        z = nodes.z[1][i, :4, : config.d_head, : config.n_ctx].permute(3, 2, 0, 1)
        torch.testing.assert_close(
            z[real_positions], cache["blocks.1.attn.hook_z"][real_positions], atol=1e-5, rtol=1e-5
        )
        assert (logits[i, config.d_vocab_out :] < -1e8).all()


def test_wide_heads_use_the_matmul_attention_path() -> None:
    stack = with_random_biases(Stack([small(shift(), d_head=12)], [Copy(0, 0, 1e-3)], device=CPU))
    tables = tabulate(stack.settings, 20, seed=2, device=CPU)
    real = torch.arange(8)[:, None] <= tables.base_lengths[:, None]
    logits, _ = stack.run(stack.weights, tables.base.transpose(1, 2), real)
    expected = build(stack.configs[0], stack.export(0), where="test")(tables.base[0].long())
    torch.testing.assert_close(logits[0].permute(2, 1, 0)[real[0].T], expected[real[0].T], atol=1e-5, rtol=1e-5)


def test_exported_size_is_exact() -> None:
    stack = mixed_stack()
    for i, config in enumerate(stack.configs):
        state = stack.export(i)
        assert int(stack.mask[i].sum()) == sum(weight.numel() for weight in state.values())
        assert state["embed.W_E"].shape == (config.d_vocab, config.d_model)


def test_padding_stays_zero_while_every_copy_trains() -> None:
    stack = mixed_stack()
    before = stack.weights.detach().clone()
    tables = tabulate(stack.settings, 64, seed=0, device=CPU)
    stepper = Stepper(stack, tables, Curriculum(stack), Recipe(5, 8), seed=0)
    stepper.advance(5)
    moved = (stack.weights.detach() - before).abs()
    assert float(moved[stack.mask == 0].max()) == 0.0
    assert (moved.sum(1) > 0).all()
    assert stepper.step == 5


def test_first_weights_do_not_depend_on_the_stack() -> None:
    alone = Stack([small(lookup())], [Copy(0, 6, 1e-2)], device=CPU)
    for name, weight in mixed_stack().export(1).items():
        assert same_tensors(weight, alone.export(0)[name])


def test_first_weights_have_the_stated_spread() -> None:
    config = small(lookup(), d_head=32).config
    weights = initial_weights(config, 0)
    assert float(weights["embed"].std()) == pytest.approx(0.5, rel=0.1)
    assert float(weights["0.mlp_in"].std()) == pytest.approx(128**-0.5, rel=0.05)
    assert float(weights["0.mlp_out"].std()) == pytest.approx(512**-0.5 / 2, rel=0.05)
    assert not weights["0.b_qkv"].any()


def test_adam_takes_one_step_of_its_rate_in_every_weight_with_a_gradient() -> None:
    # On the first step Adam's change is the sign of the gradient, whatever its size.
    stack = mixed_stack()
    before = stack.weights.detach().clone()
    tables = tabulate(stack.settings, 64, seed=0, device=CPU)
    stepper = Stepper(stack, tables, Curriculum(stack), Recipe(10, 8), seed=0)
    stepper.advance(1)
    largest = (stack.weights.detach() - before).abs().amax(1)
    expected = torch.tensor([copy.learning_rate for copy in stack.copies]) * rate_at(0, 10)
    torch.testing.assert_close(largest, expected, rtol=1e-3, atol=0)


def test_learning_rate_warms_up_stays_and_falls() -> None:
    assert rate_at(0, 1000) == pytest.approx(0.05)
    assert rate_at(99, 1000) == rate_at(299, 1000) == 1.0
    assert rate_at(649, 1000) == pytest.approx(0.51)
    assert rate_at(999, 1000) == pytest.approx(0.02)


def test_a_gradient_that_is_not_finite_leaves_only_its_own_copy_unchanged() -> None:
    stack = mixed_stack()
    before = stack.weights.detach().clone()
    tables = tabulate(stack.settings, 64, seed=0, device=CPU)
    stepper = Stepper(stack, tables, Curriculum(stack), Recipe(10, 8), seed=0)
    gradient = torch.ones_like(before) * stack.mask
    gradient[1, 0] = float("nan")
    stepper._adam(gradient)
    moved = (stack.weights.detach() - before).abs().sum(1)
    assert moved[1] == 0
    assert (moved[[0, 2, 3, 4]] > 0).all()
