import pytest
import torch

from tests.training.programs import CPU, fraction, lookup, odd_places, small
from vesalius.errors import BadInput
from vesalius.model import Component
from vesalius.rasp import Comparison, Map, Select, SelectorWidth, compile_program, indices, tokens
from vesalius_truth.training.setting import (
    Setting,
    Size,
    Slot,
    default_size,
    draw_pairs,
    model_tokens,
    setting_of,
    targets,
)
from vesalius_truth.training.siit import tabulate


def test_default_size_follows_the_published_rule() -> None:
    # Keys and queries are 4 positions; queries also carry a one and BOS: 6, halved, times four heads.
    assert fraction().d_head == 6
    assert default_size(fraction()) == Size(2, 4, 12, 3, 48)


def test_default_size_is_clamped() -> None:
    assert default_size(lookup()).d_model == 8
    many = compile_program(
        SelectorWidth(Select(tokens, tokens, Comparison.EQ)), list(range(200)), 4, causal=False, name="many"
    )
    assert many.d_head == 202
    assert default_size(many) == Size(2, 4, 64, 16, 256)


def test_config_puts_bos_and_pad_last_and_counts_bos_as_a_position() -> None:
    config = setting_of(fraction()).config
    assert (config.d_vocab, config.bos_token, config.pad_token) == (6, 4, 5)
    assert (config.n_ctx, config.d_vocab_out, config.causal, config.norm) == (5, 1, True, "none")
    assert setting_of(lookup()).config.d_vocab_out == 5


def test_model_tokens_start_with_bos_and_end_with_pad() -> None:
    codes = torch.tensor([[3, 0, -1, -1]])
    assert model_tokens(fraction(), codes).tolist() == [[4, 3, 0, 5, 5]]


def test_placement_moves_a_head() -> None:
    program = fraction()
    default = setting_of(program)
    moved = Setting("moved", program, default.size, default.draw, placement={Component(1, 0): Component(1, 2)})
    assert [str(component) for component in moved.circuit] == ["L0_MLP", "L1H2"]
    assert Component(1, 0) in moved.others
    assert len(moved.others) == 8


def test_impossible_placements_are_refused() -> None:
    program, default = fraction(), setting_of(fraction())
    with pytest.raises(BadInput, match="two components"):
        Setting("twice", program, default.size, default.draw, placement={Component(1, 0): Component(0)})
    with pytest.raises(BadInput, match="does not have"):
        Setting("foreign", program, default.size, default.draw, inert=frozenset({Component(0, 3)}))
    with pytest.raises(BadInput, match="not in this model"):
        Setting("outside", program, default.size, default.draw, placement={Component(1, 0): Component(1, 9)})


def test_a_position_flag_is_found_to_need_crossed_interchange() -> None:
    setting = small(odd_places())
    assert setting.inert == {Component(0)}
    assert setting.crossed == {Component(0), Component(1)}
    assert [(str(slot.component), slot.crossed, slot.inert) for slot in setting.slots] == [
        ("L0_MLP", False, True),
        ("L1_MLP", False, False),
        ("L0_MLP", True, False),
        ("L1_MLP", True, False),
    ]


def test_no_interchange_of_a_constant_has_an_effect() -> None:
    constant = Map(lambda position: 2, indices, name="two")
    program = compile_program(
        SelectorWidth(Select(tokens, constant, Comparison.GEQ)), [1, 2, 3], 5, causal=False, name="constant"
    )
    setting = setting_of(program)
    assert setting.inert == {Component(0)}
    assert Component(0) not in setting.crossed, "moving a constant changes nothing either"


def test_interchange_keeps_the_base_where_the_source_has_ended() -> None:
    program = lookup()
    base, source = program.encode([["a", "b", "c", "d"]]), program.encode([["e", "d"]])

    def draw(n: int, seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        codes, lengths = source if seed % 2 else base
        return torch.nn.functional.pad(codes, (0, 6 - codes.shape[1]), value=-1), lengths

    answers = targets(program, draw_pairs(draw, 1, seed=0, device=CPU), [Slot(0, Component(0))])
    letters = [[program.outputs[int(code)] for code in row[:4]] for row in answers[0]]
    assert letters == [["b", "c", "d", "e"], ["a", "e", "d", "e"]]


def test_crossed_positions_permute_the_real_positions_of_the_source() -> None:
    pairs = draw_pairs(small(odd_places()).draw, 50, seed=3, device=CPU)
    for row, length in zip(pairs.crossed.tolist(), pairs.source_lengths.tolist(), strict=True):
        assert sorted(row[:length]) == list(range(length))
        assert row[length:] == [-1] * (5 - length)


def test_tables_pad_short_tasks_and_hold_the_programs_answers() -> None:
    settings = [small(fraction()), small(lookup())]
    tables = tabulate(settings, 30, seed=1, device=CPU)
    assert tables.base.shape == (2, 30, 7)
    assert tables.answers.shape == (2, 30, 5, 6)
    codes, lengths = settings[0].draw(30, 2, CPU)
    expected = settings[0].program.run(codes, lengths).output
    torch.testing.assert_close(tables.answers[0, :, 0, :4], expected)
    assert (tables.base[0, :, 5:] == settings[0].config.pad_token).all()
    assert (tables.base[:, :, 0] == torch.tensor([[4], [5]])).all()
