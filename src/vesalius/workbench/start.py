"""Start the workbench: pick a port, print the address with its token, open the browser, serve until Ctrl-C."""

import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Collection
from pathlib import Path

import uvicorn

from vesalius.errors import BadInput
from vesalius.workbench.guard import new_token
from vesalius.workbench.server import create_app
from vesalius.workbench.store import SHOWN

LOOPBACK = "127.0.0.1"


def find_place(what: str | None) -> tuple[Path, str | None, str]:
    """What `vesalius open` was given: the directory to open, a specimen named, and the first address.

    A run or a result opens the directory around it at that result; a directory opens as it is; anything else is a
    specimen.
    """
    if what is None:
        return Path("vesalius-runs") if Path("vesalius-runs").is_dir() else Path.cwd(), None, "/runs"
    place = Path(what).expanduser()
    if place.is_dir() and any((place / name).is_file() for name in ("run.json", *SHOWN)):
        return place.resolve().parent, None, f"/result?path={place.resolve().name}"
    if place.is_dir() and not any((place / name).is_file() for name in ("specimen.json", "config.json")):
        return place, None, "/runs"
    return Path.cwd(), what, f"/specimen?specimen={what}"


def serve(
    directory: Path,
    *,
    opened: str | None,
    first: str,
    port: int,
    browser: bool,
    say: Callable[[str], None],
    backbones: Collection[str] = (),
) -> None:
    """Serve on loopback until interrupted. `first` is the address that the browser opens, `backbones` are language
    models that the page may use beside those of providers.
    """
    listener = _listen(port)
    port = listener.getsockname()[1]
    token = new_token()
    hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}
    app = create_app(directory, token=token, hosts=hosts, opened=opened, backbones=backbones)
    address = f"http://{LOOPBACK}:{port}{first}{'&' if '?' in first else '?'}token={token}"
    say(address)
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2, ws="none")
    # A terminal that is closed ends the server as Ctrl-C does, so that it stops the runs it started.
    signal.signal(signal.SIGHUP, lambda number, frame: signal.raise_signal(signal.SIGTERM))
    uvicorn.Server(config).run(sockets=[listener])


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise BadInput(f"--port {port}: cannot be used ({error}); choose another, or 0 for any") from None
    listener.listen(64)
    return listener
