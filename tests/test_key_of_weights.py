"""The benchmark of the key against the weights, on models whose weights are set by hand."""

import pytest
import torch
from benchmarks.key_of_weights import (
    ELSE,
    KEYS_VALUE,
    UNSEEN,
    WITH_PLACE,
    Keyed,
    Moves,
    check,
    document,
    draw_moves,
    predicted,
    stands_for,
)

from tests.training.programs import by_hand, fraction, place_added
from vesalius.model import Component
from vesalius.rasp import random_inputs


def keyed(*, place_in_first: bool) -> Keyed:
    program = place_added()
    return Keyed(
        "by hand",
        "0" * 12,
        by_hand(place_in_first=place_in_first),
        program,
        (Component(0), Component(1)),
        lambda n, seed: random_inputs(program, n, seed=seed, min_length=1),
    )


def test_a_model_that_computes_what_the_key_says_is_as_the_key_says() -> None:
    figures = check(keyed(place_in_first=False), 200)
    assert {name: of["stands_for"] for name, of in figures.items()} == {"L0_MLP": KEYS_VALUE, "L1_MLP": KEYS_VALUE}
    assert [of[name] for of in figures.values() for name in ("moved", "between_inputs")] == [1.0] * 4
    assert figures["L0_MLP"]["old_place"] == 0.0


def test_a_position_in_the_earlier_mlp_is_found_where_equal_positions_show_nothing() -> None:
    figures = check(keyed(place_in_first=True), 200)
    first = figures["L0_MLP"]
    assert first["between_inputs"] == 1.0
    assert first["old_place"] == 1.0
    assert first["moved"] < 0.5
    assert first["stands_for"] == WITH_PLACE
    assert figures["L1_MLP"]["stands_for"] == KEYS_VALUE
    report = document({"one": figures}, "by hand", {"one": "0" * 12})
    assert report["not_as_the_key_says"] == [f"one L0_MLP: {WITH_PLACE}"]
    assert report["components"] == 2


def test_predictions_by_hand() -> None:
    """2 - t of the source [0, 2] moved to the base [1, 1, 1]: 2 comes to place 1, 0 to place 0; place 2 keeps its 1."""
    program = place_added()
    base, base_lengths = program.encode([[1, 1, 1]])
    source, source_lengths = program.encode([[0, 2]])
    moves = Moves(
        base,
        base_lengths,
        torch.nn.functional.pad(source, (0, 1), value=-1),
        source_lengths,
        torch.tensor([[1, 0, -1]]),
    )
    key, old = (predicted(program, 0, moves, old_place=old_place) for old_place in (False, True))
    assert [program.outputs[code] for code in key[0]] == [0 + 0, 2 + 1, 1 + 2]
    assert [program.outputs[code] for code in old[0]] == [0 + 1, 2 + 0, 1 + 2]
    # Read at the same position both are the plain interchange.
    same = [predicted(program, 0, moves.aligned, old_place=old_place) for old_place in (False, True)]
    assert torch.equal(*same)
    assert [program.outputs[code] for code in same[0][0]] == [2 + 0, 0 + 1, 1 + 2]


@pytest.mark.parametrize("column", [0, 1])
def test_the_keys_prediction_is_the_interpreters_interchange(column: int) -> None:
    program = fraction()
    moves = draw_moves(lambda n, seed: random_inputs(program, n, seed=seed, min_length=1), 50, seed=4)
    patched = torch.zeros(50, len(program.components), dtype=torch.bool)
    patched[:, column] = True
    ours = program.interchange(
        (moves.base, moves.base_lengths), (moves.source, moves.source_lengths), patched, positions=moves.reads
    )
    real = moves.base >= 0
    torch.testing.assert_close(predicted(program, column, moves, old_place=False)[real], ours[real])


def test_moves_leave_no_position_where_it_was() -> None:
    program = place_added()
    moves = draw_moves(lambda n, seed: random_inputs(program, n, seed=seed, min_length=2), 30)
    for row, length in zip(moves.reads.tolist(), moves.source_lengths.tolist(), strict=True):
        assert sorted(row[:length]) == list(range(length))
        assert all(place != reads for place, reads in enumerate(row[:length]))
        assert set(row[length:]) <= {-1}


def test_what_the_figures_stand_for() -> None:
    assert stands_for({"n_moved": 3, "moved": 0.0, "n_apart": 0, "old_place": None}) == UNSEEN
    assert stands_for({"n_moved": 99, "moved": 0.95, "n_apart": 99, "old_place": 0.1}) == KEYS_VALUE
    assert stands_for({"n_moved": 99, "moved": 0.2, "n_apart": 10, "old_place": 1.0}) == ELSE
    assert stands_for({"n_moved": 99, "moved": 0.2, "n_apart": 90, "old_place": 0.5}) == ELSE
