"""Runs from the page: what is refused, and what the command line is given."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

pytest.importorskip("fastapi")
from tests.no_room import no_room, read_only
from tests.processes import until, until_gone
from vesalius.errors import BadInput, Failed
from vesalius_workbench import jobs as module
from vesalius_workbench.jobs import JOB, LOG, Jobs, RunQuestion, _digest

SCRIPT = "scripted:model.py"
#: Stands in for the command: says what it was given, and works until it is interrupted.
CHILD = """
import signal, sys, time
try:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    open(sys.argv[1] + "/given", "w").write("\\n".join(sys.argv[2:]))
    while True:
        time.sleep(0.02)
except KeyboardInterrupt:
    print("vesalius: interrupted", file=sys.stderr)
    sys.exit(130)
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Jobs whose processes are stand-ins; stopped at the end."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    started = module.subprocess.Popen

    def stand_in(command: list[str], **options: Any) -> Any:
        out = next(word for word in command if word.startswith("--out=")).removeprefix("--out=")
        return started([sys.executable, str(script), out, *command[4:]], **options)

    monkeypatch.setattr(module.subprocess, "Popen", stand_in)
    monkeypatch.setattr(module, "PATIENCE", 100.0)  # a busy machine may stop a process for longer than ten seconds
    (tmp_path / "open").mkdir()
    opened = Jobs(tmp_path / "open", specimens=["org/model"], backbones=[SCRIPT])
    yield opened
    opened.close()


