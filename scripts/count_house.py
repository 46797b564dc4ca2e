"""How large the house is: lines and files by package and room, options, the widest functions, `Any`, a specimen's path.

    python scripts/count_house.py            # a Markdown table
    python scripts/count_house.py --path     # and the files that hold a specimen in `ves.discover`

The package that is counted is the one that `import vesalius` finds, with those beside it. Lines are those of the files,
with comments and empty ones. Parameters are those with a name, without `self` and `cls`; `**options` that belong to a
method or a scientist are not counted. Options are those of every command, without `--help`. The path is taken while
`discover` runs on the name of a specimen of the benchmark: the files whose functions run, those in which one holds the
specimen, and the pairs of files of which one called another of a higher floor.
"""

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import vesalius

SOURCE = Path(vesalius.__file__).parents[1]
#: The floors of the core, from the bottom; files that stand outside of rooms are the ground.
ROOMS = "documents model sandbox intervene behaviours rasp training circuits discovery explanations grading runs report"
FLOORS = ["ground", *ROOMS.split(), "api", "cli"]


def room(path: Path) -> str:
    """The floor of a file of the core, or the package beside it."""
    package, *inside = path.relative_to(SOURCE).parts
    if package != "vesalius":
        return package
    return inside[0] if len(inside) > 1 and inside[0] in FLOORS else "ground"


def functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every function of a file with the number of its parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            named = (*given.posonlyargs, *given.args, *given.kwonlyargs)
            yield len([one for one in named if one.arg not in ("self", "cls")]), node.name


def options() -> tuple[int, int]:
    """The number of commands, and of their options."""
    import typer.main

    from vesalius import cli

    def leaves(command: Any) -> Iterator[list[Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield [one for one in command.params if one.param_type_name == "option" and "--help" not in one.opts]
        else:
            for one in inner.values():
                yield from leaves(one)

    application = cli.app() if callable(cli.app) and not isinstance(cli.app, typer.Typer) else cli.app
    found = list(leaves(typer.main.get_command(application)))
    return len(found), sum(map(len, found))


def path_of_a_specimen() -> tuple[int, int, int]:
    """The files that `discover` runs through, those of them that hold a specimen, and how many calls climb."""
    run, holding, climbs = set[str](), set[str](), set[tuple[str, str]]()

    def look(frame: FrameType, event: str, _: object) -> None:
        here, caller = frame.f_code.co_filename, frame.f_back
        if event != "return" or not here.startswith(str(SOURCE)) or frame.f_code.co_name == "<module>":
            return
        run.add(here)
        if any(type(value).__name__ == "Specimen" for value in frame.f_locals.values()):
            holding.add(here)
        while caller is not None and not caller.f_code.co_filename.startswith(str(SOURCE)):
            caller = caller.f_back
        pair = ("" if caller is None else caller.f_code.co_filename, here)
        below, above = (room(Path(file)) if file else "" for file in pair)
        if {below, above} <= {*FLOORS} - {"ground"} and FLOORS.index(above) > FLOORS.index(below):
            climbs.add(pair)

    sys.setprofile(look)
    try:
        vesalius.discover("frac_prevs", "eap-ig", n=8)
    finally:
        sys.setprofile(None)
    return len(run), len(holding), len(climbs)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", action="store_true", help="Follow a specimen through `discover`.")
    asked = parser.parse_args()
    files, lines, anys, widest = Counter[str](), Counter[str](), Counter[str](), []
    for path in sorted(SOURCE.glob("vesalius*/**/*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        files[room(path)] += 1
        lines[room(path)] += len(text.splitlines())
        anys[room(path)] += sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))
        widest += [(*found, str(path.relative_to(SOURCE))) for found in functions(tree)]
    core = [name for name in FLOORS if files[name]]
    print("| | files | lines | lines a file | `Any` |\n|---|---|---|---|---|")
    for name, rooms in [(f"`{one}`", [one]) for one in [*core, *sorted(set(files) - set(core))]] + [
        ("**core**", core),
        ("**all**", list(files)),
    ]:
        n, length, any_ = (sum(counted[one] for one in rooms) for counted in (files, lines, anys))
        print(f"| {name} | {n} | {length:,} | {length / n:.0f} | {any_} |")
    print("\n{} commands with {} options.".format(*options()))
    print("Widest functions:", ", ".join(f"`{name}` {n}" for n, name, _ in sorted(widest, reverse=True)[:5]))
    if asked.path:
        text = "`discover` runs through {} files, of which {} hold a specimen; {} calls climb to a higher floor."
        print(text.format(*path_of_a_specimen()))


if __name__ == "__main__":
    main()
