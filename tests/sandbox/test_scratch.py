"""The scratch directory on disk: checked and removed whatever it contains."""

import os
from pathlib import Path

from vesalius.sandbox.scratch import MAX_FILES, clear, overfull


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
