"""Prompts with counterfactuals for tests of edges, and the engine's scores of cut edges."""

import torch

from vesalius.components import Edge
from vesalius.intervene import Batch, Plan, Readout, Recordings, Row, activations, logit_difference, run
from vesalius.model import Config, Transformer


def prompt_pairs(config: Config, seed: int = 0) -> tuple[Batch, Batch, Readout]:
    """Three prompts of five tokens, one of them shorter, with counterfactuals and a logit difference."""
    generator = torch.Generator().manual_seed(seed)
    tokens, other = torch.randint(0, config.d_vocab, (2, 3, 5), generator=generator)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1, 3:] = False
    position, correct, wrong = torch.tensor([[4, 2, 1], [0, 1, 2], [1, 2, 0]])
    return Batch(tokens, mask), Batch(other, mask), logit_difference(position, correct, wrong)


def engine_scores(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    other: Batch,
    edges: list[Edge],
    where: torch.Tensor | None = None,
) -> torch.Tensor:
    """The readout of every prompt with these edges cut over to the counterfactual, by a plan of the engine."""
    rows = [
        Row(
            prompt,
            edges=dict.fromkeys(edges, prompt),
            positions=None if where is None else where[prompt].nonzero()[:, 0].tolist(),
        )
        for prompt in range(len(batch))
    ]
    plan = Plan.of(model.config, rows, width=batch.tokens.shape[1])
    return run(Recordings(model, batch, readout), plan, activations(model, other))
