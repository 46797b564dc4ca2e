"""What other users of the machine and other processes of this one see of us while each face runs: command lines and
environments of every process that a face starts hold no key, no token, no passphrase and no secret of a client.

Of the workbench and its runs, `tests/workbench/test_access.py`.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from benchmarks.writing import make_files

from tests.backbones.fake_server import Response, chat, serving
from tests.processes import PATIENCE, until
from vesalius import api
from vesalius_backbones import local
from vesalius_bench.sealing import SCRYPT

KEY = "sk-not-to-be-seen-by-anybody"
ROOT = Path(__file__).parents[1]
#: Seconds of processor time: what a busy machine gives a process within `PATIENCE`, and more than any face here needs.
WORK, MOST_WORK = 1, 600
#: The flag of a process that has run no program since it was forked, and looks after which it never will.
FORKED_ONLY, LOOKS = 0x40, 100
#: What Python's own `platform` runs for a provider's client, which says in a header which processor this is.
UNAME = b"uname\0-p\0"


@dataclass
class Seen:
    """The processes below one: command lines of all, the environments that the children were started with."""

    lines: set[bytes] = field(default_factory=set)
    children: dict[int, bytes] = field(default_factory=dict)
    forked: Counter[int] = field(default_factory=Counter)

    def look(self, top: int) -> None:
        """Note what there is now."""
        for pid in _family(top):
            try:
                self.lines.add(line := Path(f"/proc/{pid}/cmdline").read_bytes())
                if pid != top and not self._starts(pid) and line != UNAME:
                    self.children[pid] = Path(f"/proc/{pid}/environ").read_bytes() or self.children.get(pid, b"")
            except OSError:
                continue

    def _starts(self, pid: int) -> bool:
        """Whether a process shows its parent's environment because its own program has not begun."""
        if int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6]) & FORKED_ONLY:
            self.forked[pid] += 1
            return self.forked[pid] < LOOKS
        return False


