"""The benchmark of large models runs, on a shape of a few thousand weights."""

import pytest
import torch

pytest.importorskip("transformers")


@pytest.mark.slow
def test_every_figure_is_measured() -> None:
    from benchmarks.large import measure

    document = measure("tiny", torch.device("cpu"))
    assert document["components"] == 20
    # The same model in float32: both engines agree to rounding, and two logical devices change nothing.
    assert document["transformers"]["largest_difference"] <= 1e-4 * max(1.0, document["largest_score"])
    assert document["two_devices"]["sweep_difference"] <= 1e-5
    assert document["two_devices"]["eap_difference"] <= 1e-5
    for name in ("sweep", "eap", "eap_ig"):
        assert document[name]["seconds"] > 0
        assert document[name]["planned_bytes"] > 0
    assert document["ratio_to_loop"] > 0
    assert document["ratio_to_batched_loop"] > 0
