"""A tiny natural model on disk, and the command run inside this process."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from tests.model.tiny_gpt2 import write_tiny_gpt2
from vesalius.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


Vesalius = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _share(shared_sandboxes: None) -> None:
    """Commands that run inside this process run their programs in sandboxes that stay open."""


@pytest.fixture(scope="session")
def _tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = word_tokenizer()
    write_tiny_gpt2(directory, d_vocab=tokenizer.size, n_ctx=48, bos=BOS)
    tokenizer._backend.save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture
def tiny(_tiny: Path, tmp_path: Path) -> Path:
    """A Hugging Face directory of a random GPT-2 with a word tokenizer, free to be damaged."""
    return Path(shutil.copytree(_tiny, tmp_path / "tiny"))


@pytest.fixture
def vesalius(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Vesalius:
    """Runs the command with these arguments in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VESALIUS_DEBUG", raising=False)

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["vesalius", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Outcome(int(left.value.code or 0), out, err)

    return run