def _family(top: int) -> Iterator[int]:
    """A process and all below it."""
    yield top
    with suppress(OSError):
        for task in Path(f"/proc/{top}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))


@contextmanager
def watched(
    *words: object, directory: Path, stdin: int = subprocess.DEVNULL
) -> Iterator[tuple["subprocess.Popen[bytes]", Seen]]:
    """A command whose environment holds keys, and what is seen of it."""
    keys = dict.fromkeys(("OPENAI_API_KEY", "VESALIUS_API_KEY", "HF_TOKEN", "MY_PASSWORD", "API_KEY_2"), KEY)
    keys |= {"HTTP_PROXY": f"http://user:{KEY}@127.0.0.1:1", "NO_PROXY": "127.0.0.1,localhost"}
    environment = {**os.environ, **keys, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "vesalius", *map(str, words)]
    with subprocess.Popen(
        command, env=environment, cwd=directory, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process, Seen()
        finally:
            process.kill()


def seen_until(process: "subprocess.Popen[bytes]", seen: Seen, done: Callable[[], bool]) -> None:
    """Look again and again until something has happened; give up when nothing is worked on, however slow it is."""
    worked, since = 0.0, time.monotonic()
    while not done():
        seen.look(process.pid)
        if abs((now := _worked(process.pid)) - worked) > WORK:
            worked, since = now, time.monotonic()
        assert time.monotonic() < since + PATIENCE, f"less than {WORK} s of work in {PATIENCE}"
        assert now < MOST_WORK
        time.sleep(0.02)


def _worked(top: int) -> float:
    """Seconds of processor time of a process, all below it, and those of them that ended."""
    ticks = 0
    for pid in _family(top):
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


SCRIPTED = f"scripted:{ROOT / 'examples' / 'hyve_frac_prevs.py'}"
#: The commands of each face that ends by itself; {league} and {provider} are made for those that name them.
WORKING = {
    "bench": "bench circuits --ids 41 --jobs 2 --out out",
    "ray": "bench circuits --ids 41 --jobs 1 --engine ray --out out",
    "agent": f"explain frac_prevs --scientist hyve --protocol paper --backbone {SCRIPTED}",
    "command": "explain 41 --scientist command:/bin/cat",
    "provider": "explain 41 --scientist hyve --backbone compatible:m --base-url {provider} --out out",
    "functions": "bench functions --category strings --count 1 --jobs 1 --interpreter command:/bin/cat --out out",
    "league": "league score {league} empty --interpreter command:/bin/cat --passphrase-file secret.txt",
}
PASSPHRASE = "not to be seen by anybody"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("face", WORKING)
def test_no_process_of_a_command_shows_a_key(face: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, places = WORKING[face], {}
    with ExitStack() as stack:
        if "{league}" in words:
            places["league"] = str(league_in(tmp_path, monkeypatch))
        if "{provider}" in words:
            places["provider"] = f"{stack.enter_context(serving(Response(chat('no'), wait=0.05))).url}/v1"
        process, seen = stack.enter_context(watched(*words.format(**places).split(), directory=tmp_path))
        seen_until(process, seen, lambda: process.poll() is not None)
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert seen.children or face == "provider", said
    shown = b"\0".join([*seen.lines, *seen.children.values()])
    assert not [secret for secret in (KEY, PASSPHRASE) if secret.encode() in shown]
    assert [line for line in seen.lines if b"vesalius" in line], said


def league_in(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A league of one circuit and one function of each category, with a submission whose interpreter is a program."""
    pytest.importorskip("cryptography")
    monkeypatch.setitem(SCRYPT, "n", 16)
    make_files(place / "in")
    (place / "secret.txt").write_text(f"{PASSPHRASE}\n")
    made = {"circuits": 1, "functions": 1, "specimens": place / "in" / "trained", "passphrase": PASSPHRASE}
    api.make_league(out=place / "league", progress=False, **made)
    api.submit_league(place / "league", scientist="empty", interpreter="command:/bin/cat", progress=False)
    return place / "league"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_process_of_an_agent_s_server_shows_a_key(tmp_path: Path) -> None:
    """The server over standard input, while it runs code in its sandbox."""
    pytest.importorskip("mcp")
    calls = tmp_path / "run" / "events.jsonl"
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    run_code = {"name": "run_code", "arguments": {"specimen": "41", "code": "result = 1"}}
    requests: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": run_code},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in requests)
    with watched("mcp", "--run", "run", directory=tmp_path, stdin=subprocess.PIPE) as (process, seen):
        assert process.stdin is not None
        process.stdin.write(lines.encode())
        process.stdin.flush()
        ended = lambda: process.poll() is not None or (calls.is_file() and b'"run_code"' in calls.read_bytes())  # noqa: E731
        seen_until(process, seen, ended)
        assert process.poll() is None
    assert seen.children
    assert KEY.encode() not in b"\0".join([*seen.lines, *seen.children.values()])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_process_of_a_server_shows_a_key_or_a_secret(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    clients = tmp_path / "run" / "clients.json"
    with watched("mcp", "--http", "--port", "0", "--run", "run", directory=tmp_path) as (process, seen):
        seen_until(process, seen, lambda: clients.is_file() or process.poll() is not None)
        until(lambda: (tmp_path / "run").is_dir())
        seen.look(process.pid)
    secrets = [secret.encode() for secret in json.loads(clients.read_text())["clients"].values()]
    assert secrets
    shown = [*seen.lines, *seen.children.values()]
    assert not [text for text in shown if any(secret in text for secret in (*secrets, KEY.encode()))]
    served = ("functions", "serve", "--category", "strings", "--count", "1", "--out", "served")
    with watched(*served, directory=tmp_path) as (process, seen):
        seen_until(
            process, seen, lambda: any((tmp_path / "served").glob("*/function.py")) or process.poll() is not None
        )
        seen.look(process.pid)
    assert not [text for text in (*seen.lines, *seen.children.values()) if KEY.encode() in text]


def test_a_local_model_is_served_without_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    given: list[dict[str, str]] = []

    def never(command: list[str], **options: dict[str, str]) -> None:
        given.append(options["env"])
        raise FileNotFoundError

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(local.subprocess, "Popen", never)
    with pytest.raises(FileNotFoundError):
        local.LocalServer(tmp_path / "model.gguf")
    (environment,) = given
    assert KEY not in environment.values()
    assert environment["PATH"] == os.environ["PATH"]
