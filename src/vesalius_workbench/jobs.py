"""Runs that the page starts, stops and resumes: processes of the command line, one directory each.

A run is asked for by fields, which are checked and become a list of arguments; no shell is involved. The fields are
kept beside the results in `job.json`, so that the same command can be given again: by the page, after a restart of the
server as well, or by hand. Stopping is Ctrl-C, and only where that does not help a signal that cannot be ignored: what
was computed is on the disk by then, and the same command continues from it.

Two things never come from the page: keys, which are those of the server's environment, and files that are run as
programs. A scripted model is Python, so only those named when the server was started are used.

A run is told its keys through a pipe, so that no environment of a child holds one, and only where it asks a language
model. The same pipe is its lifeline: where the server is gone, however it ended, the run ends as by Ctrl-C. A server
that leaves its runs closes the pipe at once; whoever opens the directory later can watch and stop them.
"""

import hashlib
import hmac
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vesalius.documents.base import first_error
from vesalius.errors import BadInput, Failed
from vesalius.files import write_json
from vesalius.private import secrets_of, without_secrets
from vesalius.runs.directory import worker_of
from vesalius.runs.kinds import run_state
from vesalius_workbench.store import below, located

JOB, LOG = "job.json", "run.log"
#: Runs that may be under way at once; each holds a model in memory.
MOST_JOBS = 2
#: Seconds after Ctrl-C until a process is ended, and after that until it is killed.
PATIENCE, LAST = 10.0, 5.0
#: Bytes of job.json, and of the end of the log that is looked at.
MOST_BYTES, MOST_LOG = 20_000, 4_000
#: A link in place of the log is not followed.
LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
PROVIDERS = ("openai", "anthropic", "google", "compatible", "local")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
Word = Annotated[str, Field(min_length=1, max_length=500)]

ComponentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\[\]]{1,60}$")]


