"""A run that the workbench started: the command line, stopped by Ctrl-C even where the server ignores it.

python -m vesalius_workbench.child explain ...
"""

import runpy
import signal
import sys


def main() -> None:
    """Run the command with the signals that a terminal would give it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        runpy.run_module("vesalius", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:  # before the command was ready to answer it
        print("vesalius: interrupted before anything was computed", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
