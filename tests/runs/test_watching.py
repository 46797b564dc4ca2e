"""A run is watched from its files: stages, results, verdicts and costs as recorded, however broken the files are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vesalius as ves
from tests.processes import PATIENCE
from tests.report.explanations import frac_prevs
from tests.runs.conversations import write_conversation
from vesalius import api
from vesalius.errors import BadInput, Failed
from vesalius.files import read_json
from vesalius.progress import silent
from vesalius.runs import directory
from vesalius.runs.directory import UNDER_WAY, under_way, worker_of
from vesalius.runs.listing import ResultIndex
from vesalius_backbones.runs.conversation import LONGEST, Conversation
from vesalius_backbones.runs.watching import Watcher

#: Marks a directory in another process, says so, and works until its input ends.
WORKER = """
import sys
from pathlib import Path
from vesalius.progress import silent
from vesalius.runs.directory import under_way
with under_way(Path(sys.argv[1]), silent) as tell:
    tell("observing L0H1", 3, 12)
    print("working", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    write_conversation(tmp_path / "run" / "calls.jsonl")
    return tmp_path / "run"


def worker(place: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WORKER, str(place)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    return process


def test_calls_are_told_stage_by_stage(run: Path) -> None:
    watched = api.watch(run)
    assert (watched.state, watched.n_calls) == ("stopped", 8)
    assert [(call.stage, call.component, call.attempt) for call in watched.calls[:4]] == [
        ("observe", "L0_MLP", None),
        ("observe", "L0_MLP", None),
        ("hypothesise", "L0_MLP", 1),
        ("validate", "L0_MLP", 1),
    ]
    first, second = watched.calls[:2]
    assert first.prompt is not None
    assert "Prompt of L0_MLP observation." in first.prompt.text
    assert second.prompt is None
    code = first.tools[0]
    assert (code.is_code, code.given.text) == (True, "result = 1 + 1.4")
    assert code.result is not None
    assert code.result.text == "result = 2.4"
    assert second.answer["observation"].text == "It marks x."
    assert watched.calls[3].tools[0].verdict == "refuted"
    assert watched.calls[7].failure == "no answer in 120 s"


def test_hypotheses_stand_as_the_rule_says(run: Path) -> None:
    stood = [(one.attempt, one.hypothesis.text, one.verdict) for one in api.watch(run).hypotheses]
    assert stood == [(1, "It reads y.", "refuted"), (2, "It marks x.", None)]


def test_use_is_summed_by_stage_and_component(run: Path) -> None:
    usage = api.watch(run).usage
    assert usage.backbone == "openai:gpt-5.4"
    assert {stage.stage: (stage.calls, stage.cost) for stage in usage.stages} == {
        "observe": (2, pytest.approx(1.0)),
        "hypothesise": (2, pytest.approx(1.0)),
        "validate": (4, None),
    }
    # Seven of the eight calls were answered, with 100 tokens in and 10 out each.
    assert (usage.total.input_tokens, usage.total.output_tokens) == (700, 70)


def test_only_what_was_added_is_read_again(run: Path) -> None:
    calls = run / "calls.jsonl"
    lines = calls.read_bytes().splitlines(keepends=True)
    calls.write_bytes(b"".join(lines[:4]) + lines[4][:50])
    conversation = Conversation(calls)
    conversation.update()
    assert len(conversation.calls) == 2
    with calls.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(lines[4][50:] + b"".join(lines[5:]))
    conversation.update()
    assert len(conversation.calls) == 8
    assert conversation.problems == []
    calls.write_bytes(b"".join(lines[:2]))
    conversation.update()
    assert len(conversation.calls) == 1


def test_long_texts_are_cut_and_can_be_had_whole(tmp_path: Path) -> None:
    note = "n" * 1_000_000
    write_conversation(tmp_path / "calls.jsonl", note=note, result="r" * 50_000, code="c" * 20_000)
    watcher = Watcher()
    watched = watcher.look(tmp_path)
    shown = watched.calls[1].answer["observation"]
    assert (len(shown.text), shown.length) == (LONGEST, 1_000_000)
    assert len(watched.model_dump_json()) < 100_000
    assert watcher.text(tmp_path, case=None, number=1, part="answer.observation") == note
    assert watcher.text(tmp_path, case=None, number=0, part="tool.0.result") == "r" * 50_000
    assert watcher.text(tmp_path, case=None, number=0, part="tool.0.given") == "c" * 20_000
    with pytest.raises(BadInput, match="part 'banana': not in call 0"):
        watcher.text(tmp_path, case=None, number=0, part="banana")
    with pytest.raises(BadInput, match="call 99: there are 8 calls"):
        watcher.text(tmp_path, case=None, number=99, part="prompt")


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON",
        b'{"kind": "outcome"}',
        b"[1]",
        b'{"kind": "outcome", "request": 3, "outcome": {}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"kind": ["asked"]}',
    ],
)
def test_broken_lines_are_told_and_left_out(line: bytes, run: Path) -> None:
    calls = run / "calls.jsonl"
    before = calls.read_bytes().splitlines(keepends=True)
    calls.write_bytes(b"".join([*before[:2], line + b"\n", *before[2:]]))
    watched = api.watch(run)
    assert watched.n_calls == 8
    assert watched.problems == ("calls.jsonl, line 3: not a record of a call; it is left out",)


