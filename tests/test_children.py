"""What other users of the machine and other processes of this one see of us while each face runs: command lines and
environments of every process that a face starts hold no key, no token and no secret of a client.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.processes import PATIENCE, until
from vesalius_backbones import local

KEY = "sk-not-to-be-seen-by-anybody"
ROOT = Path(__file__).parents[1]


@dataclass
class Seen:
    """The processes below one: command lines of all, the environments that the children were started with."""

    lines: set[bytes] = field(default_factory=set)
    children: dict[int, bytes] = field(default_factory=dict)

    def look(self, top: int) -> None:
        """Note what there is now."""
        parents = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
        below, found = {top}, True
        while found:
            found = {pid for pid, parent in parents.items() if parent in below} - below
            below |= found
        for pid in below:
            try:
                self.lines.add(Path(f"/proc/{pid}/cmdline").read_bytes())
                if pid != top:
                    self.children[pid] = Path(f"/proc/{pid}/environ").read_bytes() or self.children.get(pid, b"")
            except OSError:
                continue


@contextmanager
def watched(*words: object, directory: Path) -> Iterator[tuple["subprocess.Popen[bytes]", Seen]]:
    """A command whose environment holds keys, and what is seen of it."""
    keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "HF_TOKEN": KEY, "MY_PASSWORD": KEY}
    environment = {**os.environ, **keys, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "vesalius", *map(str, words)]
    with subprocess.Popen(
        command, env=environment, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process, Seen()
        finally:
            process.kill()


def seen_until(process: "subprocess.Popen[bytes]", seen: Seen, done: Callable[[], bool]) -> None:
    """Look again and again until something has happened."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        seen.look(process.pid)
        time.sleep(0.01)


SCRIPTED = f"scripted:{ROOT / 'examples' / 'hyve_frac_prevs.py'}"
WORKING = {
    "bench": ("bench", "circuits", "--ids", "41", "--jobs", "2", "--out", "out"),
    "agent": ("explain", "frac_prevs", "--scientist", "hyve", "--protocol", "paper", "--backbone", SCRIPTED),
    "command": ("explain", "41", "--scientist", "command:/bin/cat"),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("face", WORKING)
def test_no_process_of_a_command_shows_a_key(face: str, tmp_path: Path) -> None:
    with watched(*WORKING[face], directory=tmp_path) as (process, seen):
        seen_until(process, seen, lambda: process.poll() is not None)
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert seen.children, said
    assert not [line for line in seen.lines if KEY.encode() in line]
    assert not [pid for pid, environment in seen.children.items() if KEY.encode() in environment]


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
