"""Both categories of neural modules offer what the benchmark asks of a category."""

import inspect

import pytest

from vesalius_functions.suite import CategoryModule, category

OFFERED = [
    name for name, member in vars(CategoryModule).items() if inspect.isfunction(member) and not name.startswith("_")
]


@pytest.mark.parametrize("name", ["entities", "relations"])
@pytest.mark.parametrize("function", OFFERED)
def test_a_category_takes_the_arguments_of_its_interface(name: str, function: str) -> None:
    wanted = list(inspect.signature(getattr(CategoryModule, function)).parameters.values())[1:]
    given = inspect.signature(getattr(category(name), function)).parameters
    for parameter in wanted:
        assert parameter.name in given
        assert given[parameter.name].kind == parameter.kind
    extra = set(given) - {parameter.name for parameter in wanted}
    assert all(given[name].default is not inspect.Parameter.empty for name in extra)
