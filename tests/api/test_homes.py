"""The names of `vesalius` and `vesalius.api`: what a type checker is told is what is found."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import vesalius as ves
from vesalius import api
from vesalius.api.homes import HOMES, OFFERED


def checked(package: str) -> dict[str, str]:
    """The module of each name that a package imports for type checkers only."""
    source = Path(str(import_module(package).__file__)).read_text(encoding="utf-8")
    block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_type_checkers_see_each_name_where_it_is_defined() -> None:
    assert checked("vesalius.api") == {name: HOMES[name] for name in OFFERED}
    of_the_front = checked("vesalius")
    assert set(of_the_front) == set(HOMES) & set(ves.__all__) - {"BadInput", "Failed", "Note"}
    assert {name: HOMES[name] for name, home in of_the_front.items() if home != "vesalius.api"} == {
        name: home for name, home in of_the_front.items() if home != "vesalius.api"
    }


def test_every_name_is_found_and_an_unknown_one_is_refused_with_the_others() -> None:
    for name, home in HOMES.items():
        assert getattr(import_module(home), name) is getattr(api, name)
    assert set(OFFERED) <= set(dir(api))
    with pytest.raises(AttributeError, match=r"module 'vesalius' has no attribute 'nothing'; it has .*align.*sweep"):
        _ = ves.nothing
