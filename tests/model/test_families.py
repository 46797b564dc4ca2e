"""Every family and rope kind against transformers' own module, on random weights."""

from pathlib import Path
from typing import Any

import pytest
import torch

import vesalius as ves
from tests.model.references import MODELS, VOCAB, assert_same, logits_and_attention, random_reference
from vesalius.model import Transformer
from vesalius.model.families import FAMILIES
from vesalius.model.sources import from_transformers, load_huggingface

pytest.importorskip("transformers")
WIDTH = 100


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Transformer]]:
    """Each case once: transformers' model, and ours read from the directory that it saved."""
    made = {}
    for name, case in MODELS.items():
        directory = tmp_path_factory.mktemp(name)
        reference = random_reference(*case)
        reference.save_pretrained(directory)
        made[name] = reference, load_huggingface(directory)
    return made


def tokens(rows: int = 2, width: int = WIDTH) -> torch.Tensor:
    return torch.randint(3, VOCAB, (rows, width), generator=torch.Generator().manual_seed(1))


def test_falcons_with_alibi_agree_with_what_transformers_computes_by_default(tmp_path: Path) -> None:
    random_reference(*MODELS["falcon-alibi"]).save_pretrained(tmp_path)
    agreement = ves.check(tmp_path, device="cpu", progress=False)
    assert (agreement.agrees, agreement.longest) == (True, 32)


def test_every_family_has_a_case() -> None:
    assert {family.name for family in FAMILIES} <= set(MODELS)
    assert {f"rope-{kind}" for kind in ("linear", "llama3", "yarn", "longrope", "dynamic")} <= set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_attention(name: str, pairs: dict[str, tuple[Any, Transformer]]) -> None:
    reference, model = pairs[name]
    wide = tokens(width=min(WIDTH, model.config.n_ctx))
    shown = reference.config._attn_implementation == "eager"
    with torch.no_grad():
        expected = reference(wide, output_attentions=shown)
    assert expected.logits.std() > 0.1, "weights too small to tell a wrong model from a right one"
    theirs = [expected.logits, expected.logits, *(expected.attentions if shown else ())]
    assert_same(model, lambda twin: logits_and_attention(twin, wide)[: len(theirs)], theirs)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(name: str, side: str, pairs: dict[str, tuple[Any, Transformer]]) -> None:
    """A padded row gives what transformers gives for the row alone."""
    reference, model = pairs[name]
    width, short = min(WIDTH, model.config.n_ctx), 37
    batch, mask = tokens(width=width), torch.ones(2, width, dtype=torch.bool)
    inside = slice(width - short, None) if side == "left" else slice(0, short)
    mask[1] = False
    mask[1, inside] = True
    with torch.no_grad():
        # The short row first: dynamic scaling in transformers remembers the longest prompt that it saw.
        alone = [reference(batch[1:, inside]).logits[0], reference(batch[:1]).logits[0]]
    assert_same(model, lambda twin: [(logits := twin(batch, mask=mask))[1, inside], logits[0]], alone)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_memory_is_read_like_its_files(name: str, pairs: dict[str, tuple[Any, Transformer]]) -> None:
    reference, model = pairs[name]
    ours = from_transformers(reference)
    assert ours.config == model.config
    assert (ours(tokens(1, 20)) - model(tokens(1, 20))).abs().max() <= 1e-5