@pytest.mark.parametrize("module_name", ["json.py", "vesalius_workbench.py"])
def test_no_file_of_the_current_directory_stands_in_for_a_module(
    module_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is told keys. Its words are taken with a child that stops at the first module of its own."""
    (tmp_path / "open").mkdir()
    started: list[list[str]] = []

    class NeverStarted(OSError):
        strerror = "not started"

    def refuse(command: list[str], **options: Any) -> Any:
        started.append(command)
        raise NeverStarted

    with monkeypatch.context() as patched:
        patched.setattr(module.subprocess, "Popen", refuse)
        with pytest.raises(Failed, match="not started"):
            Jobs(tmp_path / "open", specimens=["org/model"], backbones=[SCRIPT]).start(question())
    (words,) = started
    (tmp_path / module_name).write_text("print('planted')")
    wanted = f"import {module_name.removesuffix('.py')}"
    place = words.index("-m")
    ran = subprocess.run([*words[:place], "-c", wanted], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert words[place + 1] == "vesalius_workbench.child"
    assert ran.stdout == ""


def question(**fields: Any) -> RunQuestion:
    return RunQuestion(**{"specimen": "frac_prevs", "backbone": SCRIPT, **fields})


def given(place: Path) -> list[str]:
    until(lambda: (place / "given").exists() and bool((place / "given").read_text()))
    return (place / "given").read_text().split("\n")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backbone": "scripted:/tmp/evil.py"}, "--allow-backbone scripted:/tmp/evil.py"),
        ({"backbone": "scripted:model.py;x"}, "runs a program"),
        ({"backbone": "banana:x"}, "give PROVIDER:MODEL"),
        ({"backbone": "openai:"}, "give PROVIDER:MODEL"),
        ({"backbone": None}, "needs a backbone"),
        ({"backbone": "local:../m.gguf"}, "not below the directory"),
        ({"scientist": "builtin"}, "leave backbone and protocol out"),
        ({"specimen": "/etc"}, "not below the directory"),
        ({"specimen": "../x"}, "not below the directory"),
        ({"specimen": "--help"}, "not below the directory"),
        ({"behaviour": "/etc/passwd"}, "not below the directory"),
        ({"behaviour": '[{"prompt": "a"}]'}, "not below the directory"),
        ({"name": "../x"}, "use letters"),
        ({"name": ".x"}, "use letters"),
        ({"name": "a/b"}, "use letters"),
    ],
)
def test_what_is_not_allowed_is_refused_in_one_line(fields: dict[str, Any], message: str, jobs: Jobs) -> None:
    with pytest.raises(BadInput) as refused:
        jobs.start(question(**fields))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(jobs.directory.iterdir()) == []


@pytest.mark.parametrize(
    "fields", [{"scientist": "os:system"}, {"seed": -1}, {"n": 0}, {"max_cost": 0}, {"components": ["x y"]}, {"key": 1}]
)
def test_fields_are_checked(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        question(**fields)


def test_the_command_is_a_list_in_which_no_value_is_an_option(jobs: Jobs) -> None:
    place = jobs.start(question(behaviour="ioi", components=["L0_MLP", "L1H2"], protocol="paper", seed=3, n=8))
    assert place.name == "explain-frac_prevs-ioi-hyve-paper-seed3"
    assert given(place) == [
        "explain",
        f"--out={place}",
        "--scientist=hyve",
        "--behaviour=ioi",
        "--components=L0_MLP,L1H2",
        f"--backbone={SCRIPT}",
        "--protocol=paper",
        "--seed=3",
        "--n=8",
        "--",
        "frac_prevs",
    ]
    assert (place / JOB).exists()


def test_two_at_a_time_and_names_of_their_own(jobs: Jobs) -> None:
    first, second = jobs.start(question()), jobs.start(question(specimen="org/model", name="mine"))
    assert (first.name, second.name) == ("explain-frac_prevs-hyve-seed0", "mine")
    with pytest.raises(BadInput, match=r"2 runs are under way .*: stop one, or wait"):
        jobs.start(question())
    given(first)
    jobs.stop(first)
    until(lambda: jobs.about(first)["state"] == "stopped")
    third = jobs.start(question())
    assert third.name == "explain-frac_prevs-hyve-seed0-2"
    given(third)
    jobs.stop(third)
    until(lambda: jobs.about(third)["state"] == "stopped")
    with pytest.raises(BadInput, match="is there already"):
        jobs.start(question(name="mine"))


def test_stop_and_resume_give_the_same_command(jobs: Jobs) -> None:
    place = jobs.start(question(seed=2))
    before = given(place)
    about = jobs.about(place)
    assert (about["state"], about["can_stop"], about["can_resume"]) == ("running", True, False)
    with pytest.raises(BadInput, match="under way already"):
        jobs.resume(place, confirmed(jobs, place))
    jobs.stop(place)
    until(lambda: jobs.about(place)["state"] == "stopped")
    about = jobs.about(place)
    assert (about["can_stop"], about["can_resume"]) == (False, True)
    assert about["ended"] == "vesalius: interrupted"
    assert about["command"].startswith(f"vesalius explain --out={place} --scientist=hyve")
    assert about["resume"]["command"] == about["command"]
    assert (about["resume"]["backbone"], about["resume"]["max_cost"]) == (SCRIPT, None)
    (place / "given").unlink()
    jobs.resume(place, about["resume"]["digest"])
    assert given(place) == before


def confirmed(jobs: Jobs, place: Path) -> str:
    """The digest of what a job of a directory would start."""
    return _digest(place, jobs._arguments(jobs._asked(place)))


@pytest.mark.parametrize("change", [{"max_cost": 500.0}, {"backbone": "openai:gpt-5.4"}, {"seed": 9}, {"n": 4_000}])
def test_what_is_resumed_is_what_was_confirmed(change: dict[str, Any], jobs: Jobs) -> None:
    """A file that changes after it was shown, and a run that was never shown, start nothing."""
    place = jobs.directory / "planted"
    place.mkdir()
    fields = {"specimen": "frac_prevs", "backbone": SCRIPT}
    (place / JOB).write_text(json.dumps(fields))
    digest = confirmed(jobs, place)
    (place / JOB).write_text(json.dumps({**fields, **change}))
    for given in (digest, "", confirmed(jobs, place)[:-1]):
        with pytest.raises(BadInput, match="is not what was confirmed"):
            jobs.resume(place, given)
    assert jobs.running() == []


def test_the_end_of_the_server_stops_its_runs(jobs: Jobs) -> None:
    places = [jobs.start(question()), jobs.start(question())]
    for place in places:
        given(place)
    processes = [job.process.pid for job in jobs._jobs.values()]
    jobs.close()
    until_gone(*processes)
    assert [(place / LOG).read_text() for place in places] == ["vesalius: interrupted\n"] * 2
    with pytest.raises(Exception, match="the server is ending"):
        jobs.start(question())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"specimen": "frac_prevs", "backbone": "scripted:evil.py"}, "runs a program"),
        ({"specimen": "/etc", "backbone": SCRIPT}, "not below"),
        ({"specimen": 3}, "specimen"),
        ({"command": ["rm"]}, "specimen"),
        ([1], "cannot be read"),
    ],
)
def test_a_planted_job_runs_nothing_that_was_not_allowed(content: Any, message: str, jobs: Jobs) -> None:
    place = jobs.directory / "planted"
    place.mkdir()
    (place / "evil.py").write_text("raise SystemExit(9)")
    (place / JOB).write_text(json.dumps(content))
    assert jobs.about(place)["resume"] is None
    with pytest.raises(BadInput, match=message):
        jobs.resume(place, "")
    assert jobs.running() == []
    assert jobs.about(place)["command"] in (None, "")


@pytest.mark.parametrize("name", [LOG, "calls.jsonl", "explanation.json", "executions/1"])
def test_a_run_with_links_is_not_resumed(name: str, jobs: Jobs, tmp_path: Path) -> None:
    place = jobs.directory / "planted"
    (place / name).parent.mkdir(parents=True)
    (place / JOB).write_text(json.dumps({"specimen": "frac_prevs", "backbone": SCRIPT}))
    (tmp_path / "letter.txt").write_text("keep me")
    os.symlink(tmp_path / "letter.txt", place / name)
    with pytest.raises(BadInput, match="is a link"):
        jobs.resume(place, confirmed(jobs, place))
    with pytest.raises(Failed, match="could not be started"):
        jobs._launch(_with_link_as_log(tmp_path), [])
    assert jobs.running() == []
    assert (tmp_path / "letter.txt").read_text() == "keep me"


def _with_link_as_log(place: Path) -> Path:
    (place / "other").mkdir()
    os.symlink(place / "letter.txt", place / "other" / LOG)
    return place / "other"


def test_a_run_of_nobody_cannot_be_stopped_or_resumed(jobs: Jobs) -> None:
    place = jobs.directory / "other"
    place.mkdir()
    (place / "under_way.json").write_text(json.dumps({"pid": os.getpid(), "host": "x", "started": 1.0}))
    with pytest.raises(BadInput, match="no process works on it"):
        jobs.stop(place)
    with pytest.raises(BadInput, match="was not started here"):
        jobs.resume(place, "")


def test_a_server_that_others_can_reach_starts_nothing(tmp_path: Path) -> None:
    shown = Jobs(tmp_path, backbones=[SCRIPT], watch_only=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / JOB).write_text(json.dumps({"specimen": "frac_prevs", "backbone": SCRIPT}))
    assert shown.about(tmp_path / "run")["can_resume"] is False
    for act in (
        lambda: shown.start(question()),
        lambda: shown.resume(tmp_path / "run", ""),
        lambda: shown.stop(tmp_path / "run"),
    ):
        with pytest.raises(BadInput, match="runs are only watched here; start it without --host"):
            act()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits and rights of Linux")
def test_a_run_that_cannot_be_written_down_leaves_its_name_free(jobs: Jobs) -> None:
    asked = RunQuestion(specimen="org/model", components=["L0_MLP"], scientist="builtin", name="run")
    for place, line in ((no_room(), r"job\.json: could not be written"), (read_only(jobs.directory), "cannot be made")):
        with place, pytest.raises(Failed, match=line):
            jobs.start(asked)
        assert os.listdir(jobs.directory) == []
    assert jobs.start(asked).name == "run"
    assert jobs.running() == ["run"]
    until(lambda: (jobs.directory / "run" / "given").exists())  # before that, an interrupt may be ignored
