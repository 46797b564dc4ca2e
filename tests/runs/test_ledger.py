"""The file of events: nothing that was written is lost, whatever happened to its last line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vesalius.errors import BadInput, Failed, Note
from vesalius.runs.ledger import Ledger, read_ledger

HOLDS = """
import sys
from pathlib import Path
from vesalius.runs.ledger import Ledger
with Ledger(Path(sys.argv[1])):
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three records, the last one with letters of several bytes."""
    with Ledger(tmp_path / "events.jsonl") as ledger:
        for number, word in enumerate(["one", "two", "größer → 😊"]):
            ledger.append("said", number=number, word=word)
    return tmp_path / "events.jsonl"


def words(path: Path) -> list[str]:
    with Ledger(path) as ledger:
        return [record["word"] for record in ledger.records]


def test_records_come_back_in_order(path: Path) -> None:
    assert words(path) == ["one", "two", "größer → 😊"]
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(line["event"], line["number"]) for line in lines] == [("said", 0), ("said", 1), ("said", 2)]


def test_cut_anywhere_in_its_last_record_only_that_is_lost(path: Path) -> None:
    data = path.read_bytes()
    last = data[:-1].rindex(b"\n") + 1
    for size in range(last, len(data)):
        path.write_bytes(data[:size])
        assert words(path) == ["one", "two"]
        assert path.read_bytes() == data[:last]
        with Ledger(path) as ledger:
            ledger.append("said", word="again")
        assert words(path) == ["one", "two", "again"]


@pytest.mark.parametrize("garbage", [b"\0\0\0\0", b"\xff\xfe\n", b"{}\n", b"[1]\n", b"\n", b'{"event": 3}\n', b"x\0\n"])
def test_garbage_at_the_end_is_dropped(path: Path, garbage: bytes) -> None:
    data = path.read_bytes()
    path.write_bytes(data + garbage)
    assert words(path) == ["one", "two", "größer → 😊"]
    assert path.read_bytes() == data


@pytest.mark.parametrize(("damage", "line"), [(b"garbage\n", 2), (b"\n", 2), (b'{"no": "event"}\n', 2)])
def test_damage_before_the_end_is_refused(path: Path, damage: bytes, line: int) -> None:
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + damage + second + third)
    before = path.read_bytes()
    with pytest.raises(BadInput, match=f"line {line}: not a record"):
        Ledger(path)
    assert path.read_bytes() == before
    path.write_bytes(first + damage + second[: len(second) // 2])
    with pytest.raises(BadInput, match=f"line {line}: not a record"):
        Ledger(path)


def test_one_process_at_a_time(path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(Failed, match="another process is working on this run"):
        Ledger(path)
    holder.communicate("")
    assert len(words(path)) == 3


def test_what_the_disk_refuses_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(path) as ledger:
        write = os.write

        def half(file: int, data: bytes) -> int:
            return write(file, data[: len(data) // 2])

        def full(file: int, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        for broken, reason in ((full, "No space left on device"), (half, "only part of a record fitted")):
            monkeypatch.setattr(os, "write", broken)
            with pytest.raises(Failed, match=f"could not be written .{reason}"):
                ledger.append("said", word="four")
            monkeypatch.undo()
        assert len(ledger.records) == 3
    assert len(words(path)) == 3
    with pytest.raises(Failed, match="cannot be opened"):
        Ledger(path / "below")


def test_an_edited_line_is_refused_by_its_number(path: Path) -> None:
    """A change that is still JSON, at every place of every line where there is one."""
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        edited = line.replace(b'"number": ', b'"number": 1')
        path.write_bytes(b"".join([*lines[: number - 1], edited, *lines[number:]]))
        with pytest.raises(BadInput, match=rf"line {number}: does not match its checksum"):
            Ledger(path)


@pytest.mark.parametrize(("kept", "refused"), [([0, 2], 2), ([1, 2], 1), ([0, 2, 1], 2), ([0, 0, 1, 2], 2)])
def test_removed_and_moved_lines_are_refused(path: Path, kept: list[int], refused: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[index] for index in kept))
    with pytest.raises(BadInput, match=f"line {refused}: does not match"):
        Ledger(path)


def test_a_line_without_a_checksum_cannot_be_added(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"event": "said", "word": "forged"}\n')
    with pytest.raises(BadInput, match="line 4: has no checksum"):
        Ledger(path)


def test_a_ledger_without_checksums_is_read_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event": "said", "word": "old"}\n{"event": "said", "word": "older"}\n')
    with pytest.warns(Note, match="without checksums"):
        ledger = Ledger(path)
    with ledger:
        assert [record["word"] for record in ledger.records] == ["old", "older"]
        ledger.append("said", word="new")
    assert words(path) == ["old", "older", "new"]
    path.write_bytes(path.read_bytes().replace(b"older", b"elder"))  # what came before is checked from then on
    with pytest.raises(BadInput, match="line 3"):
        Ledger(path)


def test_half_a_character_does_not_stop_a_run(tmp_path: Path) -> None:
    with Ledger(tmp_path / "events.jsonl") as ledger:
        ledger.append("failed", reason="\ud800 and more")
    assert [record["reason"] for record in read_ledger(tmp_path / "events.jsonl")] == ["? and more"]
