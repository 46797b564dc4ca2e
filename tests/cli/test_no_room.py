"""Commands that write, where nothing can be written: a disk without room, and a place that is read-only. Each ends in
one line, leaves no half of a file, and what it has computed by then it prints or keeps.
"""

import json
import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from benchmarks.writing import READING, SERVING, WRITING, Writing, make_files, make_inputs

from tests.cli.conftest import Outcome, Vesalius
from tests.no_room import no_room, read_only
from vesalius.cli import app

#: Commands whose result is one document: it is computed whole before anything is written, and printed if it cannot be.
PRINTED = {
    *(
        "sweep",
        "discover",
        "explain",
        "atlas",
        "what-if",
        "complete",
        "neurons",
        "latents",
        "faithfulness",
        "retest",
        "align",
    ),
    *("ladder", "improve", "diff", "compare", "paper", "ratings", "claims verify", "functions reliability"),
}
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits and rights of Linux")


def leaves(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command below one, with its whole name."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for part in command.list_commands(None):
        yield from leaves(command.get_command(None, part), f"{name} {part}".strip())


def test_every_command_is_known_to_write_or_not() -> None:
    """One that is added later has to say which, and one with a place to write to cannot say that it only reads."""
    known = dict(leaves(typer.main.get_command(app)))
    assert set(known) == {*WRITING, *SERVING, *READING}
    for name, command in known.items():
        writes = {"out", "export", "propose", "csv", "key_out"} & {str(one.name) for one in command.params}
        assert not (writes and name in READING), f"{name} takes {writes}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files and inputs of all commands, made where they are first needed."""
    place = tmp_path_factory.mktemp("inputs") / "in"
    make_files(place)
    return place


def ready(one: Writing, shared: Path, vesalius: Vesalius) -> None:
    def run(words: list[str]) -> None:
        got = vesalius(*words)
        assert got.code == 0, got.err

    make_inputs(shared, one.needs, run)


def files_in(place: Path) -> dict[str, bytes]:
    """Every file; those of JSON can be read, and none is half of one."""
    files = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for name, content in files.items():
        assert "partial" not in name
        if name.endswith(".json") and content:
            json.loads(content)
    return files


def is_one_line(got: Outcome) -> None:
    lines = [line for line in got.err.splitlines() if line.startswith("vesalius: ")]
    assert got.code in (1, 2), got.err
    assert len(lines) == 1, got.err
    assert "Traceback" not in got.err
    assert re.search(r"could not be|cannot be|File too large|Permission denied", lines[0])


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", WRITING)
def test_a_disk_without_room(name: str, vesalius: Vesalius, shared: Path, tmp_path: Path) -> None:
    one, out = WRITING[name], tmp_path / "out"
    ready(one, shared, vesalius)
    one.begin(shared, out)
    before = files_in(tmp_path)
    with no_room():
        got = vesalius(*one.command(shared, out), "--json")
    is_one_line(got)
    assert got.code == 1
    assert before.items() <= files_in(tmp_path).items()
    if name in PRINTED:
        assert json.loads(got.out)
    else:
        assert got.out == ""


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", WRITING)
def test_a_place_that_is_read_only(name: str, vesalius: Vesalius, shared: Path, tmp_path: Path) -> None:
    one, place = WRITING[name], tmp_path / "place"
    out = place / "out"
    ready(one, shared, vesalius)
    place.mkdir()
    one.begin(shared, out)
    before = files_in(place)
    with read_only(place):
        got = vesalius(*one.command(shared, out), "--json")
    is_one_line(got)
    assert got.out == ""  # it is refused before the work
    assert files_in(place) == before


@linux
@pytest.mark.parametrize("transport", [(), ("--http", "--port", "0")])
def test_the_server_of_tools_does_not_start_where_it_cannot_write_its_run(
    transport: tuple[str, ...], vesalius: Vesalius, tmp_path: Path
) -> None:
    pytest.importorskip("mcp")
    with no_room():
        got = vesalius("mcp", *transport, "--run", "run")
    is_one_line(got)
    assert (got.code, got.out) == (1, "")
    assert not any(files_in(tmp_path).values())
    (tmp_path / "place").mkdir()
    with read_only(tmp_path / "place"):
        got = vesalius("mcp", *transport, "--run", "place/run")
    is_one_line(got)
    assert (got.code, got.out, os.listdir(tmp_path / "place")) == (2, "", [])


@linux
@pytest.mark.slow
def test_a_run_continues_when_there_is_room_again(vesalius: Vesalius, tmp_path: Path) -> None:
    """The disk fills while it works: what was measured stays, and the end is that of a run that had room."""
    words = (
        "bench",
        "discovery",
        "--methods",
        "sweep,eap",
        "--ids",
        "41",
        "--n",
        "4",
        "--jobs",
        "1",
        "--json",
        "--out",
    )
    whole = vesalius(*words, tmp_path / "whole")
    assert whole.code == 0
    ledger = (tmp_path / "whole" / "events.jsonl").read_bytes()
    room = len(ledger.splitlines(keepends=True)[0]) + 1
    room = max(room, (tmp_path / "whole" / "run.json").stat().st_size)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        got = vesalius(*words, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    is_one_line(got)
    again = vesalius(*words, tmp_path / "out")
    assert again.code == 0, again.err
    figures = [json.loads(text.out)["metrics"] for text in (whole, again)]
    assert figures[0].keys() == figures[1].keys()
    assert {name: one["value"] for name, one in figures[0].items() if "seconds" not in name} == {
        name: one["value"] for name, one in figures[1].items() if "seconds" not in name
    }
    shutil.rmtree(tmp_path / "out")
    assert os.listdir(tmp_path) == ["whole"]
