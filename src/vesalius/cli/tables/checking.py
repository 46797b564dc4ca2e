"""How faithful a circuit is."""

from vesalius.cli.console import print_line
from vesalius.documents.faithfulness import Faithfulness


def print_faithfulness(result: Faithfulness) -> None:
    """The figure of the circuit, that of random ones, and the scores behind them."""
    for line in repr(result).splitlines():
        print_line(line)
    print_line(f"again: {result.request.command_line()}")
