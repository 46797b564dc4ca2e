"""The client that ships is the one in the sources, where the tools to build it are here (`make workbench`)."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import PATIENCE

ROOT = Path(__file__).parents[2]
SOURCES, STATIC = ROOT / "workbench" / "src", ROOT / "src" / "vesalius" / "workbench" / "static"
TOOLS = ROOT / "workbench" / "node_modules" / ".bin"
needs_tools = pytest.mark.skipif(
    not TOOLS.is_dir() or shutil.which("node") is None, reason="no node_modules here; `make workbench` installs them"
)


@pytest.mark.parametrize("name", ["index.html", "style.css"])
def test_plain_files_are_current(name: str) -> None:
    assert (STATIC / name).read_text(encoding="utf-8") == (SOURCES / name).read_text(encoding="utf-8")


@needs_tools
def test_the_built_script_is_current(tmp_path: Path) -> None:
    options = ["--bundle", "--minify", "--target=es2022", "--format=esm", f"--outfile={tmp_path / 'app.js'}"]
    subprocess.run([TOOLS / "esbuild", SOURCES / "main.ts", *options], check=True, timeout=PATIENCE)
    assert (tmp_path / "app.js").read_bytes() == (STATIC / "app.js").read_bytes()


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


def test_the_script_asks_for_nothing_elsewhere() -> None:
    script = (STATIC / "app.js").read_text(encoding="utf-8")
    outside = script.replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in outside
    assert "https:" not in outside
    assert "innerHTML" not in script
    assert "eval(" not in script
