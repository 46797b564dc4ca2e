"""What a command ends with when its work does not: one line and the right exit code."""

import pytest

from tests.cli.conftest import Vesalius
from vesalius import api
from vesalius.errors import BadInput, Failed


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BadInput("colour 'x' does not exist;\n choose another"), 2, "colour 'x' does not exist; choose another"),
        (Failed("out of paper; buy some"), 1, "out of paper; buy some"),
        (KeyboardInterrupt(), 130, "interrupted; the same command starts from the beginning"),
        (OSError(28, "No space left on device", "a.json"), 1, "a.json: No space left on device"),
        (
            OSError(28, "No space left on device"),
            1,
            "stdout: could not be written (No space left on device); free some space or write elsewhere",
        ),
        (MemoryError(), 1, "out of memory; use fewer prompts (--n) or a smaller model"),
    ],
)
def test_exit_codes(
    vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    def fail(**options: object) -> None:
        raise error

    monkeypatch.setattr(api, "specimens", fail)
    got = vesalius("specimens", "--json")
    assert (got.code, got.out, got.err) == (code, "", f"vesalius: {line}\n")


def test_programming_errors_are_not_dressed_up(vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(api, "specimens", fail)
    with pytest.raises(ZeroDivisionError):
        vesalius("specimens")


def test_a_name_that_is_not_utf_8_is_refused_in_one_line(vesalius: Vesalius) -> None:
    left = vesalius("sweep", "arithmetic", "-b", "caf\udce9.jsonl")
    assert (left.code, left.out) == (2, "")
    assert left.err == "vesalius: 'caf\\udce9.jsonl': is not UTF-8, which results are written in; rename the file\n"