class RunQuestion(BaseModel):
    """A run that is asked for. `name` is the directory it gets below the one that is open; default: from the rest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    specimen: Word
    behaviour: Word | None = None
    components: Annotated[list[ComponentName], Field(max_length=2_000)] = Field(default_factory=list)
    scientist: Literal["builtin", "hyve", "hybrid"] = "hyve"
    backbone: Word | None = None
    protocol: Literal["typed", "paper"] | None = None
    seed: Annotated[int, Field(ge=0, le=2**62)] = 0
    n: Annotated[int, Field(ge=4, le=100_000)] | None = None
    top: Annotated[int, Field(ge=1, le=10_000)] | None = None
    max_cost: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    name: Annotated[str, Field(max_length=80)] | None = None


@dataclass
class Job:
    """A process that was started here."""

    process: "subprocess.Popen[bytes]"
    lifeline: IO[bytes] | None = None
    stopping: bool = False

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None


class Jobs:
    """Runs below one directory. `backbones` are those named at the start, beside the providers'. With `watch_only`
    nothing is started or stopped: other machines can reach the server, and a run spends on the keys of this one. With
    `leave_runs` the runs outlive the server.
    """

    def __init__(
        self,
        directory: Path,
        *,
        specimens: Collection[str] = (),
        backbones: Collection[str] = (),
        watch_only: bool = False,
        leave_runs: bool = False,
    ) -> None:
        self.directory, self.watch_only, self.leave_runs = directory.resolve(), watch_only, leave_runs
        self._specimens, self._backbones = set(specimens), list(backbones)
        self._jobs: dict[Path, Job] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def backbones(self) -> list[str]:
        """What may be given as a backbone: those named at the start, then the forms that the command line takes."""
        return [*self._backbones, *(f"{provider}:" for provider in PROVIDERS)]

    def start(self, asked: RunQuestion) -> Path:
        """Start a run in a new directory, and return it."""
        self._require_this_machine()
        arguments = self._arguments(asked)
        with self._lock:
            self._require_room()
            place = self._new_place(asked)
            try:
                place.mkdir(parents=True)
            except OSError as error:
                raise Failed(f"{place.name}: cannot be made ({error.strerror})") from None
            try:
                write_json(place / JOB, {"schema": 1, **asked.model_dump()})
            except Failed:  # without it the run could be neither resumed nor started again under its name
                place.rmdir()
                raise
            self._launch(place, arguments)
        return place

    def resume(self, place: Path, digest: str) -> None:
        """Give the command of a run again that was stopped. `digest` is that of what was shown (`about`): the fields
        lie in the run's directory, which may come from elsewhere, and the command spends on this machine's keys.
        """
        self._require_this_machine()
        arguments = self._arguments(self._asked(place))
        if not hmac.compare_digest(digest.encode(), _digest(place, arguments).encode()):
            raise BadInput(f"{place.name}: is not what was confirmed; look at what would be started, and confirm that")
        _require_plain(place)
        with self._lock:
            self._require_room()
            if self._running(place) or worker_of(place) is not None:
                raise BadInput(f"{place.name}: is under way already")
            self._launch(place, arguments)

    def stop(self, place: Path) -> None:
        """Interrupt a run, as Ctrl-C does; it ends by itself or is ended a little later."""
        self._require_this_machine()
        with self._lock:
            job = self._jobs.get(place)
            if job is not None and job.running:
                if not job.stopping:
                    job.stopping = True
                    threading.Thread(target=_end, args=(job.process,), daemon=True).start()
                return
        _interrupt_other(place)

    def about(self, place: Path) -> dict[str, Any]:
        """What the page says of a run: its state, whether it can be stopped or resumed here, and why it ended."""
        job = self._jobs.get(place)
        ours = job is not None and job.running
        worker = worker_of(place)
        state = "running" if ours else run_state(place)
        if ours and job is not None and job.stopping:
            state = "stopping"
        asked = self._asked_or_none(place)
        can_stop = state == "running" and (ours or (worker is not None and worker.here and hasattr(os, "pidfd_open")))
        return {
            "state": state,
            "started_here": ours,
            "can_stop": can_stop and not self.watch_only,
            "can_resume": state == "stopped" and asked is not None and not self.watch_only,
            "asked": None if asked is None else asked.model_dump(exclude_none=True),
            "command": None if asked is None else self._command(asked, place),
            "resume": None if asked is None or state != "stopped" else self._confirmation(asked, place),
            "ended": None if state in ("running", "stopping", "finished") else _last_words(place),
        }

    def running(self) -> list[str]:
        """The runs that are under way from here, relative to the directory."""
        return [str(place.relative_to(self.directory)) for place, job in self._jobs.items() if job.running]

    def close(self) -> None:
        """Stop every run that was started here, and wait for them; nothing that was computed is lost. With `leave_runs`
        they go on.
        """
        with self._lock:
            self._closed = True
            if self.leave_runs:
                return
            left = [job.process for job in self._jobs.values() if job.running]
        for process in left:
            _signal(process, signal.SIGINT)
        end = time.monotonic() + PATIENCE
        for process in left:
            if not _wait(process, end - time.monotonic()):
                _end(process, interrupted=True)

    def _require_this_machine(self) -> None:
        if self.watch_only:
            raise BadInput(
                "other machines can reach this server, so runs are only watched here; start it without --host"
            )

    def _require_room(self) -> None:
        if self._closed:
            raise Failed("the server is ending")
        if len(under_way := self.running()) >= MOST_JOBS:
            raise BadInput(f"{MOST_JOBS} runs are under way ({', '.join(under_way)}): stop one, or wait for it")

    def _running(self, place: Path) -> bool:
        return place in self._jobs and self._jobs[place].running

    def _launch(self, place: Path, arguments: list[str]) -> None:
        # -P: it is told keys, so no file of the current directory may stand in for a module.
        command = [sys.executable, "-P", "-m", "vesalius_workbench.child", "explain", f"--out={place}", *arguments]
        keys = secrets_of(os.environ)
        asks = any(one.startswith("--backbone=") for one in arguments)
        told = {"keys": {name: value for name, value in keys.items() if asks or _for_downloads(name)}}
        try:
            with os.fdopen(os.open(place / LOG, LOG_FLAGS, 0o644), "ab") as log:
                # A session of its own: Ctrl-C in the server's terminal reaches the server alone, which stops its runs.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    env=without_secrets(os.environ),
                    start_new_session=True,
                )
        except OSError as error:
            raise Failed(f"{place.name}: could not be started ({error.strerror})") from None
        self._jobs[place] = Job(process, self._tell(process, told))

    def _tell(self, process: "subprocess.Popen[bytes]", told: dict[str, Any]) -> IO[bytes] | None:
        """Tell a run what it must know; what is returned keeps it alive while it is open."""
        lifeline = process.stdin
        assert lifeline is not None
        line = json.dumps({**told, "ends_with_server": not self.leave_runs}).encode() + b"\n"
        try:
            lifeline.write(line)
            lifeline.flush()
        except OSError:  # it has ended already; its log says why
            return None
        if self.leave_runs:
            lifeline.close()
            return None
        return lifeline

    def _new_place(self, asked: RunQuestion) -> Path:
        if asked.name is not None:
            if not NAME.fullmatch(asked.name):
                raise BadInput(f"name {asked.name!r}: use letters, digits, dots, dashes and underscores")
            place = self.directory / asked.name
            if place.exists() or place.is_symlink():
                raise BadInput(f"name {asked.name!r}: is there already; resume it, or choose another name")
            return place
        words = ("explain", Path(asked.specimen).name, asked.behaviour, asked.scientist, asked.protocol)
        stem = "-".join(re.sub(r"[^A-Za-z0-9._-]+", "_", word)[:40] for word in (*words, f"seed{asked.seed}") if word)
        names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, 10_000))
        return next(place for name in names if not os.path.lexists(place := self.directory / name))

    def _arguments(self, asked: RunQuestion) -> list[str]:
        """The arguments of `vesalius explain`, checked; a value can never be read as an option."""
        backbone = self._backbone(asked)
        options = {
            "scientist": asked.scientist,
            "behaviour": None if asked.behaviour is None else self._behaviour(asked.behaviour),
            "components": ",".join(asked.components) or None,
            "backbone": backbone,
            "protocol": asked.protocol,
            "seed": asked.seed,
            "n": asked.n,
            "top": asked.top,
            "max-cost": None if backbone is None else asked.max_cost,
        }
        given = [f"--{name}={value}" for name, value in options.items() if value is not None]
        return [*given, "--", self._specimen(asked.specimen)]

    def _confirmation(self, asked: RunQuestion, place: Path) -> dict[str, Any] | None:
        """What resuming would start, and the digest that confirms it."""
        try:
            arguments = self._arguments(asked)
        except BadInput:
            return None
        command = shlex.join(["vesalius", "explain", f"--out={place}", *arguments])
        spent = {"backbone": asked.backbone, "max_cost": asked.max_cost}
        return {"command": command, **spent, "digest": _digest(place, arguments)}

    def _command(self, asked: RunQuestion, place: Path) -> str:
        try:
            arguments = self._arguments(asked)
        except BadInput:
            return ""
        return shlex.join(["vesalius", "explain", f"--out={place}", *arguments])

    def _specimen(self, name: str) -> str:
        """A specimen that ships or was named at the start, or a directory below the one that is open."""
        return name if name in self._specimens else located(self.directory, name, "specimen")

    def _behaviour(self, name: str) -> str:
        """A behaviour by its name, or a file below the directory."""
        is_row = name.lstrip().startswith(("{", "["))
        return (below if is_row else located)(self.directory, name, "behaviour")

    def _backbone(self, asked: RunQuestion) -> str | None:
        """A model of a provider, one named at the start, or a local model's file below the directory."""
        name = asked.backbone
        if asked.scientist == "builtin":
            if name is not None or asked.protocol is not None:
                raise BadInput("scientist builtin: asks no language model; leave backbone and protocol out")
            return None
        if name is None:
            raise BadInput(f"scientist {asked.scientist}: needs a backbone, such as openai:gpt-5.4")
        if name in self._backbones:
            return name
        provider, _, model = name.partition(":")
        if provider == "scripted":
            raise BadInput(
                f"backbone {name!r}: runs a program; name it when you start the server: "
                f"vesalius open DIRECTORY --allow-backbone {name}"
            )
        if provider not in PROVIDERS or not model.strip():
            raise BadInput(f"backbone {name!r}: give PROVIDER:MODEL, such as openai:gpt-5.4; providers: {PROVIDERS}")
        if provider == "local" and _is_path(model.partition("?")[0]):
            file, mark, options = model.partition("?")
            return f"local:{below(self.directory, file, 'backbone')}{mark}{options}"
        return name

    def _asked(self, place: Path) -> RunQuestion:
        path = place / JOB
        if not path.is_file() or path.is_symlink():
            raise BadInput(f"{place.name}: was not started here; give its command again in the terminal")
        try:
            with path.open("rb") as file:
                data = json.loads(file.read(MOST_BYTES))
            return RunQuestion.model_validate({name: value for name, value in data.items() if name != "schema"})
        except ValidationError as error:
            raise BadInput(f"{place.name}/{JOB}: {first_error(error)}") from None
        except (OSError, ValueError, AttributeError, RecursionError):
            raise BadInput(f"{place.name}/{JOB}: cannot be read; give the command again in the terminal") from None

    def _asked_or_none(self, place: Path) -> RunQuestion | None:
        try:
            return self._asked(place)
        except BadInput:
            return None


