"""The scratch directory on disk: looked at and cleared away whatever lies in it."""

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


def test_deep_closed_and_linked_things_are_cleared_away(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    place = tmp_path / "place"
    place.mkdir()
    nested(place, 1500)
    (place / "link").symlink_to(outside)
    (place / "directory").mkdir()
    (place / "directory" / "inner").mkdir(mode=0)
    (place / "directory" / "file").write_text("x")
    clear(str(place))
    assert not place.exists()
    assert (outside / "kept").read_text() == "x"


def test_too_much_is_seen(tmp_path: Path) -> None:
    assert not overfull(str(tmp_path), 1 << 20)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"x" * (2 << 20))
    assert overfull(str(tmp_path), 1 << 20)
    assert not overfull(str(tmp_path), 4 << 20)


def test_too_many_are_seen(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        (tmp_path / str(number)).touch()
    assert overfull(str(tmp_path), 1 << 30)


def test_what_cannot_be_looked_at_is_too_much(tmp_path: Path) -> None:
    nested(tmp_path, 30)
    assert overfull(str(tmp_path), 1 << 30)
    clear(str(tmp_path))


def test_what_is_not_there_is_not_too_much(tmp_path: Path) -> None:
    assert not overfull(str(tmp_path / "gone"), 1)
