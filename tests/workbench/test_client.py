"""The client that ships is the one in the sources, where the tools to build it are here (`make workbench`)."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import PATIENCE
from vesalius.report.html import package_text
from vesalius.report.widgets import SCRIPT as WIDGET

ROOT = Path(__file__).parents[2]
SOURCES, STATIC = ROOT / "workbench" / "src", ROOT / "src" / "vesalius_workbench" / "static"
TOOLS = ROOT / "workbench" / "node_modules" / ".bin"
needs_tools = pytest.mark.skipif(
    not TOOLS.is_dir() or shutil.which("node") is None, reason="no node_modules here; `make workbench` installs them"
)


def test_plain_files_are_current() -> None:
    assert (STATIC / "index.html").read_text(encoding="utf-8") == (SOURCES / "index.html").read_text(encoding="utf-8")
    style = str(package_text("parts.css")) + (SOURCES / "style.css").read_text(encoding="utf-8")
    assert (STATIC / "style.css").read_text(encoding="utf-8") == style


@needs_tools
@pytest.mark.parametrize(("source", "built"), [("main.ts", STATIC / "app.js"), ("widget.ts", WIDGET)])
def test_the_built_scripts_are_current(source: str, built: Path, tmp_path: Path) -> None:
    options = ["--bundle", "--minify", "--target=es2022", "--format=esm", "--loader:.css=text"]
    command = [TOOLS / "esbuild", SOURCES / source, *options, f"--outfile={tmp_path / 'built.js'}"]
    subprocess.run(command, check=True, timeout=PATIENCE)
    assert (tmp_path / "built.js").read_bytes() == built.read_bytes()


@needs_tools
def test_the_sources_have_no_type_errors_and_pass_their_tests() -> None:
    for script in ("check", "test"):
        done = subprocess.run(
            ["npm", "run", script],
            cwd=ROOT / "workbench",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("built", [STATIC / "app.js", WIDGET])
def test_the_scripts_ask_for_nothing_elsewhere(built: Path) -> None:
    script = built.read_text(encoding="utf-8")
    outside = script.replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in outside
    assert "https:" not in outside
    assert "innerHTML" not in script
    assert "eval(" not in script
