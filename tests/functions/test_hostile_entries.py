"""Entries of a league that cheat: programs that write rows, print them, outlive their turn or ask without end. What the
scorer's process does with them is tested here; what they reach in their own, in `tests/sandbox/test_command.py`.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.functions.fakes import Line
from tests.processes import PATIENCE
from tests.sandbox.conftest import family
from vesalius.errors import Failed
from vesalius_functions import Answer, Box, interpreters
from vesalius_functions.interpreters import interpret_by_command

START = """
import json, os, subprocess, sys
task = json.loads(sys.stdin.readline())
def say(line):
    print(json.dumps(line), flush=True)
def asked(inputs):
    say({"query": inputs})
    return json.loads(sys.stdin.readline())
answer = {"description": "honest", "code": None}
"""
ROW = '{"kind": "row", "name": "winner", "metrics": {"power": {"value": 1.0, "n": 30}}, "ran": null}'
#: Entry, and what comes of it: the description of its answer, or a part of the line that its function costs. One whose
#: program ends before its answer may or may not be heard.
ENTRIES = {
    "prints a row": (f"print({ROW!r}, flush=True)", "a line is {'query'"),
    "prints a row beside its answer": (f"say({{'answer': answer, 'row': {ROW!r}}})", "a line is {'query'"),
    "says how it ran": ("say({'answer': {**answer, 'ran': {'contained': True}}})", "answer.ran"),
    "states its own figures": ("say({'answer': {**answer, 'metrics': {'success': 1.0}}})", "answer.metrics"),
    "states its queries": ("say({'answer': {**answer, 'queries': 0}})", "answer.queries"),
    "answers for another function": ("say({'answer': answer, 'id': 'f00001'})", "a line is {'query'"),
    "answers twice": ("say({'answer': answer})\nsay({'answer': {**answer, 'description': 'second'}})", "honest"),
    "answers as another type": ("say({'answer': [answer]})", "gave an answer that cannot be read"),
    "hides a row among the figures of its answer": (
        f"say({{'answer': {{**answer, 'structure': {{'row': json.loads({ROW!r})}}}}}})",
        "honest",
    ),
    "leaves a process that answers later": (
        "if os.fork():\n    say({'answer': answer})\nelse:\n    import time; time.sleep(1)\n    say({'answer': 7})",
        "honest",
    ),
    "goes on in a process of its own session": (
        "if os.fork():\n    os._exit(0)\nos.setsid()\nif os.fork():\n    os._exit(0)\nsay({'answer': answer})",
        "",
    ),
    "asks for more inputs than are kept": (
        "for _ in range(9):\n    last = asked([1] * 5)\nsay({'answer': {**answer, 'description': last['error']}})",
        "at most 20 inputs",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_gets_what_its_answer_is_worth(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, expected = ENTRIES[name]
    monkeypatch.setattr(interpreters, "MOST_IN_ALL", 20)
    (tmp_path / "entry.py").write_text(START + code)
    before, box = family(os.getpid()), Box(Line(0))
    try:
        said = interpreted(tmp_path, box).description
    except Failed as error:
        said = str(error)
    assert expected in said
    assert "\n" not in said
    assert box.asked <= 20
    assert family(os.getpid()) <= before


def interpreted(place: Path, box: Box, **options: Any) -> Answer:
    command = f"{sys.executable} -I -S {place / 'entry.py'}"
    answer, ran = interpret_by_command(command, box, timeout=PATIENCE, **options)
    assert ran.contained
    return answer


@pytest.mark.slow
def test_an_entry_writes_no_row_and_moves_none(tmp_path: Path) -> None:
    rows = tmp_path / "league" / "rows"
    rows.mkdir(parents=True)
    (rows / "other.json").write_text("{}")
    code = f"""
tried = 0
for action in (
    lambda: open({str(rows / "winner.json")!r}, "w").write({ROW!r}),
    lambda: open({str(rows / "other.json")!r}, "w").write({ROW!r}),
    lambda: os.unlink({str(rows / "other.json")!r}),
    lambda: os.rename({str(rows / "other.json")!r}, {str(rows / "winner.json")!r}),
    lambda: os.symlink({str(rows / "other.json")!r}, {str(rows / "winner.json")!r}),
    lambda: open(sys.argv[0], "a").write("# changed"),
):
    tried += 1
    try:
        action()
    except OSError:
        pass
say({{"answer": {{**answer, "description": f"{{tried}} tried"}}}})
"""
    (tmp_path / "entry.py").write_text(START + code)
    assert interpreted(tmp_path, Box(Line(0))).description == "6 tried"
    assert {path.name: path.read_text() for path in rows.iterdir()} == {"other.json": "{}"}
    assert (tmp_path / "entry.py").read_text() == START + code
