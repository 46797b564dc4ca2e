"""How the page is served."""

from collections.abc import Sequence
from typing import Annotated

from vesalius.options import OptionRecord, flag


class Served(OptionRecord):
    """Where the page is served, and to whom."""

    port: Annotated[int, flag("Port; 0: any that is free.", least=0, most=65535)] = 0
    host: Annotated[str, flag("Address to listen on. Any but loopback needs a password; nothing is encrypted.")] = (
        "127.0.0.1"
    )
    password_file: Annotated[
        str | None, flag("File with the password. Default: VESALIUS_PASSWORD, or asked on the terminal.")
    ] = None
    allow_backbone: Annotated[
        Sequence[str],
        flag(
            "A scripted language model that runs started from the page may use, as scripted:FILE; it is a program. "
            "May be given several times.",
            metavar="P:M",
        ),
    ] = ()
    leave_runs: Annotated[
        bool,
        flag(
            "Runs started from the page go on when the server ends; a later one can stop them. Default: they end.",
            "--leave-runs",
        ),
    ] = False
