"""Discoveries as a submission to MIB's circuit localization track, and the areas that MIB would give its folders."""

import re
from collections.abc import Sequence
from pathlib import Path

from vesalius.api.door import verb
from vesalius.behaviours.behaviour import label_of
from vesalius.behaviours.trial import trial
from vesalius.discovery.checks import HELD_OUT_SEED, HELD_OUT_SPLIT
from vesalius.documents.discovery import DISCOVERY_FILE, Discovery
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen
from vesalius.options import Draw
from vesalius.progress import Progress, silent
from vesalius_bench.mib.areas import score_folder
from vesalius_bench.mib.documents import Level, MibFolder, MibScore, MibSubmission
from vesalius_bench.mib.files import LEAST_MODELS, LEAST_TASKS, MODELS, TASKS, read_folder, write_importances

#: What stands for the model where a circuit of the benchmark is both task and model.
SPECIMEN_MODEL = "specimen"
SCORED = Draw(n=32, split=HELD_OUT_SPLIT)
LEVELS = ("edge", "node")


def write_mib(runs: Sequence[str | Path], out: str | Path, *, level: Level | None = None) -> MibSubmission:
    """Write the scores of discoveries (directories of `vesalius discover`) as a submission: a folder `TASK_MODEL` for
    each. `level` is "edge" where edges have scores, otherwise "node".
    """
    if level is not None and level not in LEVELS:
        raise BadInput(f"`level` {level!r} does not exist; choose edge or node")
    if not runs:
        raise BadInput("a submission of no discoveries is empty; give directories of `vesalius discover`")
    sources: dict[str, Path] = {}
    discoveries: dict[str, Discovery] = {}
    for path in map(Path, runs):
        if not (path / DISCOVERY_FILE).is_file():
            raise BadInput(f"{path}: holds no {DISCOVERY_FILE}; give a directory of `vesalius discover`")
        discovery = Discovery.read(path / DISCOVERY_FILE)
        folder = folder_name(discovery)
        if folder in sources:
            raise BadInput(f"{path}: is {folder}, as {sources[folder]} is; give one discovery of each task and model")
        sources[folder], discoveries[folder] = path, discovery
    for folder, discovery in discoveries.items():
        write_importances(discovery.circuit, Path(out) / folder, level)
    return check_mib(out)


def check_mib(directory: str | Path) -> MibSubmission:
    """Read every folder of a submission and say whether MIB would accept it."""
    place = Path(directory)
    folders = sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
    if not folders:
        raise BadInput(f"{place}: holds no folders such as ioi_gpt2; give the directory of a submission")
    rows = tuple(read_folder(folder).description for folder in folders)
    return MibSubmission(directory=str(place), folders=rows, problems=tuple(_problems(rows)))


@verb
def score_mib(folder: str | Path, specimen: Specimen, *, draw: Draw = SCORED, progress: Progress = silent) -> MibScore:
    """CPR and CMD of a submission's folder as MIB defines them, on `n` prompts of the specimen's behaviour.

    These are prompts of the behaviour that is given, not MIB's private ones: give MIB's public rows as `behaviour` to
    score on those.
    """
    content = read_folder(Path(folder))
    progress("scoring circuits", 0, 1)
    material = trial(specimen, draw.n, seed=HELD_OUT_SEED + draw.seed, split=draw.split)
    score = score_folder(specimen, material, content)
    progress("scoring circuits", 1, 1)
    return score


def folder_name(discovery: Discovery) -> str:
    """The folder of a discovery: MIB's name of the task and of the model where it has one, otherwise our own."""
    name = Path(str(discovery.specimen)).name
    if discovery.behaviour is None:
        return f"{_word(name)}_{SPECIMEN_MODEL}"
    known = (short for short, names in MODELS.items() if name.lower() in names)
    return f"{_word(label_of(discovery.behaviour))}_{next(known, _word(name))}"


def _word(name: str) -> str:
    """A name without underscores, which part task and model."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "unnamed"


def _problems(rows: Sequence[MibFolder]) -> list[str]:
    problems = []
    for what, known, least in (("task", TASKS, LEAST_TASKS), ("model", tuple(MODELS), LEAST_MODELS)):
        names = sorted({getattr(row, what) for row in rows})
        if unknown := [name for name in names if name not in known]:
            problems.append(f"MIB has no {what} {', '.join(unknown)}")
        if (count := len(names) - len(unknown)) < least:
            problems.append(f"MIB needs at least {least} {what}s and this has {count}")
    if len({row.level for row in rows}) > 1:
        problems.append("folders are of edges and of nodes; MIB takes one level")
    return problems
