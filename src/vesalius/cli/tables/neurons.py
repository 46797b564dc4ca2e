"""A circuit of neurons on the console."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents.neurons import NeuronCircuit


def print_neurons(circuit: NeuronCircuit, top: int) -> None:
    """The strongest neurons, the share kept by size beside both baselines, and the cost."""
    strongest = " ".join(f"{one.id} {one.score:+.3g}" for one in circuit.components[:top])
    print_line(f"{circuit.size} of {circuit.n_neurons} neurons; strongest by score ({circuit.unit}): {strongest}")
    table = Table("neurons", "share kept", "95 % interval", "most changed", "random", box=None)
    for point in circuit.curve:
        share, low, high, *rivals = (
            f"{round(x, 3) + 0.0:.3f}" for x in (point.share, point.low, point.high, point.magnitude, point.random)
        )
        table.add_row(str(point.size), share, f"{low} to {high}", *rivals)
    stdout.print(table)
    print_line(
        f"on the prompts they were chosen by: {circuit.share_chosen:.3f}; held-out prompts: {circuit.share.n}; "
        f"{circuit.forwards:.1f} forward-equivalents, {circuit.seconds:.1f} s"
    )
    if circuit.directory is not None:
        print_line(f"page: {circuit.directory}/neurons.html")
