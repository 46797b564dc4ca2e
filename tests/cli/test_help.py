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


@pytest.mark.parametrize("name", ["sweep", "what-if", "neurons", "faithfulness", "explain", "discover"])
def test_a_command_lists_ten_options_at_most_before_more(name: str) -> None:
    options = [one for one in ROOT.get_command(None, name).params if isinstance(one, TyperOption)]
    listed = [one.name for one in options if one.rich_help_panel != MORE]
    assert len(listed) <= LISTED
    assert "json" in listed
    assert {one.name for one in options if one.rich_help_panel == MORE} >= {"tokenizer", "dtype", "device"}


#: Commands whose results are files: what they print and where it goes is listed, whatever else they take.
REPORTING = ["sweep", "what-if", "neurons", "faithfulness", "explain", "discover", "align", "atlas", "latents", "sets"]


@pytest.mark.parametrize("name", REPORTING)
def test_a_command_lists_where_its_result_goes_and_what_its_example_gives(name: str) -> None:
    command = ROOT.get_command(None, name)
    options = [one for one in command.params if isinstance(one, TyperOption)]
    listed = {flag for one in options if one.rich_help_panel != MORE for flag in one.opts}
    assert {"--json", "--out"} <= listed
    example = command.help.partition("Example: ")[2].partition("\n\n")[0].split()
    assert {word for word in example if word.startswith("-") and not word[1:2].isdigit()} <= listed
