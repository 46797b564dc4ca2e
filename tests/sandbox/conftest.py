"""Sandboxes that several tests share, and the targets of hostile programs."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import vesalius
from vesalius.errors import Failed
from vesalius.sandbox import Limits, Sandbox

PACKAGE = Path(vesalius.__file__).parent
PRELOAD = "tests.sandbox.preload:names"
SECRET = "canary-6f1d2c"
SMALL = Limits(
    cpu_seconds=20,  # a fork alone has taken more than one on a busy machine
    wall_seconds=60,
    memory_bytes=256 << 20,
    output_bytes=2_000,
    result_bytes=20_000,
    file_bytes=2 << 20,
    scratch_bytes=4 << 20,
)
LAYERS = {"all layers": ("namespaces", "landlock", "seccomp"), "no namespaces": ("landlock", "seccomp")}


def opened(layers: tuple[str, ...], **options: Any) -> Iterator[Sandbox]:
    """A sandbox with at most these layers, or a skip that says what the machine lacks."""
    sandbox = Sandbox(layers=layers, **options)
    try:
        sandbox.__enter__()
    except Failed as refusal:
        if "cannot contain" not in str(refusal):
            raise
        pytest.skip(f"this machine cannot contain programs with {', '.join(layers)}: {refusal}")
    with sandbox:
        if "namespaces" in layers and not sandbox.isolation.namespaces:
            pytest.skip(f"no namespaces on this machine: {'; '.join(sandbox.isolation.missing)}")
        yield sandbox


@dataclass
class Target:
    """The files, process and servers that hostile programs attack."""

    values: dict[str, Any]
    victim: subprocess.Popen[bytes]
    directory: Path
    toolbox: Path
    connections: list[object] = field(default_factory=list)

    def untouched(self) -> bool:
        """Whether the files are unchanged, the victim lives and the servers got no connection."""
        directories = _names(self.directory) == FILES and _names(self.toolbox) == TOOLS
        return directories and not self.connections and self.victim.poll() is None and self._contents()

    def _contents(self) -> bool:
        return (self.directory / "canary").read_text() == SECRET


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


SPARES = ("canary", "canary.spare", "canary.rename", "canary.mode", "canary.delete")
FILES = sorted([*SPARES, "canary.py", "canary_module.py", "listening"])
TOOLS = ["helper.py", "notes", "way_out"]


@pytest.fixture
def target(tmp_path: Path, toolbox: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in SPARES:
        (outside / name).write_text(SECRET)
    for name in ("canary.py", "canary_module.py"):
        (outside / name).write_text(f"secret = {SECRET!r}\n")
    monkeypatch.setenv("VESALIUS_TEST_SECRET", SECRET)
    victim = subprocess.Popen(["sleep", "1000"])
    unix_socket = str(outside / "listening")
    servers = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
    # The length of a unix socket's path is limited; pytest's directories may be longer.
    here = os.getcwd()
    os.chdir(outside)
    servers[1].bind("listening")
    os.chdir(here)
    servers[1].listen()
    values = {
        "canary": str(outside / "canary"),
        "outside": str(outside),
        "key_directory": str(PACKAGE.parent / "vesalius_truth" / "key"),
        "key_file": str(PACKAGE.parent / "vesalius_truth" / "key" / "task.py"),
        "generator_file": str(PACKAGE.with_name("vesalius_functions") / "suite.py"),
        "data_directory": str(PACKAGE / "circuits" / "data"),
        "victim": victim.pid,
        "port": servers[0].getsockname()[1],
        "unix_socket": unix_socket,
        "variable": "VESALIUS_TEST_SECRET",
        "toolbox": str(toolbox),
    }
    target = Target(values, victim, outside, toolbox)
    for server in servers:
        threading.Thread(target=_listen, args=(server, target.connections), daemon=True).start()
    yield target
    for server in servers:
        server.close()
    victim.kill()
    victim.wait()
    # Later tests share the toolbox, and a program without isolation writes to it.
    for name in set(_names(toolbox)) - set(TOOLS):
        (toolbox / name).unlink()


def _listen(server: socket.socket, connections: list[object]) -> None:
    while True:
        try:
            connections.append(server.accept())
        except OSError:
            return


@pytest.fixture(scope="session")
def toolbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toolbox with a file, a directory, and a link that leads out of it."""
    directory = tmp_path_factory.mktemp("toolbox")
    directory.chmod(0o755)
    secret = tmp_path_factory.mktemp("elsewhere") / "secret"
    secret.write_text(SECRET)
    (directory / "notes").mkdir()
    (directory / "notes" / "read_me.txt").write_text("how to look inside\n")
    (directory / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    (directory / "way_out").symlink_to(secret)
    return directory


@pytest.fixture(scope="session")
def _open_sandboxes() -> Iterator[tuple[ExitStack, dict[str, Sandbox | str]]]:
    with ExitStack() as stack:
        yield stack, {}


@pytest.fixture(scope="session", params=list(LAYERS))
def sandbox(
    request: pytest.FixtureRequest, toolbox: Path, _open_sandboxes: tuple[ExitStack, dict[str, Sandbox | str]]
) -> Sandbox:
    """Contained, once with every layer and once as on a machine without namespaces; small limits.

    Both stay open to the end, or stay refused: each file of tests asks for the one and then for the other.
    """
    stack, found = _open_sandboxes
    if request.param not in found:
        options = {"preload": PRELOAD, "argument": [1, 2], "toolbox": toolbox, "limits": SMALL}
        try:
            found[request.param] = stack.enter_context(contextmanager(opened)(LAYERS[request.param], **options))
        except pytest.skip.Exception as lacking:
            found[request.param] = str(lacking)
    there = found[request.param]
    return pytest.skip(there) if isinstance(there, str) else there


def family(pid: int) -> set[int]:
    """A process and all its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(fields[1])
    members = {pid}
    while new := {child for child, parent in parents.items() if parent in members} - members:
        members |= new
    return members
