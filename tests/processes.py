"""Child processes for tests that end them."""

import signal


def heed_interrupts() -> None:
    """For `preexec_fn`: a build that was started in the background ignores Ctrl-C, and its children would with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
