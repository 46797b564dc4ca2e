"""The workbench in the browser."""

from typing import Annotated

import typer

from vesalius.errors import BadInput
from vesalius_workbench.options import Served


def open_workbench(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="A run, a directory of results or a specimen; with --annotate one or more runs.",
            metavar="RUN | SPECIMEN | DIRECTORY",
        ),
    ] = None,
    annotate: Annotated[bool, typer.Option("--annotate", help="Rate the texts of these runs blind.")] = False,
    reference: Annotated[
        bool | None,
        typer.Option(
            "--reference/--no-reference",
            help="With --annotate: show raters the reference texts and tags. Default: for runs of protocol paper.",
        ),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(help="With --annotate: only these specimens, comma-separated; human-subset names ten circuits."),
    ] = None,
    ratings: Annotated[
        list[str] | None, typer.Option("--import", help="With --annotate: a CSV of ratings to add; repeatable.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="With --annotate: directory of the ratings. Default: one under vesalius-runs.")
    ] = None,
    *,
    served: Served,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
) -> None:
    """Open results and specimens in the browser: maps, attention, what-ifs, claims, two results side by side.

    A server on loopback, for you alone: the address it prints lets one browser in, once; then it prints the next. With
    --host it can be reached from other machines and asks for a password instead. With --annotate people rate what
    several runs say of components and tasks, and the hypotheses and plans behind it, without seeing who wrote them;
    every rating is on the disk at once, and the same command continues. Ctrl-C ends it and the runs it started.

    Example: vesalius open vesalius-runs
    """
    try:
        from vesalius_workbench.start import find_place, serve
    except ModuleNotFoundError as missing:
        raise BadInput(f"the workbench needs {missing.name}; run: pip install 'vesalius[workbench]'") from None
    from pathlib import Path

    from vesalius.cli.console import print_line
    from vesalius_bench.ratings.annotation import annotate as open_texts

    if not annotate:
        if reference is not None or ids or ratings or out:
            raise BadInput("--reference, --ids, --import and --out are for rating; add --annotate")
        if what and len(what) > 1:
            raise BadInput(
                f"{' '.join(what[:3])}: one run, specimen or directory is opened; add --annotate to rate several"
            )
        directory, opened, first = find_place(what[0] if what else None)
        return serve(directory, served, opened=opened, first=first, browser=browser, say=print_line)
    chosen = None if ids is None else [name for name in ids.split(",") if name.strip()]
    with open_texts(what or (), reference=reference, ids=chosen, ratings=ratings or (), out=out or True) as texts:
        return serve(Path(), served, first="/annotate", browser=browser, say=print_line, annotating=texts)
