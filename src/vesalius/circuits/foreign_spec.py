"""The program beside a trained specimen, read without trusting its author.

`vesalius train` leaves two files in `answer_key/`: `program.json`, the program as data, and `spec.py`, the file it was
trained from. The data are read where they are there, and nothing is run. Specimens of earlier versions have `spec.py`
alone: it runs in a sandbox that holds the RASP language and nothing else, and only the program's data come out.
"""

from functools import cache
from pathlib import Path

from vesalius.errors import BadInput, Failed
from vesalius.files import parse_json, read_json
from vesalius.rasp import Program
from vesalius.rasp.document import from_document
from vesalius.sandbox import Limits, Outcome, Sandbox

KEY_FOLDER, KEY_FILE, PROGRAM_FILE = "answer_key", "spec.py", "program.json"
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
    return Sandbox("vesalius.rasp.spec:names").__enter__()
