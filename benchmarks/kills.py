"""Kills at random moments: each command is given again until it ends, and must leave what an unkilled one leaves.

    OMP_NUM_THREADS=1 python -m benchmarks.kills --kills 120 --jobs 4 --out benchmarks/results/kills.json

Every command of `benchmarks.writing.WRITING`, which are all that write, and four more: `agent`, an explanation by a
scripted language model whose programs run in the sandbox; `workbench`, a process that holds a run as the server of
`vesalius open` does, resumes it when it is started again, and is killed without its run; and `mcp` and `serve`, an
agent with its server of tools or of functions, which are killed together and asked again for what was not answered.

Each is run twice without a kill: what differs between these two (times, and secrets that are drawn) is not compared.
Then it is started in a process group of its own, killed with SIGKILL after a random share of the time that it took, and
started again, until it ends by itself. Its files must be those of the unkilled runs, JSON and weights by their content,
others by their names. What it had started must have ended soon after each kill; what has not is an orphan. A command
that takes longer than `--most` seconds is left out and listed.
"""

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from benchmarks.writing import ROOT, WRITING, Writing, make_files, make_inputs
from vesalius.files import write_json

SEED = 72
#: What starts an interpreter; tests put a fork of one in its place.
PYTHON = [sys.executable]
#: Times, places and what follows from them; the work that was done, which counts that of lives before a kill.
NOT_COMPARED = {"seconds", "forwards", "work_seconds", "directory", "time", "made_by", "versions", "request"}
NOT_READ = ("run.json", "spending.json", "under_way.json", "run.log")
MOST_LIVES = 60
#: What a sweep has measured by now, and the seconds that it spent.
SCORES_FILE = "scores.safetensors"
#: Seconds that what a killed command had started may take to end: a run whose server is gone writes down what it has.
ENDING = 30.0
#: What commands say that were killed after everything was written: they write over nothing.
COMPLETE = ("already", "exists")
SCRIPTED = f"scripted:{ROOT / 'examples' / 'hyve_frac_prevs.py'}"
OTHERS = {
    "agent": Writing(f"explain frac_prevs --scientist hyve --backbone {SCRIPTED} --protocol paper --out {{out}}"),
    "workbench": Writing("--hold {out}"),
    "mcp": Writing("--ask {out}"),
    "serve": Writing("--query {out}"),
}
COMMANDS = {**WRITING, **OTHERS}


#: What an agent asks the server of tools for, in this order: tools that keep whole results, and a submission.
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("predict", {"specimen": "41", "inputs": [[1, -2]]}),
    ("sweep", {"specimen": "41", "n": 4}),
    ("explain", {"specimen": "41"}),
    ("query_function", {"function": "strings/f00000", "inputs": ["a b", "abc"]}),
    ("submit_explanation", {"specimen": "41", "components": {"L0_MLP": "MAPPER"}}),
    ("grade", {"specimen": "41"}),
]
#: What differs between an answer and the same one after a kill: what is left of the budget.
COUNTED = {"left", "text"}
#: The functions that are served, and what they are asked in this order; each may be asked more often than that.
SERVED = "functions serve --category strings --count 1 --seed 5 --budget 1000 --out"
QUERIES = ("a b", "abc", "", "(x", "12 12", "Zebra")


def hold_a_run(out: Path) -> None:
    """As the server of the workbench: start a run, or resume the one that a killed server left, until it ends."""
    from vesalius_workbench.jobs import Jobs, RunQuestion

    out.mkdir(exist_ok=True)
    jobs, place = Jobs(out, specimens=["41"]), out / "run"
    said = jobs.about(place) if place.is_dir() else None
    if said is None:
        jobs.start(RunQuestion(specimen="41", components=["L0_MLP"], scientist="builtin", name="run"))
    elif said["resume"] is not None:
        jobs.resume(place, said["resume"]["digest"])
    elif not (place / "explanation.json").is_file():  # killed before it said what was asked
        shutil.rmtree(place)
        return hold_a_run(out)
    while jobs.running():
        time.sleep(0.05)
    return None


def ask_a_server(out: Path) -> None:
    """As an agent: start the server of tools on a run, and ask for everything that it did not answer before."""
    answers = out / "answers"
    answers.mkdir(parents=True, exist_ok=True)
    words = [*PYTHON, "-m", "vesalius", "mcp", "--run", str(out / "run"), "--root", str(answers)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "kills", "version": "1"}}
        _request(server, "initialize", about, number=0)
        for number, (tool, arguments) in enumerate(CALLS, 1):
            target = answers / f"{number} {tool}.json"
            if target.exists():
                continue
            result = _request(server, "tools/call", {"name": tool, "arguments": arguments}, number=number)
            said = result["content"][0]["text"]
            if result.get("isError") and "already" not in said:  # submitted, and killed before the answer
                raise RuntimeError(f"{tool}: {said}")
            data = result.get("structuredContent") or {}
            kept = {} if tool == "submit_explanation" else {k: v for k, v in data.items() if k not in COUNTED}
            write_json(target, kept)


