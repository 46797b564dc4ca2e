"""What a program writes to its report: bounded before it is parsed, and clean once it is kept."""

import json
import math
import time

import pytest

from vesalius.sandbox import Sandbox
from vesalius.sandbox.calls import SPARE_LINES, RecordReader, parse
from vesalius.sandbox.program import STARTED

DEFINED = "import os, json, time\n"


def reader(expected: int = 3, max_line: int = 1000, max_bytes: int = 10_000) -> RecordReader:
    return RecordReader(expected, max_line, max_bytes)


def test_invalid_records_are_left_out() -> None:
    found = reader(max_line=200_000, max_bytes=1_000_000)
    found.feed(b'{"value": 1}\nnot json\n[1]\n\xff\n' + b"[" * 100_000 + b'\n{"val')
    found.feed(b'ue": 2}\nhalf')
    assert found.records == [{"value": 1}, {"value": 2}]
    assert not found.exceeded


def test_lines_are_bounded_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve megabytes of records: no more of them is parsed than could be honest."""
    parsed: list[bytes] = []
    monkeypatch.setattr("vesalius.sandbox.calls.parse", lambda line: parsed.append(line))
    found = reader(max_bytes=64 << 20)
    for _ in range(12):
        found.feed(b"{}\n" * (1 << 20))
    assert found.exceeded
    assert len(parsed) == 3 + SPARE_LINES


@pytest.mark.parametrize("data", [b"x" * 1001, b'{"value": "' + b"x" * 1000 + b'"}\n', b"{}\n" * 4000])
def test_a_long_line_and_too_many_bytes_are_refused(data: bytes) -> None:
    found = reader(expected=10_000)
    found.feed(data)
    assert found.exceeded
    assert max((len(str(record)) for record in found.records), default=0) < 1000


def test_empty_lines_are_no_records() -> None:
    found = reader()
    before = found.last_record
    found.feed(b"\n\n\n")
    assert (found.last_record, found.records) == (before, [])


def test_the_pace_begins_with_the_program_and_not_with_its_fork() -> None:
    """A fork and its isolation take seconds on a busy machine; only the first line can say that they are over."""
    found = reader()
    assert found.last_record == math.inf
    line = json.dumps(STARTED).encode() + b"\n"
    found.feed(line)
    began = found.last_record
    assert began <= time.monotonic()
    assert found.records == []
    found.feed(b'{"defined": true}\n')
    assert began <= found.last_record
    late = reader()
    late.feed(b"\n" + line)
    assert late.records == [{}], "a record like any other that says nothing"


def test_texts_can_be_written_and_nesting_ends() -> None:
    deep = "[" * 900 + "]" * 900
    record = parse(f'{{"value": {{"\\ud800": ["\\udc00", {deep}]}}, "error": "\\udfff", "more": 1}}'.encode())
    assert record is not None
    assert json.dumps(record, ensure_ascii=False).encode()
    assert set(record) == {"value", "error"}
    assert len(json.dumps(record)) < 300


def test_a_lone_surrogate_does_not_leave_the_sandbox(sandbox: Sandbox) -> None:
    forged = 'os.write(4, b\'{"error": "\\\\ud800", "value": "\\\\ud800"}\\n\')\nos._exit(0)'
    for code in ("raise ValueError('\ud800')", "result = '\ud800'", f"import os\n{forged}"):
        outcome = sandbox.execute(code)
        repr(outcome).encode()
        json.dumps([outcome.result, outcome.error, outcome.stdout], ensure_ascii=False).encode()


def test_what_stopped_a_program_is_not_its_own_word(sandbox: Sandbox) -> None:
    for word in ("wall", "cpu", "output", "crash"):
        forged = json.dumps({"error": "x", "stopped_by": word}) + "\n"
        outcome = sandbox.execute(f"import os\nos.write(4, {forged.encode()!r})\nos._exit(0)")
        assert (outcome.error, outcome.stopped_by, outcome.reported_limit) == ("x", None, None)


def test_a_timeout_is_believed_only_when_the_time_has_passed(sandbox: Sandbox) -> None:
    forged = json.dumps({"error": "x", "stopped_by": "wall"}) + "\n"
    code = f"import os\ndef f(x):\n    os.write(4, {forged.encode()!r})\n    return x"
    results = sandbox.call_many(code, "f", [1, 2, 3], per_call_seconds=60)
    assert [result.stopped_by for result in results] == [None, None, None]


def test_newlines_do_not_reset_the_pace(sandbox: Sandbox) -> None:
    code = """
import os, time
def f(x):
    while x == 1:
        try:
            os.write(4, b"\\n")
            time.sleep(0.2)
        except BaseException: pass
    return x
"""
    results = sandbox.call_many(code, "f", [0, 1, 2], per_call_seconds=2, total_seconds=120)
    assert [result.value for result in results] == [0, None, 2]
    assert results[1].stopped_by == "wall"


def test_a_flood_of_records_is_stopped(sandbox: Sandbox) -> None:
    code = "import os\ndef f(x):\n    while True: os.write(4, b'{}\\n' * 1000)"
    results = sandbox.call_many(code, "f", [0, 1], per_call_seconds=30)
    assert len(results) == 2
    assert all(result.value is None for result in results)
