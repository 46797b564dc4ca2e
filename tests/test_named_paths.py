"""Files and folders that the documents for contributors and users name are there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("AGENTS.md", "CONTRIBUTING.md", "README.md", "RELEASING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
TOP = ("src", "tests", "docs", "benchmarks", "examples", "scripts")
PACKAGE = ROOT / "src" / "vesalius"
#: Names of files inside a user's specimen or of a published dataset, and a prefix of several files.
ELSEWHERE = {"answer_key/spec.py", "code.py", "function_code.py", "benchmarks/sweep"}


def named(text: str) -> Iterator[str]:
    """Every path in backticks: from a top folder of the repository, a folder of the package, or a Python file."""
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    for word in re.findall(r"`([\w./-]+)`", text):
        first, slash, _ = word.partition("/")
        if word not in ELSEWHERE and (
            (slash and first in TOP) or (first in rooms and word.endswith("/")) or word.endswith(".py")
        ):
            yield word


def exists(word: str, folders: list[Path]) -> bool:
    """Whether a path is there: from the root, from the package, or in one of the folders named before it."""
    return any((place / word).exists() for place in (ROOT, PACKAGE, *folders))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_paths_of_a_page_exist(page: Path) -> None:
    for line in page.read_text(encoding="utf-8").splitlines():
        folders: list[Path] = []
        for word in named(line):
            assert exists(word, folders) or (page.name != "AGENTS.md" and list(ROOT.glob(f"[!.]*/**/{word}"))), word
            full = ROOT / word if (ROOT / word).exists() else PACKAGE / word
            folders += [full if full.is_dir() else full.parent, full.parent]


def test_a_path_that_is_gone_is_seen() -> None:
    assert list(named("`src/vesalius/nowhere.py` and `nothing.py`, not `Circuit.read` or `--out`")) == [
        "src/vesalius/nowhere.py",
        "nothing.py",
    ]
    assert not exists("nothing.py", [PACKAGE / "model"])
    assert exists("hooks.py", [PACKAGE / "model"])
