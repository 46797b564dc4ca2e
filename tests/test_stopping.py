"""Work that is stopped from outside: it ends at a layer, and says how far it is."""

import pytest
import torch

from tests.models import small_config
from vesalius.model import Transformer
from vesalius.progress import Stopped, checkpoint, stoppable


class Counter:
    """Allows so many checks, and remembers what was reported."""

    def __init__(self, allowed: int) -> None:
        self.allowed, self.seen, self.steps = allowed, 0, []

    def __call__(self, step: str, done: int, total: int) -> None:
        self.seen += 1
        if step:
            self.steps.append((step, done, total))
        if self.seen > self.allowed:
            raise Stopped("enough")


def test_a_pass_is_checked_at_every_layer_and_ends_there() -> None:
    model = Transformer(small_config(n_layers=3))
    tokens = torch.zeros(1, 2, dtype=torch.long)
    patient, strict = Counter(10), Counter(1)
    with stoppable(patient):
        model(tokens)
    assert patient.seen == 3
    with pytest.raises(Stopped, match="enough"), stoppable(strict):
        model(tokens)
    assert strict.seen == 2
    model(tokens)  # nobody watches any more
    assert (patient.seen, strict.seen) == (3, 2)


def test_blocks_inside_each_other_are_each_their_own() -> None:
    outer, inner = Counter(10), Counter(10)
    with stoppable(outer):
        checkpoint("first", 1, 2)
        with stoppable(inner):
            checkpoint("second", 2, 2)
        checkpoint()
    assert (outer.seen, outer.steps) == (2, [("first", 1, 2)])
    assert (inner.seen, inner.steps) == (1, [("second", 2, 2)])


@pytest.mark.parametrize("by", ["components", "edges"])
def test_faithfulness_says_how_far_it_is_and_stops(by: str) -> None:
    import vesalius as ves

    specimen = ves.load("frac_prevs")
    discovery = ves.discover(specimen, method="eap" if by == "edges" else "sweep", n=8)
    seen = Counter(10**6)
    with stoppable(seen):
        ves.faithfulness(specimen, discovery, least=0.001, n=8, progress=False)
    assert [(done, total) for _, done, total in seen.steps][-1] in {(total, total) for _, _, total in seen.steps}
    with pytest.raises(Stopped), stoppable(Counter(seen.seen - 1)):
        ves.faithfulness(specimen, discovery, least=0.001, n=8, progress=False)