def test_altered_lines_are_told(run: Path) -> None:
    calls = run / "calls.jsonl"
    calls.write_text(calls.read_text().replace("It marks x.", "It marks z.", 1))
    assert api.watch(run).problems == ("calls.jsonl, line 4: altered since it was recorded",)


def test_links_that_lead_out_are_refused(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "explanation.json").write_text(json.dumps(frac_prevs().as_data()))
    os.symlink(run / "calls.jsonl", other / "calls.jsonl")
    with pytest.raises(BadInput, match="is not a file of this run"):
        api.watch(other)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="nothing to watch"):
        api.watch(tmp_path / "empty")


def test_a_case_of_a_benchmark_is_watched(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "calls").mkdir()
    (run / "calls.jsonl").rename(run / "calls" / "8.jsonl")
    settings = {"benchmark": "circuits", "scientist": "hyve", "specimens": {"3": "x", "8": "y"}}
    (run / "run.json").write_text(json.dumps({"schema": 1, "settings": settings, "names": {"8": "vowel"}}))
    (run / "events.jsonl").write_text("")
    read: list[str] = []
    monkeypatch.setattr(directory, "read_json", lambda path: (read.append(path.name), read_json(path))[1])
    watched = api.watch(run)
    assert read == ["run.json"]
    assert (watched.case, watched.n_calls, watched.specimen) == ("8", 8, "bench circuits, vowel")
    assert [(case.case, case.name) for case in watched.cases] == [("3", "3"), ("8", "vowel")]
    assert api.watch(run, case="3").n_calls == 0
    for case in ("9", "../../etc", ""):
        with pytest.raises(BadInput, match="not in this run; it has 3, 8"):
            api.watch(run, case=case)


@pytest.mark.parametrize("kind", ["link", "large"])
@pytest.mark.parametrize("name", ["run.json", "explanation.json"])
def test_what_lies_elsewhere_or_is_too_large_is_not_read(name: str, kind: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "calls.jsonl").touch()
    if kind == "link":
        settings = {"benchmark": "circuits", "specimens": {"secret": "x"}}
        (tmp_path / "outside.json").write_text(json.dumps({"schema": 1, "settings": settings}))
        os.symlink(tmp_path / "outside.json", run / name)
    else:
        with (run / name).open("wb") as file:
            file.truncate(2**33)
    with pytest.raises(BadInput, match=r"is not a file of this run|has 8,192 MB") as refused:
        api.watch(run)
    assert "secret" not in str(refused.value)


def test_a_process_at_work_is_seen_and_its_death_too(tmp_path: Path) -> None:
    process = worker(tmp_path)
    seen = worker_of(tmp_path)
    assert seen is not None
    assert (seen.pid, seen.here, seen.step, seen.done, seen.total) == (process.pid, True, "observing L0H1", 3, 12)
    with pytest.raises(Failed, match="another process is working on it"), under_way(tmp_path, silent):
        pass
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert (tmp_path / UNDER_WAY).exists()
    assert worker_of(tmp_path) is None
    with under_way(tmp_path, silent):
        assert worker_of(tmp_path) is not None
        with pytest.raises(Failed, match="another process"), under_way(tmp_path, silent):
            pass
    assert not (tmp_path / UNDER_WAY).exists()


def test_a_link_in_place_of_the_mark_is_not_followed(tmp_path: Path) -> None:
    other, run = tmp_path / "other", tmp_path / "run"
    other.mkdir()
    run.mkdir()
    (tmp_path / "letter.txt").write_text("keep me")
    os.symlink(tmp_path / "letter.txt", run / UNDER_WAY)
    with pytest.raises(Failed, match="cannot be opened"), under_way(run, silent):
        pass
    assert (tmp_path / "letter.txt").read_text() == "keep me"
    process = worker(other)
    (run / UNDER_WAY).unlink()
    os.symlink(other / UNDER_WAY, run / UNDER_WAY)
    assert worker_of(other) is not None
    assert worker_of(run) is None
    process.kill()
    process.communicate(timeout=PATIENCE)


def test_the_word_of_a_file_alone_names_no_process(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / UNDER_WAY).write_text(json.dumps({"pid": os.getpid(), "started": 1.0, "step": "<b>"}))
    assert worker_of(tmp_path / "run") is None
    assert [row.state for row in ves.results(tmp_path).results] == ["unfinished"]


def test_a_list_reads_again_only_what_changed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vesalius.runs import listing

    top = run.parent
    frac_prevs().save(top / "explained")
    index = ResultIndex(top)
    first = index.changes(0)
    assert {row.path: row.state for row in first.rows} == {"run": "unfinished", "explained": "finished"}
    read: list[str] = []
    original = listing._described
    monkeypatch.setattr(listing, "_described", lambda place, *rest: read.append(place.name) or original(place, *rest))
    assert index.changes(first.version).rows == ()
    process = worker(run)
    running = index.changes(first.version)
    assert [(row.path, row.state, row.figures, row.done, row.total) for row in running.rows] == [
        ("run", "running", "observing L0H1", 3, 12)
    ]
    process.kill()
    process.communicate(timeout=PATIENCE)
    stopped = index.changes(running.version)
    assert [(row.path, row.state, row.has_calls) for row in stopped.rows] == [("run", "unfinished", True)]
    (top / "explained" / "explanation.json").unlink()
    assert index.changes(stopped.version).gone == ("explained",)
    assert set(read) == {"run"}
    assert len(index.changes(999).rows) == 1  # a version of another server: everything
