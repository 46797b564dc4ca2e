"""How the command talks: JSON on stdout, tables for people, notes and progress on stderr."""

import json
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from vesalius.errors import Note

if TYPE_CHECKING:
    from vesalius.documents.view import Section, View

stdout = Console()


class Interrupted(Exception):
    """Ctrl-C in a command that the same command line continues."""


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2) + "\n")


def output(
    document: Any,
    printer: Callable[[Any], None] | None = None,
    *,
    as_json: bool,
    top: int | None = None,
    flags: Collection[str] = (),
) -> None:
    """A result on stdout: its JSON, or for people its view (`top` rows of each table), or what `printer` prints.
    `flags` are options that its texts name by their parameters.
    """
    if as_json:
        return print_json(document.as_data() if hasattr(document, "as_data") else document)
    return print_view(document.view(), top=top, flags=flags) if printer is None else printer(document)


def print_view(view: "View", *, top: int | None = None, flags: Collection[str] = ()) -> None:
    """A view on stdout, as wide as the terminal."""
    from vesalius.cli.terminal import lines_of, terminal_width

    lines = lines_of(view, top=top, width=terminal_width())
    sys.stdout.write("".join(f"{with_flags(line, flags)}\n" for line in lines))


def print_sections(sections: "Sequence[Section]") -> None:
    """Sections on stdout, as wide as the terminal."""
    from vesalius.cli.terminal import section_lines, terminal_width

    sys.stdout.write("".join(f"{line}\n" for line in section_lines(sections, None, terminal_width())))


def print_line(text: str) -> None:
    """A line for people that no terminal breaks and no markup changes."""
    stdout.print(text, markup=False, highlight=False, soft_wrap=True)


def with_flags(text: str, flags: Collection[str]) -> str:
    """A message with the parameters it names in backticks written as options of the command: `max_cost` becomes
    --max-cost where that is among the `flags`.
    """

    def flag(name: re.Match[str]) -> str:
        option = f"--{name[1].replace('_', '-')}"
        return option if option in flags else name[0]

    return re.sub(r"`([a-z_]+)`", flag, text)


@contextmanager
def notes_on_stderr(one_line: Callable[[object], str]) -> Iterator[None]:
    """Print every note as one line, and once; other warnings as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", Note)
        usual, said = warnings.showwarning, set[str]()

        def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, Note):
                if (line := f"note: {one_line(message)}") not in said:
                    print(line, file=sys.stderr)
                said.add(line)
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show
        yield


@contextmanager
def resumable() -> Iterator[None]:
    """Around work that the same command continues after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted from None
