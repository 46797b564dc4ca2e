"""Functions behind scripts in the published form: what they print, what is counted, and that no definition leaks."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked import vesalius
from tests.functions.fakes import Line
from tests.no_room import no_room
from tests.processes import PATIENCE, heed_interrupts, until
from vesalius import api
from vesalius.errors import BadInput, Failed
from vesalius_functions import Box
from vesalius_functions.numeric import sample
from vesalius_functions.scripts import printed_output
from vesalius_functions.serving import LEDGER, ServedFunctions


def run(script: Path, *inputs: str) -> tuple[int, str]:
    command = [sys.executable, "-I", str(script), *inputs]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    return done.returncode, done.stdout


def test_a_script_prints_what_the_published_one_prints(tmp_path: Path) -> None:
    drawn = (one for one in sample(400, seed=1) if one.family == "reciprocal")
    function = next(one for one in drawn if one.truth()["kind"] == "clean")
    with ServedFunctions({"f00000": function, "f00001": Line(1, category="strings")}, tmp_path):
        code, printed = run(tmp_path / "f00000" / "function.py", "2", "-4.50", "0", "x")
        texts = run(tmp_path / "f00001" / "function_code.py", "a, (b)", "")
    replies = Box(function).ask([2.0, -4.5])
    two, other = (str(reply.value) for reply in replies)
    assert (code, printed) == (0, f"Function input - output pairs: (2, {two}) (-4.50, {other}) (0, None) (x, None)\n")
    assert texts == (0, "Function input - output pairs: (a, (b), )b( ,a) (, )\n")
    assert printed_output("2", f"{printed.partition(' (-4')[0]}\n") == two


def test_queries_are_counted_and_written_down_over_restarts(tmp_path: Path) -> None:
    script = tmp_path / "f00000" / "function.py"
    with ServedFunctions({"f00000": Line(0)}, tmp_path, budget=3) as served:
        assert run(script, "1", "2")[0] == 0
        assert run(script, "3", "4") == (1, "2 inputs asked, 1 of the budget of 3 left; ask fewer\n")
        assert served.asked == {"f00000": 2}
    assert run(script, "3") == (1, "")
    with (tmp_path / LEDGER).open("a") as file:
        file.write('{"function": "f00000", "inp')  # a crash in the middle of a line
    with ServedFunctions({"f00000": Line(0)}, tmp_path, budget=3) as served:
        assert run(script, "3") == (0, "Function input - output pairs: (3, 6.0)\n")
        assert run(script, "4")[0] == 1
        assert served.asked == {"f00000": 3}
    lines = [json.loads(line) for line in (tmp_path / LEDGER).read_text().splitlines()]
    assert [(line["input"], line["output"]) for line in lines] == [(1, 2), (2, 4), (3, 6)]


def test_on_a_full_disk_a_query_is_not_answered_and_the_ledger_stays_whole(tmp_path: Path) -> None:
    with ServedFunctions({"f00000": Line(0)}, tmp_path) as served:
        asked = served.answer({"function": "f00000", "inputs": ["1"]})
        ledger = (tmp_path / LEDGER).read_bytes()
        for room in (0, len(ledger), len(ledger) + 7):  # the last for a part of a line
            with no_room(room):
                said = served.answer({"function": "f00000", "inputs": ["2", "3"]})
            assert said["code"] == 1
            assert said["printed"].startswith(f"not answered: {LEDGER} could not be written (")
            assert (tmp_path / LEDGER).read_bytes() == ledger
        assert served.answer({"function": "f00000", "inputs": ["1"]}) == asked
    with no_room(), pytest.raises(Failed, match=r"function\.py: could not be written"):
        ServedFunctions({"f00001": Line(0)}, tmp_path).__enter__()
    assert os.listdir(tmp_path / "f00001") == []


def test_a_copied_script_works_elsewhere(tmp_path: Path) -> None:
    with ServedFunctions({"f00000": Line(0)}, tmp_path / "served"):
        shutil.copy(tmp_path / "served" / "f00000" / "function.py", tmp_path / "copy.py")
        assert run(tmp_path / "copy.py", "5") == (0, "Function input - output pairs: (5, 10.0)\n")


def test_the_definition_is_in_no_file(tmp_path: Path) -> None:
    (function,) = sample(1, seed=987_654_321)
    with ServedFunctions({function.id: function}, tmp_path):
        run(tmp_path / function.id / "function.py", "1")
        files = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.name for path in files} == {"function.py", "function_code.py", LEDGER}
    secrets = [function.family, str(function.truth()["formula"]), "987654321", *map(str, function.truth()["params"])]
    for path, text in files.items():
        assert not [secret for secret in secrets if len(secret) > 2 and secret in text], path


@pytest.mark.parametrize(
    "request_",
    [None, 3, {}, {"function": "f00009", "inputs": []}, {"function": "f00000", "inputs": [1]}, {"function": []}],
)
def test_requests_of_another_kind_are_answered_in_one_line(request_: Any, tmp_path: Path) -> None:
    served = ServedFunctions({"f00000": Line(0)}, tmp_path)
    assert served.answer(request_) == {"printed": "not a request that this server knows", "code": 1}
    assert served.asked == {"f00000": 0}


def test_choices_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(BadInput, match="`ids` and `count`: give one of them"),
        api.serve_functions("numeric", tmp_path, ids=["f00001"], count=2),
    ):
        pass


def test_an_agent_of_the_paper_is_served_and_graded_by_the_bench(tmp_path: Path) -> None:
    """The command serves; an agent that knows the published form only asks and writes; the bench grades its files."""
    agent = """
