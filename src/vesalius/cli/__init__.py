"""The `vesalius` command.

Commands are declared in `commands` with light imports only, so that `--help` never loads torch. A command parses its
options, calls a function of `vesalius.api` and prints the view of the result (`terminal`). Results go to stdout,
progress and notes to stderr. Exit codes: 0 done, 1 failed, 2 bad usage or bad input, each with one clear line.
"""

import errno
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from vesalius.cli.commands import circuits, runs, specimens
from vesalius.cli.console import Interrupted, notes_on_stderr, output, with_flags
from vesalius.cli.options import command
from vesalius.consent import NotTrusted, trust
from vesalius.errors import BadInput, Failed
from vesalius.plugins import COMMANDS, GROUPS, OWN_COMMANDS, Plugin, installed, offers, why_hidden
from vesalius.version import __version__

#: Groups of commands, in order. Commands that are in none, such as those of other packages, stand last.
PANELS = {
    "The story": ("check", "behaviours", "sweep", "discover", "explain", "open"),
    "Look closer": (
        "show",
        "predict",
        "look",
        "atlas",
        "align",
        "what-if",
        "complete",
        "neurons",
        "latents",
        "sets",
        "faithfulness",
        "retest",
        "ladder",
        "improve",
    ),
    "Results": ("report", "runs", "diff", "replay", "compare", "convert", "schema"),
    "Specimens": ("specimens", "models", "train", "transcoders", "generate", "plugins"),
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


app = typer.Typer(
    name="vesalius",
    cls=StoryFirst,
    help="Find, explain and check the circuits inside transformer language models.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)

#: Benchmarks are commands of other packages.
bench = typer.Typer(
    name="bench", help="Run a benchmark and print its scorecard.", no_args_is_help=True, rich_markup_mode="rich"
)
PARTS = (specimens, circuits, runs)
for part in (*(one.commands for one in PARTS), bench):
    app.add_typer(part)


def _add_commands() -> None:
    """Add the commands of other packages: entry points of the group `vesalius.commands`.

    `study` names a function, `claims` a `typer.Typer` with commands of its own, `bench.functions` a command of the
    group `bench`. What cannot be imported, or is of a package that is not trusted, is left out, and `vesalius plugins
    --check` says why; a name that this package has is not taken.
    """
    groups = {"": app, "bench": bench}
    for plugin in sorted(installed(COMMANDS), key=lambda one: not one.built_in):
        group, _, name = plugin.name.rpartition(".")
        if why_hidden(plugin, OWN_COMMANDS) is not None or group not in groups:
            continue
        try:
            loaded = plugin.load()
        except BadInput:
            continue
        if isinstance(loaded, typer.Typer):
            groups[group].add_typer(loaded, name=name)
        elif callable(loaded):
            holder = typer.Typer()  # commands of sub-typers stand after those of this package
            command(holder, name=name)(loaded)
            groups[group].add_typer(holder)


_add_commands()

#: The base class of all errors about the command line, in whichever copy of click typer uses.
_USAGE_ERROR: Any = typer.BadParameter.__base__
#: The exit code typer gives to Ctrl-C.
INTERRUPTED = 130


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit()


def main() -> None:
    """Entry point: turns refusals and failures into one line and an exit code."""
    try:
        # Refuse a word that is not UTF-8, which no document could hold.
        for word in sys.argv[1:]:
            if any("\ud800" <= character <= "\udfff" for character in word):
                raise BadInput(f"{word!a}: is not UTF-8, which results are written in; rename the file")
        if (called := _command_called()) is not None:
            called.require_trusted()
        with notes_on_stderr(_one_line):
            code = app(prog_name="vesalius", standalone_mode=False)
    except _USAGE_ERROR as error:
        _stop(error.format_message() or "a command is missing", 2)
    except NotTrusted as error:
        _ask(error)
    except BadInput as error:
        _stop(error, 2)
    except Failed as error:
        if error.result is not None:  # only writing it failed
            output(error.result, as_json="--json" in sys.argv)
            sys.stdout.flush()
        _stop(error, 1)
    except Interrupted:
        _stop("interrupted; the same command continues from what was written by now", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno == errno.ENOSPC and not error.filename:
            _stop(f"stdout: could not be written ({error.strerror}); free some space or write elsewhere", 1)
        _stop(f"{error.filename or 'system'}: {error.strerror or error}", 1)
    except MemoryError:
        _stop("out of memory; use fewer prompts (--n) or a smaller model", 1)
    except Exception as error:  # an error of ours keeps its traceback
        if (plugin := _command_called()) is None:
            raise
        _stop(plugin.failed(error), 1)
    else:
        if code == INTERRUPTED:
            _stop("interrupted; the same command starts from the beginning", INTERRUPTED)
        sys.exit(code or 0)


def _command_called() -> Plugin | None:
    """The plug-in whose command is called; None for one of this package."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    names = {words[0], ".".join(words[:2])} if words else set()
    offered = [one for one in installed(COMMANDS) if one.name in names and why_hidden(one, OWN_COMMANDS) is None]
    return next((one for one in offered if not one.built_in), None)


def _ask(refused: NotTrusted) -> NoReturn:
    """Ask at a terminal whether a package is trusted, and start the command again where it is. Names are looked up
    before any work, so nothing is lost.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        _stop(refused, 2)
    for one in (plugin for group in GROUPS for plugin in installed(group) if plugin.package == refused.package):
        print(f"  {one.group.role} {one.name}: runs {one.target} of {one.package} {one.version}", file=sys.stderr)
    print(
        f"Plug-ins run with your rights. Trust package {refused.package}? [y/N] ", file=sys.stderr, end="", flush=True
    )
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        _stop(refused, 2)
    try:
        trust(refused.package, offers(refused.package))
    except (BadInput, Failed) as error:
        _stop(error, 1)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _one_line(message: object) -> str:
    """A message in one line, with the options of the command that is called."""
    command: Any = typer.main.get_command(app)
    for word in sys.argv[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    flags = {flag for option in command.params for flag in option.opts}
    return with_flags(" ".join(str(message).split()), flags)


def _stop(reason: object, code: int) -> NoReturn:
    if os.environ.get("VESALIUS_DEBUG") and isinstance(reason, BaseException):
        raise reason
    print(f"vesalius: {_one_line(reason)}", file=sys.stderr)
    sys.exit(code)
