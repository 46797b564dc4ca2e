"""The tutorials as notebooks: they are what the pages say, and they run from the first cell to the last.

Cells run as in a notebook: one namespace, and the value of a cell's last expression is shown, as HTML where the object
has it.
"""

import ast
import json
import sys
from html.parser import HTMLParser
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]


def script() -> ModuleType:
    spec = util.spec_from_file_location("make_notebooks", ROOT / "scripts" / "make_notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = script()
PAGES: list[Path] = MAKE.pages()


def needs_smollm(page: Path) -> bool:
    return "smollm2-135m" in "".join(MAKE.BLOCK.findall(page.read_text()))


def names(*, smollm: bool) -> list[str]:
    return [page.stem for page in PAGES if needs_smollm(page) == smollm]


class Balanced(HTMLParser):
    """Fails where a tag is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("br", "img", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shown(value: Any) -> str:
    """What a notebook shows of a value."""
    if not hasattr(value, "_repr_html_"):
        return repr(value)
    text = value._repr_html_()
    reader = Balanced()
    reader.feed(text or "")
    assert reader.open == []
    return text


def run_cell(source: str, namespace: dict[str, Any], place: str) -> None:
    tree = ast.parse(source, place)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, place, "exec"), namespace)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), place, "eval"), namespace)
        if value is not None:
            print(shown(value))


def run_notebook(name: str) -> None:
    document = json.loads((ROOT / "docs" / "tutorials" / f"{name}.ipynb").read_text())
    module = ModuleType("__main__")
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            run_cell("".join(cell["source"]), module.__dict__, f"{name}.ipynb, {cell['id']}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_notebook_is_the_page(page: Path) -> None:
    written = json.loads(page.with_suffix(".ipynb").read_text())
    assert written == MAKE.notebook(page), "run python scripts/make_notebooks.py"
    ids = [cell["id"] for cell in written["cells"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", names(smollm=False))
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _prepare(tmp_path, monkeypatch)
    run_notebook(name)


@pytest.mark.slow
@pytest.mark.smollm
@pytest.mark.parametrize("name", names(smollm=True))
def test_a_notebook_with_the_embedded_model_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smollm: object
) -> None:
    _prepare(tmp_path, monkeypatch)
    run_notebook(name)


def _prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own with the example files, as in a checkout."""
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    torch.manual_seed(0)
