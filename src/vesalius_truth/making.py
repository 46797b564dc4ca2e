"""From programs to specimens: train, measure, and write the directories of accepted models.

One program is trained alone until its gate passes (`training.fit`); many are trained together, in stacks of similar
shape, which on a GPU costs little more than one. Either way a specimen directory holds the model, its card and, in a
folder that only grading reads, the program it was made from:

    DIR/model.json, model.safetensors, specimen.json
    DIR/answer_key/spec.py, program.json
"""

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from vesalius.circuits.specimens import KEY_FOLDER, SPECIMEN_FILE, Card, as_examples, write_specimen
from vesalius.errors import BadInput, Failed
from vesalius.files import parse_json, read_json, write_json
from vesalius.model.states import load_model
from vesalius.model.transformer import Transformer
from vesalius.rasp import Program, load_spec, random_inputs
from vesalius.rasp.document import from_document, to_document
from vesalius.sandbox import Limits, Outcome, Sandbox
from vesalius_truth.training.fit import SettingResult, train_group
from vesalius_truth.training.gate import Gate, measure
from vesalius_truth.training.setting import Setting, setting_of
from vesalius_truth.training.trainer import Event

# The program beside a trained specimen, read without trusting its author.
#
# `vesalius train` leaves two files in `answer_key/`: `program.json`, the program as data, and `spec.py`, the file it
# was trained from. The data are read where they are there, and nothing is run. Specimens of earlier versions have
# `spec.py` alone: it runs in a sandbox that holds the RASP language and nothing else, and only the program's data come
# out.

KEY_FILE, PROGRAM_FILE = "spec.py", "program.json"
LIMITS = Limits(cpu_seconds=60, wall_seconds=120, result_bytes=16 << 20)
MAX_BYTES = 1 << 20


def key_file(directory: Path) -> Path:
    """The key of a trained specimen as text; refused where there is none."""
    path = directory / KEY_FOLDER / KEY_FILE
    if not path.is_file():
        raise BadInput(f"{directory}: holds no {KEY_FOLDER}/{KEY_FILE}; only what `vesalius train` made can be graded")
    return path


def key_program(directory: Path) -> Program:
    """The program that a specimen was trained on."""
    data = directory / KEY_FOLDER / PROGRAM_FILE
    if not data.is_file():
        return program_of_spec(key_file(directory))
    try:
        return from_document(read_json(data))
    except BadInput as error:
        raise BadInput(f"{data}: {error}") from None


def program_of_spec(path: Path) -> Program:
    """The program of a SPEC.py, which runs in a sandbox."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > MAX_BYTES:
        raise BadInput(f"{path}: has {len(content)} bytes; a program of at most {MAX_BYTES} is read")
    return _program(content, str(path))


@cache
def _program(content: bytes, name: str) -> Program:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{name}: is not UTF-8 text; it must be a Python file that defines a program") from None
    try:
        outcome = _sandbox().execute("result = document(text, name)", {"text": text, "name": name}, limits=LIMITS)
    except Failed as error:
        raise Failed(f"{name}: is not run, because {error}") from None
    if not isinstance(outcome.result, str):
        raise BadInput(f"{name}: {_reason(outcome)}")
    try:
        return from_document(parse_json(outcome.result, source=name))
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None


def _reason(outcome: Outcome) -> str:
    """What the sandbox says of a program that gave none, in one line."""
    last = (outcome.error or "it gave no program").strip().splitlines()[-1]
    return last.removeprefix(f"{BadInput.__name__}: ")


@cache
def _sandbox() -> Sandbox:
    """This process's sandbox for such files; its warm process ends with ours."""
    return Sandbox("vesalius.rasp.text:names").__enter__()


