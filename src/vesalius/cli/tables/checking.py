"""How faithful a circuit is, and what another seed says about a claim."""

from vesalius.cli.console import print_line
from vesalius.documents.faithfulness import Faithfulness
from vesalius.documents.retest import Retest


def print_faithfulness(result: Faithfulness) -> None:
    """The figure of the circuit, that of random ones, and the scores behind them."""
    for line in repr(result).splitlines():
        print_line(line)
    print_line(f"again: {result.request.command_line()}")


def print_retest(result: Retest) -> None:
    """Both verdicts, then the evidence of the new one."""
    for line in repr(result).splitlines():
        print_line(line)
    for one in result.after.evidence:
        print_line(repr(one))
    if result.request.specimen is not None:
        print_line(f"again: {result.request.command_line()}")
