"""The pages of help: the story first, ten options of a command, the others under "More"."""

from typing import Any

import pytest
import typer
from typer.core import TyperOption

from vesalius.cli import OTHERS, PANELS, app
from vesalius.cli.options import LISTED, MORE

ROOT: Any = typer.main.get_command(app)


def test_the_six_verbs_of_the_story_come_first() -> None:
    names = ROOT.list_commands(None)
    assert names[:6] == ["check", "behaviours", "sweep", "discover", "explain", "open"]
    assert {ROOT.get_command(None, name).rich_help_panel for name in names} == {*PANELS, OTHERS}


@pytest.mark.parametrize("name", ["sweep", "what-if", "neurons", "faithfulness", "explain"])
def test_a_command_lists_ten_options_at_most_before_more(name: str) -> None:
    options = [one for one in ROOT.get_command(None, name).params if isinstance(one, TyperOption)]
    listed = [one.name for one in options if one.rich_help_panel != MORE]
    assert len(listed) <= LISTED
    assert "json" in listed
    assert {one.name for one in options if one.rich_help_panel == MORE} >= {"tokenizer", "dtype", "device"}
