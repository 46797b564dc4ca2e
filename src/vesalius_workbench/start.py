"""Start the workbench: pick a port, print an address that lets one browser in, open the browser, serve until Ctrl-C.

On loopback a ticket in the address lets one browser in, once; then the next address is printed. The browser that is
started here gets its ticket in a page on the disk that only this user can read, since `ps` shows command lines to
everybody. Another address needs a password, which is read from a file, from the environment or from the terminal, and
never from the command line.
"""

import getpass
import ipaddress
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn

from vesalius.errors import BadInput, note, quoted
from vesalius.files import require_possible
from vesalius.private import without_secrets, write_private
from vesalius_bench.ratings.annotation import Annotating
from vesalius_serving.listening import listen, settings
from vesalius_serving.private import private_directory, redirect_page
from vesalius_workbench.access import ACCESS
from vesalius_workbench.options import Served
from vesalius_workbench.password import SHORTEST, Password
from vesalius_workbench.server import create_annotation_app, create_app
from vesalius_workbench.store import shipped, shown_files
from vesalius_workbench.working import Works

#: Files of a run that has no result yet.
UNFINISHED = ("run.json", "calls.jsonl", "under_way.json", "job.json")
LOOPBACK = "127.0.0.1"
#: Seconds that work has to end after the server; then it is cut off.
LAST_SECONDS = 3.0
PASSWORD_VARIABLE = "VESALIUS_PASSWORD"


def find_place(what: str | None) -> tuple[Path, str | None, str]:
    """What `vesalius open` was given: the directory to open, a specimen named, and the first address.

    A run or a result, or its file, opens the directory around it at that result, or at what it does so far; a directory
    opens as it is; anything else is a specimen.
    """
    if what is None:
        return Path("vesalius-runs") if Path("vesalius-runs").is_dir() else Path.cwd(), None, "/runs"
    require_possible(what, what="RUN or SPECIMEN")
    place = Path(what).expanduser()
    place = place.parent if place.is_file() and place.name in (*shown_files(), *UNFINISHED) else place
    if place.is_dir() and any((place / name).is_file() for name in shown_files()):
        return place.resolve().parent, None, f"/result?path={quote(place.resolve().name)}"
    if place.is_dir() and any((place / name).is_file() for name in UNFINISHED):
        return place.resolve().parent, None, f"/agent?path={quote(place.resolve().name)}"
    if place.is_dir() and not any((place / name).is_file() for name in ("specimen.json", "config.json")):
        return place, None, "/runs"
    _require_specimen(what, place)
    return Path.cwd(), what, f"/specimen?specimen={quote(what)}"


def _require_specimen(what: str, place: Path) -> None:
    """Refuse what can be no specimen before a server is started: a file of another kind, or a name that nothing has."""
    is_model = place.is_dir() or (place.is_file() and place.suffix == ".gguf")
    is_elsewhere = not place.exists() and (":" in what or ("/" in what and not place.parent.is_dir()))
    if what not in shipped() and not is_model and not is_elsewhere:
        raise BadInput(
            f"{quoted(what, 80)}: is neither a run, a directory of results nor a specimen; `vesalius runs` and "
            "`vesalius specimens` list what there is"
        )


