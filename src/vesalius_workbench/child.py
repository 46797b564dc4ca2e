"""A run that the workbench started: the command line, stopped by Ctrl-C even where the server ignores it.

python -m vesalius_workbench.child explain ...

The first line of its input says which keys it may use, so that they stand in no environment that `/proc` shows, and
whether it ends with the server. Then its input stays open as long as the server lives: at its end, however the server
was killed, the run is interrupted, and what it started is killed with it if that does not help.
"""

import json
import os
import runpy
import signal
import sys
import threading
import time

#: Seconds that an interrupted run has to write down what it did.
PATIENCE = 15.0
_MOST_BYTES = 1 << 20


def main() -> None:
    """Run the command with the signals that a terminal would give it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _listen()
        runpy.run_module("vesalius", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:  # before the command was ready to answer it
        print("vesalius: interrupted before anything was computed", file=sys.stderr)
        sys.exit(130)


def _listen() -> None:
    """Take the keys, and keep the input away from the command and from everything that it starts."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    told = json.loads(_first_line(lifeline) or b"{}")
    os.environ.update(told.get("keys", {}))
    if told.get("ends_with_server"):
        threading.Thread(target=_end_with_server, args=(lifeline,), daemon=True).start()
    else:
        os.close(lifeline)


def _first_line(handle: int) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _MOST_BYTES:
        byte = os.read(handle, 1)
        if not byte:
            break
        line += byte
    return line


def _end_with_server(lifeline: int) -> None:
    while os.read(lifeline, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
