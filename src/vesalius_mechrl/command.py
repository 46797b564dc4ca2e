"""`vesalius bench mechrl` and `vesalius sets`."""

from typing import Annotated

import typer

from vesalius import api
from vesalius.cli.console import output, resumable
from vesalius.cli.options import JsonOption, OneDeviceOption, RunOption, SpecimenArgument, TopOption
from vesalius.options import Force, Load
from vesalius_mechrl.options import Experiment, SetSearch


def mechrl(
    specimen: SpecimenArgument = "smollm2-135m",
    *,
    experiment: Experiment,
    matrices: Annotated[
        str | None,
        typer.Option(help="Directory of measured effect matrices. Default: measured into the run's directory."),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, help="Policies trained at a time; the results do not depend on it.")
    ] = 2,
    out: RunOption = None,
    device: OneDeviceOption = "cpu",
    json: JsonOption = False,
) -> None:
    """Print the tables of MechRL for a natural model, with intervals, beside searches that learn nothing.

    Measures effect matrices, trains policies, and plays. An interrupted benchmark continues when the same
    command is given again. Tables 2 and 3 look for the published heads where the model has GPT-2 small's shape, and
    for heads identified by their attention otherwise.

    Example: vesalius bench mechrl smollm2-135m --seeds 5
    """
    with resumable():
        document = api.bench_mechrl(specimen, experiment, matrices=matrices, jobs=jobs, device=device, out=out)
    output(document, as_json=json)


def sets(
    specimen: SpecimenArgument,
    *,
    search: Annotated[
        str | None,
        typer.Option(
            help="growth (default of natural models), group (default of others), greedy, beam, prune, rl or pairs."
        ),
    ] = None,
    load: Load,
    options: SetSearch,
    force: Force,
    top: TopOption = 12,
    out: Annotated[str | None, typer.Option(help="Directory for sets.json. Default: vesalius-runs/...")] = None,
    json: JsonOption = False,
) -> None:
    """Search heads that stand in for each other: mutually redundant ones, and backups.

    Sets are searched on some prompts and confirmed on others; writes sets.json.

    Example: vesalius sets smollm2-135m --behaviour induction --search pairs
    """
    with resumable():
        head_sets = api.discover_sets(specimen, search, options, load, force, out=out or True)
    output(head_sets, as_json=json, top=top)