N_EXAMPLES = 5
#: The shortest inputs `setting_of` trains on.
SHORTEST_TRAINED = 3
#: Models up to these widths share a stack; a stack is padded to its widest.
WIDTHS = (8, 32, 64)


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with what its specimen card needs; `path` is the SPEC.py file, `how` a line about training."""

    path: Path
    setting: Setting
    model: Transformer
    gate: Gate
    how: str


def write_trained(trained: TrainedModel, directory: Path) -> None:
    """Write an accepted model as a specimen directory; the card is written last and marks it as complete."""
    (directory / KEY_FOLDER).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(trained.path, directory / KEY_FOLDER / KEY_FILE)
    with contextlib.suppress(BadInput):  # values that JSON does not have, such as sets: the text alone is kept
        write_json(directory / KEY_FOLDER / PROGRAM_FILE, to_document(trained.setting.program))
    write_specimen(directory, trained.model.cpu(), _card(trained))


def make_many(
    paths: Sequence[Path], *, out: Path, device: torch.device | str, seed: int = 0
) -> Iterator[Event | SettingResult]:
    """Train the programs of many SPEC.py files in stacks of similar shape and write accepted models to `out/NAME`.

    NAME is the file's stem. Directories that already hold a specimen are skipped; a call that was killed resumes from
    the last check of its stack.
    """
    specs = {path.stem: path for path in paths}
    if len(specs) < len(paths):
        raise BadInput("two of the SPEC.py files have the same name; rename one, since each gets a directory OUT/NAME")
    settings = [
        replace(setting_of(load_spec(path)), name=name)
        for name, path in specs.items()
        if not (out / name / SPECIMEN_FILE).exists()
    ]
    for shape, group in _stacks(settings).items():
        stack = out / "-".join(map(str, shape))
        for event in train_group(group, device=device, out=stack, seed=seed):
            if isinstance(event, SettingResult):
                if event.gate.passed:
                    setting = next(setting for setting in group if setting.name == event.name)
                    _install(event, setting, specs[event.name], out / event.name)
                event = replace(event, directory=out / event.name)
            yield event
        shutil.rmtree(stack)


def _stacks(settings: Iterable[Setting]) -> dict[tuple[str, int, int], list[Setting]]:
    """Settings grouped by layers and width; each group is trained as one stack."""
    stacks: dict[tuple[str, int, int], list[Setting]] = {}
    for setting in settings:
        width = next((width for width in WIDTHS if setting.size.d_model <= width), setting.size.d_model)
        stacks.setdefault(("stack", setting.size.n_layers, width), []).append(setting)
    return dict(sorted(stacks.items()))


def _install(written: SettingResult, setting: Setting, path: Path, directory: Path) -> None:
    """Write one accepted model of a stack as a specimen."""
    record = read_json(written.directory / "training.json")
    how = f"{record['steps']} steps in a stack, seed {record['seed']}, learning rate {record['learning_rate']}"
    write_trained(TrainedModel(path, setting, load_model(written.directory), written.gate, how), directory)


def _card(trained: TrainedModel) -> Card:
    program, size = trained.setting.program, trained.setting.size
    tokens, lengths = random_inputs(program, N_EXAMPLES, seed=0)
    outputs = program.decode(program.run(tokens, lengths).output, lengths)
    inputs = [
        [program.vocab[code] for code in row[:length]]
        for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)
    ]
    return Card(
        id=trained.path.stem,
        name=program.name or trained.path.stem,
        kind="trained",
        vocab=program.vocab,
        max_len=program.max_len,
        min_len=_shortest_accepted(program, trained),
        outputs=None if program.numerical else program.outputs,
        components=tuple(str(component) for component in trained.setting.circuit),
        layers=size.n_layers,
        heads=size.n_heads,
        d_model=size.d_model,
        examples=as_examples(list(zip(inputs, outputs, strict=True))),
        gate=json.loads(trained.gate.model_dump_json()) | {"figures": trained.gate.metrics},
        made_by=f"vesalius train {trained.path.name} ({trained.how})",
    )


def _shortest_accepted(program: Program, trained: TrainedModel) -> int:
    """1 if the model also passes the gate on inputs of any length, else the shortest length it was trained on."""

    def draw(n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
        return random_inputs(program, n, seed=seed, min_length=1, device=device)

    gate = measure(trained.model, replace(trained.setting, draw=draw), n=trained.gate.n)
    return 1 if gate.passed else min(SHORTEST_TRAINED, program.max_len)
