"""`vesalius bench circuits` and `vesalius bench discovery`."""

from typing import Annotated

import typer

from vesalius import api
from vesalius.cli.console import output, resumable
from vesalius.cli.options import Printed
from vesalius.errors import BadInput
from vesalius.options import (
    BENCHED,
    Ask,
    Chosen,
    CircuitMethod,
    Compared,
    Jobs,
    Judges,
    Published,
    Sample,
    Who,
    Workers,
)


def circuits(
    *,
    who: Who,
    ask: Ask,
    judged: Judges,
    chosen: Published,
    source: CircuitMethod,
    workers: Workers,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            help="Explain nothing: write the answers of the 84 circuits here, in AgenticInterpBench's layout.",
            metavar="DIR",
        ),
    ] = None,
    natural: Annotated[
        bool,
        typer.Option(
            "--natural",
            help="Natural circuits with a key: arithmetic, and a stand-in for GPT-2 small in --specimens DIR.",
        ),
    ] = False,
    printed: Printed,
) -> None:
    """Explain circuits with known answers, grade tags and programs, and print the scorecard.

    Every metric comes with its interval, its n and its baseline, beside what null explanations earn. An interrupted run
    continues when the same command is given again; only the cap, the jobs and the engine may change.

    Example: vesalius bench circuits --limit 5 --json, or
    vesalius bench circuits --specimens InterpBench --annotations AgenticInterpBench
    """
    if natural:
        if export is not None or ask.backbone is not None or source.circuit_from is not None or judged.judges:
            raise BadInput(
                "--natural: the built-in scientist explains; leave out --export, --backbone, --circuit-from, --judge"
            )
        return output(api.bench_natural_circuits(chosen, seed=who.seed, out=printed.out), as_json=printed.json)
    if export is not None:
        return output(api.export_circuits(export, chosen), as_json=printed.json)
    with resumable():
        card = api.bench_circuits(who, ask, judged, chosen, source, workers, out=printed.out)
    return output(card, as_json=printed.json)


def discovery(*, compared: Compared, chosen: Chosen, sample: Sample = BENCHED, workers: Jobs, printed: Printed) -> None:
    """Find circuits with known answers by each method; print how well the scores separate the true parts.

    An interrupted run continues when the same command is given again.

    Example: vesalius bench discovery --methods sweep,eap --limit 5
    """
    with resumable():
        card = api.bench_discovery(compared, chosen, sample, workers, out=printed.out)
    output(card, as_json=printed.json)
