"""User-supplied functions, imported by name."""

from pathlib import Path

import pytest

from vesalius.cli import PARTS
from vesalius.errors import BadInput
from vesalius.plugins import OWN_COMMANDS, function_named


def test_a_function_is_found_by_its_name() -> None:
    assert function_named("os.path:basename", role="scientist", known=())("a/b") == "b"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nobody", "interpreter 'nobody' does not exist; use builtin, table or package.module:function"),
        (":basename", "does not exist"),
        ("os.path:", "does not exist"),
        ("no.such.module:f", "No module named 'no'"),
        ("os.path:nothing", "has no attribute 'nothing'"),
        ("os.path:sep", "'os.path:sep' is not a function"),
        ("torn:f", "importing torn raises SyntaxError"),
        ("raising:f", "importing raising raises ZeroDivisionError: division by zero; fix that module"),
    ],
)
def test_errors_name_the_input_and_the_fix(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torn.py").write_text("def f(:\n")
    (tmp_path / "raising.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match=reason):
        function_named(name, role="interpreter", known=("builtin", "table"))


def test_the_names_that_no_plug_in_takes_are_those_of_the_commands() -> None:
    registered = [str(one.name) for part in PARTS for one in part.commands.registered_commands]
    assert sorted(OWN_COMMANDS) == sorted([*registered, "bench"])
