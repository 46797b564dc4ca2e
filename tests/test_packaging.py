"""What a release carries: the description on a package index, the version and the changelog, the pre-commit hooks."""

import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from vesalius.version import __version__

ROOT = Path(__file__).parents[1]
PAGE = """# Title

![a picture](docs/images/x.png)

*What it shows, see [the guide](docs/guide.md).*

See [docs](docs/index.md), [a paper](https://arxiv.org/abs/2309.03886), [below](#below) and `hook_result[2]`.
"""


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_links_of_the_description_are_absolute_where_the_repository_is_known() -> None:
    hatch_build = pytest.importorskip("hatch_build")
    text = hatch_build.description(PAGE, "https://example.org/v/")
    assert "![a picture](https://example.org/v/raw/HEAD/docs/images/x.png)" in text
    assert "see [the guide](https://example.org/v/blob/HEAD/docs/guide.md)" in text
    assert text.endswith(
        "See [docs](https://example.org/v/blob/HEAD/docs/index.md), [a paper](https://arxiv.org/abs/2309.03886), "
        "[below](#below) and `hook_result[2]`.\n"
    )


def test_without_a_repository_links_are_text_and_pictures_are_left_out() -> None:
    hatch_build = pytest.importorskip("hatch_build")
    assert hatch_build.description(PAGE, None) == (
        "# Title\n\nSee docs, [a paper](https://arxiv.org/abs/2309.03886), [below](#below) and `hook_result[2]`.\n"
    )
    readme = hatch_build.description((ROOT / "README.md").read_text(encoding="utf-8"), None)
    assert re.findall(r"\]\((?!https:)", readme) == []


def test_the_changelog_has_this_version_with_its_date() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *releases = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    dated = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})", line) for line in releases]
    assert all(dated)
    versions, dates = zip(*(match.groups() for match in dated if match), strict=True)
    assert versions[0] == __version__
    assert list(map(date.fromisoformat, dates)) == sorted(map(date.fromisoformat, dates), reverse=True)


def test_classifiers_name_the_supported_versions_of_python(project: dict[str, Any]) -> None:
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert versions == ["3.11", "3.12", "3.13"]
    assert project["requires-python"] == f">={versions[0]}"
    assert (ROOT / "src" / "vesalius" / "py.typed").exists()


def test_the_pages_that_the_server_offers_are_in_the_wheel() -> None:
    resources = pytest.importorskip("vesalius_agents.mcp.server")
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    included = wheel["wheel"]["force-include"]
    recorded = {source for source in included if source.startswith(("benchmarks/results/", "examples/recorded/"))}
    assert all(included.pop(source) == f"vesalius_bench/papers/recorded/{source}" for source in recorded)
    assert all((ROOT / source).exists() for source in recorded)
    assert included == {f"docs/{page}": f"vesalius_agents/mcp/docs/{page}" for page in resources.PAGES.values()}
    for name, page in resources.PAGES.items():
        assert resources.documentation_page(name) == (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_every_core_dependency_is_pinned_for_ci(project: dict[str, Any]) -> None:
    pins = set(re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    assert {re.split(r"[<>=]", line)[0] for line in project["dependencies"]} <= pins


def test_the_hooks_before_a_commit_run_what_ci_runs() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    hooks = {hook["id"]: hook for repository in repositories for hook in repository["hooks"]}
    assert {"check-json", "check-toml", "check-yaml", "end-of-file-fixer", "ruff-check", "ruff-format"} < set(hooks)
    assert hooks["pyrefly"]["pass_filenames"] is False
    assert all(repository["repo"] == "local" or repository["rev"].startswith("v") for repository in repositories)
