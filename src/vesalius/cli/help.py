"""The first page of help: the six verbs of the story, then everything else in groups."""

from typing import Any

from typer.core import TyperGroup

#: Groups of commands, in order. Commands that are in none, such as those of other packages, stand last.
PANELS = {
    "The story": ("check", "behaviours", "sweep", "discover", "explain", "open"),
    "Look closer": ("show", "predict", "look", "atlas", "what-if", "neurons", "sets", "faithfulness", "retest"),
    "Results": ("report", "runs", "diff", "replay", "compare", "convert", "schema"),
    "Specimens": ("specimens", "models", "train", "generate", "plugins"),
}
OTHERS = "Benchmarks, studies and other packages"
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


class StoryFirst(TyperGroup):
    """Commands by group, in the order of the groups."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in order of the page."""
        known = list(_PANEL_OF)
        return sorted(super().list_commands(ctx), key=lambda name: known.index(name) if name in known else len(known))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, with the group that it stands in."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.rich_help_panel = _PANEL_OF.get(cmd_name, OTHERS)  # type: ignore[attr-defined]
        return command
