"""An answer that looks its function up, instead of saying its rule, finds nothing where it runs."""

import math
from collections.abc import Iterator

import pytest

from vesalius.errors import Failed
from vesalius.sandbox import Sandbox
from vesalius.sandbox.libraries import PRELOAD
from vesalius_functions.numeric import sample
from vesalius_functions.submitted import run_code
from vesalius_functions.suite import SEED

#: Passes the list of imports by way of a standard module, and knows the public seed.
LOOKUP = f"""
import collections

def f(x):
    load = collections._sys.modules["importlib"].import_module
    function = load("vesalius_functions.numeric").sample(1, seed={SEED})[0]
    return function.replies([x])[0].value
"""
SOURCES = """
import collections

def f(x):
    modules = collections._sys.modules
    path = modules["vesalius"].__file__.replace("vesalius/__init__.py", "vesalius_functions/numeric/sampling.py")
    return len(modules["io"].open(path).read())
"""
LOADED = """
import collections

def f(x):
    return sum(name.startswith("vesalius_functions") for name in collections._sys.modules)
"""
POINTS = [-3.0, 0.5, 7.0]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    try:
        with Sandbox(PRELOAD, {"torch": False}) as opened:
            yield opened
    except Failed as refusal:
        if "cannot contain" not in str(refusal):
            raise
        pytest.skip(str(refusal))


def test_the_generator_cannot_be_imported(sandbox: Sandbox) -> None:
    """Run here, the same text gives the true values; in the sandbox it gives none."""
    names: dict = {}
    exec(LOOKUP, names)
    truth = [reply.value for reply in sample(1, seed=SEED)[0].replies(POINTS)]
    assert [names["f"](x) for x in POINTS] == truth
    outputs = run_code(LOOKUP, POINTS, sandbox=sandbox)
    assert all("No module named 'vesalius_functions'" in str(fault) for fault in outputs.faults)
    assert all(math.isnan(value.real) for value in outputs.values)


def test_the_sources_of_the_generator_cannot_be_read(sandbox: Sandbox) -> None:
    faults = run_code(SOURCES, POINTS, sandbox=sandbox).faults
    assert all("No such file" in str(fault) or "Permission denied" in str(fault) for fault in faults)


def test_nothing_of_the_generators_is_in_memory(sandbox: Sandbox) -> None:
    assert list(run_code(LOADED, POINTS, sandbox=sandbox).values) == [0, 0, 0]