def _request(server: "subprocess.Popen[str]", method: str, params: dict[str, Any], *, number: int) -> dict[str, Any]:
    """Send one request by lines of JSON-RPC, and wait for its result."""
    assert server.stdin is not None
    assert server.stdout is not None
    request: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    print(json.dumps(request), file=server.stdin, flush=True)
    for line in server.stdout:
        reply = json.loads(line)
        if reply.get("id") == number and "method" not in reply:
            if method == "initialize":
                ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                print(json.dumps(ready), file=server.stdin, flush=True)
            return reply["result"]
    raise RuntimeError(f"the server ended before it answered {method}")


def query_functions(out: Path) -> None:
    """As an agent of the user: start the server of functions, and call the script for every input without an answer.

    What it was asked, without repetitions, is written at the end: an answer that nobody has seen is counted.
    """
    answers = out / "answers"
    answers.mkdir(parents=True, exist_ok=True)
    words = [*PYTHON, "-m", "vesalius", *SERVED.split(), str(out / "served")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        if "are served" not in server.stdout.readline():
            raise RuntimeError("the server of functions ended")
        (script,) = (out / "served").glob("*/function.py")
        for number, text in enumerate(QUERIES):
            if not (target := answers / f"{number}.json").exists():
                done = subprocess.run([sys.executable, "-I", script, text], capture_output=True, text=True, check=True)
                write_json(target, {"printed": done.stdout})
        server.send_signal(signal.SIGINT)
        server.wait()
    lines = (out / "served" / "queries.jsonl").read_text().splitlines()
    write_json(answers / "asked.json", {"queries": [json.loads(line) for line in dict.fromkeys(lines)]})


@dataclass
class Tally:
    """What the kills of one command did."""

    kills: int = 0
    runs: int = 0
    lives: int = 0
    seconds_unkilled: float = 0.0
    not_compared: int = 0
    different: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    left_out: str = ""


def start(command: list[str], out: Path) -> "subprocess.Popen[str]":
    """The command in a process group of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = ["benchmarks.kills", *command] if command[0].startswith("--") else ["vesalius", *command, "--json"]
    return subprocess.Popen(
        [*PYTHON, "-m", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        cwd=out.parent,
    )


def started_by(top: int) -> dict[int, str]:
    """Every process below one, with the time at which it began, by which it is known later."""
    began, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if words[0] != "Z":
            began[int(folder.name)], parents[int(folder.name)] = words[19], int(words[1])
    below, more = {top}, True
    while more:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        below |= more
    return {pid: began[pid] for pid in below if pid in began}


def left_over(processes: dict[int, str]) -> list[str]:
    """Which of these still run when they had time to end."""
    end = time.monotonic() + ENDING
    while True:
        now = {pid: started_by(pid).get(pid) for pid in processes}
        left = [pid for pid, began in processes.items() if now[pid] == began]
        if not left or time.monotonic() > end:
            return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:200] for pid in left]
        time.sleep(0.1)


def live(command: list[str], out: Path, tally: Tally, *, kill_after: float | None) -> bool | None:
    """One life: True if the command ended by itself, None if it was killed before; anything else is an error."""
    process = start(command, out)
    try:
        _, said = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        processes = started_by(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        tally.orphans += left_over(processes)
        process.communicate()
        return None
    if process.returncode == 0 or any(word in said for word in COMPLETE):
        return True
    raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {said[-500:]}")


def left_behind(out: Path) -> dict[str, Any]:
    """Every field of JSON documents and every weight file, without times and places, and the names of other files."""
    documents: dict[str, Any] = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if not path.is_file() or name.endswith(NOT_READ) or ".partial-" in name:
            continue
        if path.suffix == ".json":
            document = comparable(json.loads(path.read_text().replace(str(out), "PLACE")))
            documents |= {f"{name}: {place}": value for place, value in fields(document).items()}
        elif path.name == SCORES_FILE:
            documents[name] = {key: value.tolist() for key, value in load_file(path).items() if key != "spent"}
        elif path.suffix == ".safetensors":
            documents[name] = path.read_bytes().hex()
        else:
            documents[name] = path.stat().st_size > 0
    return documents


def fields(document: Any, place: str = "") -> dict[str, Any]:
    """The values of a document by their places."""
    if isinstance(document, dict | list) and document:
        named = document.items() if isinstance(document, dict) else enumerate(document)
        return {key: leaf for name, part in named for key, leaf in fields(part, f"{place}.{name}").items()}
    return {place: document}


def comparable(document: Any) -> Any:
    """A document without what differs between any two runs."""
    if isinstance(document, dict):
        return {name: comparable(value) for name, value in document.items() if name not in NOT_COMPARED}
    return [comparable(value) for value in document] if isinstance(document, list) else document


def attack(
    command: Writing, place: Path, *, inputs: Path, kills: int, dice: random.Random, most: float = 600.0
) -> Tally:
    """Kill a command so often, in as many runs as that takes."""
    tally, found = Tally(), []
    for name in ("whole", "again"):
        out = place / name
        command.begin(inputs, out)
        began = time.monotonic()
        if live(command.command(inputs, out), out, tally, kill_after=most) is None:
            tally.left_out = f"takes more than {most:g} seconds"
            return tally
        tally.seconds_unkilled = round(time.monotonic() - began, 2)
        found.append(left_behind(out))
    expected, again = found
    drawn = {name for name in {*expected, *again} if expected.get(name) != again.get(name)}
    tally.not_compared = len(drawn)
    while tally.kills < kills:
        out = place / f"run{tally.runs}"
        command.begin(inputs, out)
        tally.runs += 1
        for number in range(MOST_LIVES):
            tally.lives += 1
            # The last life of a run is left alone, so that it ends however slow the machine is.
            spared = number == MOST_LIVES - 1 or tally.kills >= kills
            after = None if spared else dice.uniform(0, 1.1 * tally.seconds_unkilled)
            if live(command.command(inputs, out), out, tally, kill_after=after):
                break
            tally.kills += 1
        left = left_behind(out)
        names = {*expected, *left} - drawn
        tally.different += [f"run {tally.runs}: {name}" for name in names if expected.get(name) != left.get(name)]
    return tally


_MAKING = threading.Lock()


def attacked(name: str, directory: Path, options: argparse.Namespace, kills: int) -> dict[str, Any]:
    """The tally of one command; one that fails when nothing kills it is left out."""
    command, place, inputs = COMMANDS[name], directory / name.replace(" ", "-"), directory / "in"
    place.mkdir()

    def run(words: list[str]) -> None:
        assert live(words, directory / "made", Tally(), kill_after=None)

    try:
        with _MAKING:
            make_inputs(inputs, command.needs, run)
        dice = random.Random(f"{options.seed}:{name}")
        tally = attack(command, place, inputs=inputs, kills=kills, dice=dice, most=options.most)
    except RuntimeError as error:
        tally = Tally(left_out=" ".join(str(error).split())[-300:])
    shutil.rmtree(place, ignore_errors=True)
    print(name, json.dumps(vars(tally)), flush=True)
    return vars(tally)


def main() -> None:
    """Kill every command and write the tallies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=120, help="over all commands")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="commands, comma-separated")
    parser.add_argument("--but", default="", help="all commands but these, comma-separated")
    parser.add_argument("--jobs", type=int, default=1, help="commands at a time")
    parser.add_argument("--most", type=float, default=600.0, help="seconds of a command that is not left out")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--hold", type=Path, help="hold a run there as the workbench does; the benchmark starts this")
    parser.add_argument("--ask", type=Path, help="ask a server of tools there; the benchmark starts this")
    parser.add_argument("--query", type=Path, help="ask a server of functions there; the benchmark starts this")
    options = parser.parse_args()
    if options.hold is not None:
        return hold_a_run(options.hold)
    if options.ask is not None:
        return ask_a_server(options.ask)
    if options.query is not None:
        return query_functions(options.query)
    chosen = options.only.split(",") if options.only else [one for one in COMMANDS if one not in options.but.split(",")]
    shares = [options.kills // len(chosen) + (number < options.kills % len(chosen)) for number in range(len(chosen))]
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="vesalius-kills-") as directory:
        make_files(Path(directory, "in"))
        with ThreadPoolExecutor(options.jobs) as pool:
            waiting = [pool.submit(attacked, *args) for args in _cases(chosen, Path(directory), options, shares)]
            for name, one in zip(chosen, waiting, strict=True):
                rows[name] = one.result()
                write_tallies(options, rows)
    return None


def _cases(names: list[str], directory: Path, options: argparse.Namespace, shares: list[int]) -> list[tuple[Any, ...]]:
    return [(name, directory, options, share) for name, share in zip(names, shares, strict=True)]


def write_tallies(options: argparse.Namespace, rows: dict[str, Any]) -> None:
    """The tallies so far, each with its machine; those of other commands in the file stay."""
    before = json.loads(options.out.read_text())["commands"] if options.out and options.out.is_file() else {}
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    rows = {**before, **{name: {**row, "machine": machine} for name, row in rows.items()}}
    totals = {
        "kills": sum(row["kills"] for row in rows.values()),
        "runs": sum(row["runs"] for row in rows.values()),
        "commands": len(rows),
        "different": sum(len(row["different"]) for row in rows.values()),
        "orphans": sum(len(row["orphans"]) for row in rows.values()),
        "left_out": [name for name, row in rows.items() if row["left_out"]],
    }
    if options.out:
        document = {"benchmark": "kills", "seed": options.seed, "totals": totals, "commands": rows}
        write_json(options.out, document)
    else:
        print(json.dumps(totals))


if __name__ == "__main__":
    main()
