"""Functions behind scripts in the published form, for agents that know nothing of us.

    with ServedFunctions({"f00003": function}, directory, budget=50) as served:
        served.wait()

Every function gets a folder with `function.py` (and the same file as `function_code.py`, the name in the published
dataset). `python function.py 1 2.5` prints `Function input - output pairs: (1, 3.0) (2.5, 4.5)`. The script holds a
function's name and the address of a Unix socket, and no definition: a thread here answers, counts queries against the
budget and writes each into `queries.jsonl`. A server that is started again on the same directory counts on from there.

What an agent wrote into the folders (`description.txt`, `code.py`, `domain.txt`, the published names) is read back as
answers by `answer_in`.
"""

import errno
import json
import os
import shutil
import socketserver
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vesalius.errors import BadInput, Failed
from vesalius.files import parse_json, read_text, write_text
from vesalius_functions.box import Answer, Asked, Box, Function, OutOfQueries, Reply, json_value
from vesalius_functions.scripts import SCRIPT

LEDGER = "queries.jsonl"
#: What names a directory of answers where an interpreter is named.
PREFIX = "answers:"
#: The text that published scripts print before the pairs.
LEAD = "Function input - output pairs: "
#: Inputs and bytes of one call of a script.
MOST_AT_ONCE, LONGEST_REQUEST = 1_000, 1 << 20
#: Seconds that a connection may be silent.
_PATIENCE = 30.0
#: Bytes that are read of a file with an answer.
_LONGEST_ANSWER = 1 << 20

_FUNCTION = '''"""Asks a function whose definition is kept elsewhere: python function.py INPUT [INPUT ...]"""

import json
import socket
import sys

ADDRESS = {address!r}
FUNCTION = {function!r}


def main():
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(ADDRESS)
        except OSError:
            sys.exit("the functions are not served any more; start `vesalius functions serve` again")
        request = json.dumps({{"function": FUNCTION, "inputs": sys.argv[1:]}})
        connection.sendall(request.encode() + b"\\n")
        with connection.makefile(encoding="utf-8") as lines:
            reply = json.loads(lines.readline() or "{{}}")
    print(reply.get("printed", "the server gave no answer"))
    sys.exit(reply.get("code", 1))


if __name__ == "__main__":
    main()
'''


