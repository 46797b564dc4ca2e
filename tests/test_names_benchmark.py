"""The twin of the atlas's names: it refuses names that are false, and finds heads that were missed."""

import pytest
import torch
from benchmarks.atlas_names import PLACES, audit
from benchmarks.head_names import LENGTH, StandardTests

from tests.models import random_model, small_config
from vesalius.components import Component
from vesalius.model import Transformer


def with_patterns(**changes: object) -> tuple[Transformer, StandardTests]:
    model = random_model(small_config(d_vocab=1100, d_vocab_out=1100, n_ctx=2 * LENGTH + 1, **changes), seed=3)
    return model, StandardTests(model, 0)


def named(head: str, *names: str) -> dict[str, object]:
    return {"heads": [{"id": head, "names": list(names)}]}


@pytest.mark.parametrize("norms", [{"norm": "rms"}, {"norm": "layer", "rotary": None}, {"norm_at": "both"}], ids=str)
def test_every_name_of_a_random_head_about_a_place_is_false(norms: dict[str, object]) -> None:
    _, tests = with_patterns(**norms)
    rows, missed = audit(named("L0H0", *PLACES, "BOS head"), tests)
    assert missed == []
    assert all(row["false"] for row in rows)


def test_a_head_that_looks_at_the_token_before_has_its_name_and_is_missed_without() -> None:
    _, tests = with_patterns()
    tests.patterns[1][:, 2] = torch.eye(2 * LENGTH + 1).roll(-1, 1)  # each position to the one before
    rows, missed = audit(named("L1H2", "previous-token head", "duplicate-token head"), tests)
    assert [(row["name"], row["false"]) for row in rows] == [
        ("previous-token head", []),
        ("duplicate-token head", ["attention"]),
    ]
    assert missed == []
    assert audit(named("L1H2"), tests)[1] == ["L1H2 at 1 back"]


def test_copying_has_the_sign_that_the_weights_are_given() -> None:
    """A head whose output is turned round writes against what it wrote for."""
    model, tests = with_patterns(norm="layer", rotary=None)
    head = Component(1, 0)
    before = tests.copying(head)
    with torch.no_grad():
        model.blocks[1].attn.output.neg_()
    assert tests.copying(head) == pytest.approx(-before, abs=1e-6)
    name = "copying head" if before > 0 else "copy-suppression head"
    rows, _ = audit(named("L1H0", name), tests)
    assert rows[0]["false"] == ["copying, by its sign"]