def _digest(place: Path, arguments: list[str]) -> str:
    return hashlib.sha256(json.dumps([str(place), *arguments]).encode()).hexdigest()


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.startswith((".", "~", "-")) or Path(name).suffix in (".gguf", ".jsonl")


def _require_plain(place: Path) -> None:
    """Refuse a run with links or pipes: the command writes into its files, which may come from elsewhere."""
    for inside, directories, files in os.walk(place, followlinks=False):
        for name in (*directories, *files):
            mode = os.lstat(f"{inside}/{name}").st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise BadInput(f"{place.name}: {name[:80]} is a link or no plain file; remove it, then resume")


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    """To the process alone for Ctrl-C, to all that it started for what ends it."""
    try:
        if number == signal.SIGINT:
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)
    except OSError:
        pass


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: "subprocess.Popen[bytes]", *, interrupted: bool = False) -> None:
    """Interrupt a process, and end it where that does not help."""
    if not interrupted:
        _signal(process, signal.SIGINT)
    steps = [(signal.SIGTERM, LAST), (signal.SIGKILL, LAST)]
    if interrupted or not _wait(process, PATIENCE):
        for number, seconds in steps:
            _signal(process, number)
            if _wait(process, seconds):
                return


def _interrupt_other(place: Path) -> None:
    """Ctrl-C for a process that another one started: only where the kernel says that it is the one at work."""
    worker = worker_of(place)
    if worker is None:
        raise BadInput(f"{place.name}: no process works on it")
    if not worker.here or not hasattr(os, "pidfd_open"):
        raise BadInput(f"{place.name}: was started elsewhere and cannot be stopped from here; press Ctrl-C there")
    try:
        handle = os.pidfd_open(worker.pid)
    except OSError:
        return  # it has ended
    try:
        # The handle names this process for good; it is the right one if it still holds the lock.
        if (now := worker_of(place)) is not None and now.pid == worker.pid:
            signal.pidfd_send_signal(handle, signal.SIGINT)
    except PermissionError:
        raise BadInput(f"{place.name}: belongs to another user; press Ctrl-C where it was started") from None
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _last_words(place: Path) -> str | None:
    """The last line of a run's log."""
    path = place / LOG
    if not path.is_file() or path.is_symlink():
        return None
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MOST_LOG))
            lines = file.read(MOST_LOG).decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return None
    return lines[-1][:400] if lines else None


def _for_downloads(name: str) -> bool:
    """Whether a secret is needed to download a model: a token of the hub, or a proxy with its password."""
    return name.startswith("HF_") or name.upper().endswith("_PROXY")