class ServedFunctions:
    """Functions that are served until the block ends.

    Args:
        functions: by name; the names become folders.
        directory: where the folders and the ledger are written.
        budget: inputs that each function may be asked, over all restarts; None for any number.
    """

    def __init__(self, functions: Mapping[str, Function], directory: Path, *, budget: int | None = None) -> None:
        self.directory, self._budget = directory, budget
        self._categories = {name: function.category for name, function in functions.items()}
        self._ledger = directory / LEDGER
        _drop_torn_line(self._ledger)
        asked = _read_ledger(self._ledger)
        self._boxes = {
            name: Box(function, budget=budget, asked=asked.get(name, ())) for name, function in functions.items()
        }
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._server: socketserver.BaseServer | None = None
        self._place: str | None = None

    def __enter__(self) -> Self:
        self._place = tempfile.mkdtemp(prefix="vesalius-serve-")  # for its owner alone, and short enough for a socket
        address = os.path.join(self._place, "s")
        self._server = _Server(address, self)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        for name in self._boxes:
            folder = self.directory / name
            folder.mkdir(parents=True, exist_ok=True)
            for script in ("function.py", SCRIPT):
                write_text(folder / script, _FUNCTION.format(address=address, function=name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)

    def wait(self) -> None:
        """Serve until Ctrl-C."""
        while not self._stopped.wait(1.0):
            pass

    @property
    def asked(self) -> dict[str, int]:
        """How many inputs each function was asked, earlier servers' included."""
        return {name: box.asked for name, box in self._boxes.items()}

    def answer(self, request: object) -> dict[str, Any]:
        """What a call of a script prints, and its exit code."""
        name, inputs = (request.get("function"), request.get("inputs")) if isinstance(request, dict) else (None, None)
        box = self._boxes.get(name) if isinstance(name, str) else None
        if box is None or not isinstance(inputs, list) or not all(isinstance(one, str) for one in inputs):
            return {"printed": "not a request that this server knows", "code": 1}
        if len(inputs) > MOST_AT_ONCE:
            return {"printed": f"{len(inputs)} inputs at once; give at most {MOST_AT_ONCE}", "code": 1}
        with self._lock:
            try:
                replies = box.ask([_input(text, self._categories[str(name)]) for text in inputs])
            except OutOfQueries as error:
                return {"printed": str(error), "code": 1}
            try:
                self._write(str(name), box.log[len(box.log) - len(inputs) :])
            except OSError as error:
                return {"printed": f"not answered: {LEDGER} could not be written ({error.strerror})", "code": 1}
        pairs = " ".join(f"({text}, {_output(reply)})" for text, reply in zip(inputs, replies, strict=True))
        return {"printed": LEAD + pairs, "code": 0}

    def _write(self, name: str, asked: Sequence[Asked]) -> None:
        """Put queries into the ledger before their outputs are shown: all of them or, without room, none."""
        lines = [{"function": name, "input": json_value(one.input), **_told(one.reply)} for one in asked]
        content = "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in lines).encode()
        with self._ledger.open("ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                if file.write(content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(end)
                raise


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, address: str, served: ServedFunctions) -> None:
        self.served = served
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke off costs nothing and is not reported."""


class _Handler(socketserver.StreamRequestHandler):
    timeout = _PATIENCE

    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        line = self.rfile.readline(LONGEST_REQUEST)
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        self.wfile.write(json.dumps(self.server.served.answer(request)).encode() + b"\n")


def answers_directory(name: str) -> Path | None:
    """The directory in `answers:DIR`; None where a name is not of this form, refused where it is not there."""
    if not name.startswith(PREFIX):
        return None
    directory = Path(name.removeprefix(PREFIX)).expanduser()
    if not directory.is_dir():
        raise BadInput(f"interpreter {name!r}: no such directory; give the one of `vesalius functions serve`")
    return directory


def answer_in(directory: Path, function: str) -> Answer:
    """What an agent wrote about a function into its folder, with the number of its queries."""
    folder = directory / function
    description = _text(folder / "description.txt")
    if description is None:
        raise Failed(f"{folder}: has no description.txt; let the agent write its answer there")
    if not description.strip():
        raise Failed(f"{folder}: its description.txt is empty; let the agent write its answer there")
    queries = len(_read_ledger(directory / LEDGER).get(function, ()))
    return Answer(
        description=description, code=_text(folder / "code.py"), domain=_text(folder / "domain.txt"), queries=queries
    )


def _text(path: Path) -> str | None:
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(_LONGEST_ANSWER).decode("utf-8", "replace")


def _drop_torn_line(path: Path) -> None:
    """Cut off a last line that a crash left without its end: its output was not shown."""
    if path.is_file():
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)


def _read_ledger(path: Path) -> dict[str, list[Asked]]:
    """Earlier queries by function; a line that was cut off by a crash is left out."""
    found: dict[str, list[Asked]] = {}
    if path.is_file():
        for number, line in enumerate(read_text(path).splitlines(), 1):
            if not line.endswith("}"):
                continue
            row = parse_json(line.encode(), source=f"{path}, line {number}")
            if not isinstance(row, dict) or not isinstance(row.get("function"), str):
                raise BadInput(f"{path}, line {number}: not a query; move the file away to start afresh")
            reply = Reply(row.get("output"), row.get("error"))
            found.setdefault(row["function"], []).append(Asked(row.get("input"), reply))
    return found


def _told(reply: Reply) -> dict[str, Any]:
    return {"output": json_value(reply.value)} if reply.error is None else {"error": reply.error}


def _input(text: str, category: str) -> Any:
    """An argument of the command line as the function takes it; what is no number the function refuses itself."""
    if category != "numeric":
        return text
    try:
        return float(text)
    except ValueError:
        return text


def _output(reply: Reply) -> str:
    """An output as published scripts print it: what could not be computed is None."""
    return "None" if reply.error is not None else str(reply.value)