import re, subprocess, sys
from pathlib import Path
for folder in sorted(Path(sys.argv[1]).glob("f*")):
    command = [sys.executable, str(folder / "function.py"), "10", "20"]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    low, high = (complex(value).real for value in re.findall(r"\\\\(\\\\d+, ([^)]*)\\\\)", said))
    slope = (high - low) / 10
    (folder / "description.txt").write_text(f"about {slope} x")
    (folder / "code.py").write_text(f"def f(x):\\\\n    return {low} + {slope} * (x - 10)\\\\n")
""".replace("\\\\", "\\")
    (tmp_path / "agent.py").write_text(agent)
    out = tmp_path / "served"
    options = ["--category", "numeric", "--count", "6", "--seed", "5"]
    with subprocess.Popen(
        vesalius("functions", "serve", *options, "--out", out, "--budget", 2),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == f"6 numeric functions are served in {out} until Ctrl-C\n"
            subprocess.run([sys.executable, str(tmp_path / "agent.py"), str(out)], check=True, timeout=PATIENCE)
        finally:
            os.kill(server.pid, signal.SIGINT)
            until(lambda: server.poll() is not None)
        assert (server.returncode, server.stdout.read()) == (0, f"12 queries in {out}/queries.jsonl\n")
    card = api.bench_functions(
        category="numeric", count=6, seed=5, interpreter=f"answers:{out}", jobs=1, out=tmp_path / "run", progress=False
    )
    assert (card.n, card.n_error, card.metrics["queries"].value) == (6, 0, 2)
    straight = [one.id for one in sample(6, seed=5) if one.family in ("linear", "constant")]
    for one in straight:
        assert json.loads((tmp_path / "run" / "grades" / f"{one}.json").read_text())["metrics"]["success"] == 1


def test_a_folder_without_an_answer_is_an_error_of_that_function(tmp_path: Path) -> None:
    (tmp_path / "a" / "f00000").mkdir(parents=True)
    (tmp_path / "a" / "f00000" / "description.txt").write_text("something")
    with pytest.warns(UserWarning, match=r"has no description\.txt"):
        card = api.bench_functions(
            category="numeric", count=2, interpreter=f"answers:{tmp_path / 'a'}", jobs=1, out=tmp_path / "run"
        )
    assert (card.n, card.n_error) == (1, 1)
