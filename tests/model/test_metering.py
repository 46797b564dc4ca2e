"""Forward passes are counted as they are made, and can be stopped from outside."""

import pytest
import torch

from tests.models import small_config
from vesalius.intervene import Batch, Recordings, all_logits
from vesalius.model import Transformer
from vesalius.model.transformer import metered


def tokens(rows: int, width: int = 5) -> torch.Tensor:
    return torch.zeros(rows, width, dtype=torch.long)


def test_a_pass_counts_its_prompts_and_a_part_its_share() -> None:
    model = Transformer(small_config(rotary=None)).eval()
    layers = model.config.n_layers
    spent: list[float] = []
    with torch.no_grad(), metered(model, spent.append):
        model(tokens(3))
        assert sum(spent) == pytest.approx(3)
        assert len(spent) == layers
        resid = model.run_with_cache(tokens(4), names="blocks.1.hook_resid_pre")[1]["blocks.1.hook_resid_pre"]
        assert sum(spent) == pytest.approx(7)
        model(tokens(4), start_layer=1, resid=resid)
        assert sum(spent) == pytest.approx(7 + 4 * (layers - 1) / layers)
        Recordings(model, Batch(tokens(2)), all_logits()).scores()
        assert sum(spent) == pytest.approx(9 + 4 * (layers - 1) / layers)
    model(tokens(3))
    assert sum(spent) == pytest.approx(9 + 4 * (layers - 1) / layers)  # no longer counted


def test_what_the_counter_raises_stops_the_pass() -> None:
    model = Transformer(small_config(rotary=None)).eval()
    calls: list[float] = []

    def once(amount: float) -> None:
        calls.append(amount)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"), metered(model, once):
        model(tokens(3))
    assert len(calls) == 1
    model(tokens(1))
    assert len(calls) == 1
