"""The scratch directory on disk: checked and removed whatever it contains."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.sandbox.conftest import LAYERS, SMALL, opened
from vesalius.sandbox.filesystem import MAX_FILES, clear, nameless_bytes, overfull


def nested(path: Path, depth: int) -> None:
    """Directories deeper than any path can name."""
    here = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.mkdir("last", mode=0, dir_fd=here)
    os.close(here)


def test_deep_unreadable_and_linked_entries_are_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    scratch = tmp_path / "place"
    scratch.mkdir()
    nested(scratch, 1500)
    (scratch / "link").symlink_to(outside)
    (scratch / "directory").mkdir()
    (scratch / "directory" / "inner").mkdir(mode=0)
    (scratch / "directory" / "file").write_text("x")
    clear(str(scratch))
    assert not scratch.exists()
    assert (outside / "kept").read_text() == "x"


def test_too_many_bytes(tmp_path: Path) -> None:
    assert not overfull(str(tmp_path), 1 << 20)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"x" * (2 << 20))
    assert overfull(str(tmp_path), 1 << 20)
    assert not overfull(str(tmp_path), 4 << 20)


def test_too_many_files(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        (tmp_path / str(number)).touch()
    assert overfull(str(tmp_path), 1 << 30)


def test_an_unreadable_directory_counts_as_overfull(tmp_path: Path) -> None:
    nested(tmp_path, 30)
    assert overfull(str(tmp_path), 1 << 30)
    clear(str(tmp_path))


def test_a_missing_directory_is_not_overfull(tmp_path: Path) -> None:
    assert not overfull(str(tmp_path / "gone"), 1)


UNLINKED = """
import os
held = []
for number in range(16):
    file = os.open("x", os.O_CREAT | os.O_RDWR)
    os.unlink("x")
    os.write(file, b"x" * (1 << 20))
    held.append(file)
"""
NAMELESS = """
import os
held = []
for number in range(16):
    file = os.open(".", os.O_TMPFILE | os.O_RDWR)
    os.write(file, b"x" * (1 << 20))
    held.append(file)
"""
MAPPED = """
import mmap, os
held = []
for number in range(16):
    file = os.open("x", os.O_CREAT | os.O_RDWR)
    os.unlink("x")
    os.write(file, b"x" * (1 << 20))
    held.append(mmap.mmap(file, 1 << 20))
    os.close(file)
"""
#: Gives the check, which runs every few milliseconds, time to look.
WAIT = "\nimport time\ntime.sleep(60)\nresult = len(held)"


@pytest.mark.parametrize("code", [UNLINKED, NAMELESS, MAPPED], ids=["unlinked", "nameless", "mapped"])
@pytest.mark.parametrize("layers", LAYERS.values(), ids=list(LAYERS))
def test_files_without_a_name_count(layers: tuple[str, ...], code: str) -> None:
    for sandbox in opened(layers, limits=SMALL):
        outcome = sandbox.execute(code + WAIT)
        assert outcome.result is None
        if sandbox.isolation.namespaces:
            assert "No space left" in str(outcome.error)
        else:
            assert outcome.stopped_by == "output", outcome.error
            assert "scratch" in str(outcome.error)


def test_nameless_bytes_of_processes(tmp_path: Path) -> None:
    before = nameless_bytes([os.getpid()])
    assert before is not None
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        file.write(b"x" * (1 << 20))
        file.flush()
        held = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[file.fileno()])
        with held:
            after = nameless_bytes([os.getpid(), held.pid])  # both have the file, which counts once
            assert after is not None
            assert after - before == os.fstat(file.fileno()).st_blocks * 512 >= 1 << 20
            assert nameless_bytes([held.pid]) == after - before
    assert nameless_bytes([2**22 + 1]) == 0


def test_nameless_bytes_of_a_thread_that_outlives_the_first() -> None:
    code = """
import ctypes, os, tempfile, threading, time
file = tempfile.TemporaryFile()
file.write(b"x" * (1 << 20))
file.flush()
def hold():
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        pass
    print("held", flush=True)
    time.sleep(600)
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        assert (nameless_bytes([process.pid]) or 0) >= 1 << 20
        process.kill()
