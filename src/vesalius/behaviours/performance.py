"""Whether a model performs a behaviour: measured before a circuit is searched for.

A circuit for something the model does not do is noise, so every discovery and explanation starts with these numbers.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.prompts import Prompts
from vesalius.documents.performance import Performance
from vesalius.errors import BadInput
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.statistics import mean_interval, share_interval

RULE = "performs if the 95 % intervals of accuracy and of the mean logit difference lie above 0.5 and above 0"


def measure(
    behaviour: Behaviour, model: Transformer, tokenizer: Tokenizer, *, n: int = 64, seed: int = 0, split: str = "test"
) -> Performance:
    """Sample prompts of a behaviour and measure whether the model performs it."""
    config = model.config
    prompts = behaviour.sample(tokenizer, n, seed=seed, split=split, n_ctx=config.n_ctx, d_vocab=config.d_vocab)
    return performance(model, prompts)


def performance(model: Transformer, prompts: Prompts, *, rows: int = 32) -> Performance:
    """How well a model does on the given prompts, in batches of `rows`."""
    batches = [_differences(model, prompts.take(slice(start, start + rows))) for start in range(0, len(prompts), rows)]
    differences, is_top = torch.cat([batch[0] for batch in batches]), torch.cat([batch[1] for batch in batches])
    if not bool(differences.isfinite().all()):
        raise BadInput("the model's logits are not finite on these prompts; check its weights for NaN or overflow")
    n, right = len(differences), int((differences > 0).sum())
    accuracy_low, accuracy_high = share_interval(right, n)
    ld_low, ld_high = (float(bound) for bound in mean_interval(differences[:, None]))
    return Performance(
        accuracy=right / n,
        accuracy_low=accuracy_low,
        accuracy_high=accuracy_high,
        logit_difference=float(differences.mean()),
        ld_low=ld_low,
        ld_high=ld_high,
        top1=float(is_top.mean()),
        n=n,
        performs=accuracy_low > 0.5 and ld_low > 0,
        rule=RULE,
    )


def _differences(model: Transformer, prompts: Prompts) -> tuple[Float[Tensor, " prompt"], Float[Tensor, " prompt"]]:
    """logit(correct) - logit(wrong), and 1 where the correct token is the most likely of all."""
    batch, device = prompts.batch.to(model.device), model.device
    with torch.no_grad():
        logits = model(batch.tokens, mask=batch.mask, at=prompts.position[:, None].to(device))[:, 0].cpu().double()
    correct, wrong = logits.gather(1, torch.stack([prompts.correct, prompts.wrong], 1)).unbind(1)
    return correct - wrong, (logits.argmax(1) == prompts.correct).double()