def serve(
    directory: Path,
    served: Served,
    *,
    opened: str | None = None,
    first: str,
    browser: bool,
    say: Callable[[str], None],
    annotating: Annotating | None = None,
) -> None:
    """Serve until interrupted: on loopback, or on another host with a password, which is asked for once the address is
    known to be free. `first` is the address that the browser
    opens; `annotating` are texts to rate in place of everything else.
    """
    host, port = served.host, served.port
    listener = listen(host, port, where=f"--port {port}" if is_loopback(host) else f"--host {host} --port {port}")
    port = listener.getsockname()[1]
    password = read_password(served.password_file, host)
    access = {
        "hosts": {f"{name}:{port}" for name in _names(host)},
        "any_address": is_everywhere(host),
        "password": None if password is None else Password(password),
    }
    app = (
        create_app(
            directory,
            opened=opened,
            backbones=served.allow_backbone,
            watch_only=not is_loopback(host),
            leave_runs=served.leave_runs,
            started_in=Path.cwd(),
            **access,
        )
        if annotating is None
        else create_annotation_app(annotating, **access)
    )
    shown = _bracketed(socket.gethostname() if is_everywhere(host) else host)
    address = f"http://{shown}:{port}{first}"

    def ticket(used: Callable[[], None]) -> str:
        """The address with a new ticket, where a ticket lets in."""
        joined = "&" if "?" in first else "?"
        return address if password is not None else f"{address}{joined}token={app.sessions.ticket(used=used)}"

    def say_next() -> None:
        say(f"A browser was let in. The next one: {ticket(say_next)}")

    say(ticket(say_next))
    if annotating is not None:
        say(f"{len(annotating.texts)} texts to rate; ratings are kept in {annotating.directory}")
    if first.startswith(("/result", "/agent")):
        say(f"The other results below {directory} are open too; copy a run into an empty directory to show it alone.")
    if not is_loopback(host):
        say(
            f"Other machines can reach this server. What it sends, the password too, is not encrypted: use it on a"
            f" network you trust, or start without --host and on the other machine run"
            f" `ssh -N -L {port}:{LOOPBACK}:{port} USER@{socket.gethostname()}` (with --port {port})."
        )
    if is_loopback(host):
        say(f"Who was let in, and how to end that: http://{shown}:{port}{ACCESS}")
    # A terminal that is closed ends the server as Ctrl-C does, so that it stops the runs it started.
    signal.signal(signal.SIGHUP, lambda number, frame: signal.raise_signal(signal.SIGTERM))
    try:
        with ExitStack() as stack:
            if browser:
                page = stack.enter_context(private_directory()) / "open.html"
                write_private(page, redirect_page(ticket(lambda: page.unlink(missing_ok=True))))
                stack.callback(_end_quietly, _start_browser(page))
            _Server(settings(app), app.works).run(sockets=[listener])
    finally:
        if app.works is not None and not app.works.ended(LAST_SECONDS):
            # A thread that nothing can stop would keep the process alive; what was saved is on the disk.
            sys.stdout.flush()
            os._exit(130)


def _start_browser(page: Path) -> "subprocess.Popen[bytes]":
    """Open a page in the user's browser. Its command line names the file alone, its environment holds no key, and with
    -P no file of the current directory stands in for a module.
    """
    command = [sys.executable, "-P", "-m", "webbrowser", page.as_uri()]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=without_secrets(os.environ),
        start_new_session=True,
    )


def _end_quietly(process: "subprocess.Popen[bytes]") -> None:
    """The program that starts the browser; a browser that stays in the foreground stays open."""
    process.poll()


class _Server(uvicorn.Server):
    """A server that asks its work to end as soon as it is told to end itself."""

    def __init__(self, config: uvicorn.Config, works: Works | None) -> None:
        super().__init__(config)
        self._works = works

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Ctrl-C, or the signal that ends a process."""
        if self._works is not None:
            self._works.close()
        super().handle_exit(sig, frame)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_everywhere(host: str) -> bool:
    """Whether a host stands for all addresses of this machine: 0.0.0.0 or ::."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def read_password(file: str | None, host: str) -> str | None:
    """The password of a server on `host`: from a file, from the environment, or asked for on the terminal."""
    if file is not None:
        return _checked(_from_file(Path(file).expanduser()), f"--password-file {file}")
    if is_loopback(host):
        return None
    # Taken out of the environment, so that runs started from the page do not inherit it.
    if (given := os.environ.pop(PASSWORD_VARIABLE, None)) is not None:
        return _checked(given, PASSWORD_VARIABLE)
    if not sys.stdin.isatty():
        raise BadInput(
            f"--host {host}: other machines could reach the server, so it needs a password; give --password-file FILE"
            f" or set {PASSWORD_VARIABLE}"
        )
    given = _checked(getpass.getpass(f"A password for {host} (at least {SHORTEST} characters): "), "password")
    if getpass.getpass("The same again: ") != given:
        raise BadInput("password: the two differ; start again")
    return given


def _from_file(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        others = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--password-file {path}: cannot be read ({error}); give a text file") from None
    if others:
        note(f"--password-file {path}: other users of this machine can read it; run: chmod 600 {path}")
    return text.rstrip("\r\n")


def _checked(password: str, where: str) -> str:
    if len(password) < SHORTEST or "\n" in password:
        raise BadInput(f"{where}: the password is one line of at least {SHORTEST} characters; choose a longer one")
    return password


def _names(host: str) -> set[str]:
    """What a browser may call the server."""
    if is_loopback(host) and host in (LOOPBACK, "localhost"):
        return {LOOPBACK, "localhost"}
    own = {LOOPBACK, "localhost", socket.gethostname(), socket.getfqdn()} if is_everywhere(host) else {host}
    return {_bracketed(name).lower() for name in own} | {_bracketed(name) for name in own}


def _bracketed(host: str) -> str:
    """A host as an address has it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host
