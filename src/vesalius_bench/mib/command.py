"""Submissions to both tracks of the MIB benchmark: circuits, and causal variables."""

from typing import Annotated

import typer

from vesalius import api
from vesalius.cli.console import output
from vesalius.cli.options import BehaviourOption, DeviceOption, JsonOption, SpecimenArgument, command
from vesalius.options import Sample, Sandboxed
from vesalius_bench.options import MIB_PAIRS, MIB_SCORED, MibRows, MibTrained

mib = typer.Typer(
    no_args_is_help=True, help="Write, check and score submissions to MIB: circuits, and causal variables."
)


@mib.command()
def write(
    runs: Annotated[list[str], typer.Argument(help="Directories of `vesalius discover`.", metavar="RUN...")],
    out: Annotated[str, typer.Option(help="Directory of the submission.")],
    level: Annotated[
        str | None, typer.Option(help="edge or node: what is scored. Default: edges where they have scores.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write the scores of discoveries as a submission: a folder TASK_MODEL for each.

    Example: vesalius mib write vesalius-runs/discover-gpt2-ioi-eap-n32-seed0 --out submission
    """
    output(api.write_mib(runs, out, level=level), as_json=json)  # type: ignore[arg-type]


@mib.command()
def check(
    directory: Annotated[str, typer.Argument(help="Directory of a submission.", metavar="DIRECTORY")],
    json: JsonOption = False,
) -> None:
    """Read every folder of a submission and say whether MIB would accept it.

    Example: vesalius mib check submission
    """
    output(api.check_mib(directory), as_json=json)


@command(mib)
def score(
    folder: Annotated[str, typer.Argument(help="A folder of a submission, such as submission/ioi_gpt2.")],
    specimen: SpecimenArgument,
    behaviour: BehaviourOption = None,
    n: Annotated[int, typer.Option(min=1, help="Prompts.")] = MIB_SCORED.n,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Print CPR and CMD of a folder as MIB defines them, on prompts of a behaviour.

    Example: vesalius mib score submission/ioi_gpt2 openai-community/gpt2 --behaviour ioi
    """
    output(api.score_mib(folder, specimen, behaviour=behaviour, n=n, device=device), as_json=json)


@command(mib)
def align(
    specimen: SpecimenArgument,
    out: Annotated[str, typer.Option(help="Directory of the submission.")],
    behaviour: BehaviourOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
    *,
    asked: MibRows,
    trained: MibTrained,
    draw: Sample = MIB_PAIRS,
    sandboxed: Sandboxed,
) -> None:
    """Place a variable of a program, and write it as a folder of MIB's causal variable track.

    Places and directions are found on pairs that train, and scored on held-out ones.

    Example: vesalius mib align Qwen/Qwen2.5-0.5B --rows mcqa/ --task 4_answer_MCQA --variable answer_pointer --out mine
    """
    result = api.align_mib(
        specimen, out, asked=asked, trained=trained, draw=draw, sandboxed=sandboxed, behaviour=behaviour, device=device
    )
    output(result, as_json=json)


@command(mib)
def interchange(
    folder: Annotated[str, typer.Argument(help="A folder of a submission, TASK_MODEL_VARIABLE.")],
    specimen: SpecimenArgument,
    behaviour: BehaviourOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
    *,
    asked: MibRows,
    draw: Sample = MIB_PAIRS,
    sandboxed: Sandboxed,
) -> None:
    """Print the interchange accuracy of a folder of MIB's causal variable track, on held-out pairs.

    Example: vesalius mib interchange mine/4_answer_MCQA_Qwen2ForCausalLM_answer_pointer Qwen/Qwen2.5-0.5B --rows mcqa/
    """
    result = api.interchange_mib(
        folder, specimen, asked=asked, draw=draw, sandboxed=sandboxed, behaviour=behaviour, device=device
    )
    output(result, as_json=json)
