"""The benchmark of neurons: the loop it compares with computes the same effects, and the large mode runs on a shape of
a few thousand weights.
"""

import torch
from benchmarks.neurons import all_scores, looped, swept

from tests.intervene.pairs import prompt_pairs
from tests.models import random_model, small_config
from vesalius.behaviours.trial import Trial
from vesalius.components import mlp_units
from vesalius.intervene import Batch


def test_the_loop_computes_what_the_engine_does() -> None:
    model = random_model(small_config(d_head=16), 8).double()
    batch, other, readout = prompt_pairs(model.config, 8)
    material = Trial(Batch(batch.tokens), Batch(other.tokens), readout)
    neurons = mlp_units(model.config)[::3]
    ours = swept(model, material, neurons)
    assert ours.abs().max() > 1e-4
    assert torch.allclose(ours, looped(model, material, neurons), atol=1e-9)


def test_mlp_units_of_a_shape() -> None:
    document = all_scores("tiny", torch.device("cpu"))
    assert document["neurons"] == 4 * 160
    for rule in ("relp", "relp-qk", "gradient"):
        figures = document[f"{rule}_second"]
        assert figures["finite"]
        assert figures["largest"] > 0
        assert figures["largest"] == document[f"{rule}_first"]["largest"]
