"""The examples in the documentation run: every python block of a page, in order, in one namespace."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

import vesalius
from vesalius.documents.base import REGISTERED
from vesalius.errors import BadInput

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Run as notebooks by test_notebooks.
TUTORIALS = ROOT / "docs" / "tutorials"


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def with_code(*, smollm: bool) -> list[Path]:
    pages = [page for page in PAGES if blocks(page) and page.parent != TUTORIALS]
    return [page for page in pages if ("smollm2" in "".join(blocks(page))) == smollm]


def run_page(page: Path) -> None:
    namespace: dict[str, object] = {}
    kinds = set(REGISTERED)
    try:
        for number, block in enumerate(blocks(page), 1):
            exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)
    except BadInput as error:
        if "is not installed" in str(error):
            pytest.skip(str(error))
        raise
    finally:  # a kind that a page defines is not for the tests after it
        for kind in {name for name, made in REGISTERED.items() if made.__module__ == "builtins"} - kinds:
            del REGISTERED[kind]


@pytest.mark.parametrize("page", with_code(smollm=False), ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    run_page(page)


@pytest.mark.slow
@pytest.mark.smollm
@pytest.mark.parametrize("page", with_code(smollm=True), ids=lambda page: page.name)
def test_examples_with_the_embedded_model_run(page: Path, smollm: object) -> None:
    run_page(page)


def test_names_of_the_package_in_the_text_exist() -> None:
    """`ves.NAME` outside of blocks is not run: `import vesalius as ves` must give it, from the core or a wing."""
    for page in PAGES:
        names = set(re.findall(r"\bves\.(\w+)", page.read_text()))
        missing = {name for name in names if not hasattr(vesalius, name)}
        assert not missing, f"{page.name}: {missing}"


def leaves(node: str | dict | list) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(node, str):
        yield node
    else:
        for part in node.values() if isinstance(node, dict) else node:
            yield from leaves(part)


def test_every_page_is_in_the_navigation() -> None:
    listed = set(leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages == listed


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def headings(page: Path) -> set[str]:
    """The names by which the headings of a page can be linked to."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", line).strip().lower()) for line in lines}


def test_links_to_headings_lead_somewhere() -> None:
    for page in PAGES:
        for target, heading in re.findall(r"\]\(([^)#:]*\.md|)#([\w-]+)\)", page.read_text()):
            there = page.parent / target if target else page
            assert heading in headings(there), f"{page.name} links to {target}#{heading}"


def test_the_reference_names_what_exists() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    sections = re.findall(r"^::: ([\w.]+)\n(?:    options: \{ members: \[([^\]]*)\] \})?", page, re.MULTILINE)
    assert len(sections) > 40
    for name, members in sections:
        module = importlib.import_module(name)
        missing = [member for member in re.findall(r"\w+", members) if not hasattr(module, member)]
        assert not missing, f"{name} has no {missing}"
