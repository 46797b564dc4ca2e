"""Build the sdist and the wheel, install the wheel into a fresh environment, and run the README's first snippet there.

Everything happens in a temporary directory outside the checkout. The snippet runs as it stands, the embedded model
included, which the package fetches from the package index (CPU only: about five minutes).
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Files that the wheel must carry besides the code.
SHIPPED = (
    *("vesalius/py.typed", "vesalius/circuits/data/3/model.safetensors", "licenses/LICENSE"),
    *(
        path.relative_to(ROOT / "src").as_posix()
        for path in sorted((ROOT / "src/vesalius_bench/papers").rglob("*.json"))
    ),
)
#: The packages of the distribution.
PACKAGES = tuple(sorted(path.parent.name for path in (ROOT / "src").glob("*/__init__.py")))
NOT_IN_CORE = ("langgraph", "langchain", "gymnasium")


def main() -> None:
    """Run every step; the first that fails ends the check."""
    with tempfile.TemporaryDirectory(prefix="vesalius-release-") as folder:
        work = Path(folder)
        wheel, sdist = built(work)
        check_wheel(wheel)
        check_sdist(sdist)
        python = installed(wheel, work)
        packages = run(python, "-m", "pip", "list", "--format=freeze", cwd=work).split()
        unwanted = [name for name in packages if name.lower().startswith(NOT_IN_CORE)]
        require(not unwanted, f"a plain install brings {', '.join(unwanted)}")
        snippet = work / "snippet.py"
        snippet.write_text(first_block(ROOT / "README.md"), encoding="utf-8")
        print(run(python, str(snippet), cwd=work))
        print(run(python, "-m", "vesalius", "--version", cwd=work).strip())
        for words in (["--help"], ["specimens"], ["explain", "frac_prevs"]):
            run(python, "-m", "vesalius", *words, cwd=work)
        print(f"release check passed: {wheel.name}, {sdist.name}, {len(packages)} packages in a plain install")


def built(work: Path) -> tuple[Path, Path]:
    """The wheel, built from the sdist, and the sdist."""
    run(sys.executable, "-m", "build", "--outdir", str(work / "dist"), str(ROOT), cwd=work)
    (wheel,), (sdist,) = (list((work / "dist").glob(ending)) for ending in ("*.whl", "*.tar.gz"))
    return wheel, sdist


def check_wheel(wheel: Path) -> None:
    """The wheel has its data and a description whose links work anywhere."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(path))
    missing = [file for file in SHIPPED if not any(name.endswith(file) for name in names)]
    require(not missing, f"the wheel lacks {', '.join(missing)}")
    outside = [name for name in names if name.partition("/")[0] not in PACKAGES and not name.startswith("vesalius-")]
    require(not outside, f"the wheel holds {', '.join(outside[:5])}, which is not part of the package")
    relative = re.findall(r"\]\((?![a-z]+:|#)[^)]*\)", str(metadata.get_payload()))
    require(not relative, f"the description has relative links: {', '.join(relative)}")


def check_sdist(sdist: Path) -> None:
    """The sdist has what it takes to test and to document the package."""
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    missing = {"src", "tests", "docs", "Makefile", "constraints.txt", "CHANGELOG.md", "LICENSE"} - tops
    require(not missing, f"the sdist lacks {', '.join(sorted(missing))}")


def installed(wheel: Path, work: Path) -> Path:
    """The interpreter of a fresh environment with the wheel; torch first, so that no CUDA packages are installed."""
    venv.create(work / "env", with_pip=True)
    python = work / "env" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    (torch,) = re.findall(r"^torch==.*$", constraints.read_text(encoding="utf-8"), re.MULTILINE)
    for arguments in ([torch], ["-c", str(constraints), str(wheel)]):
        run(python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *arguments, cwd=work)
    return python


def first_block(page: Path) -> str:
    """The first Python block of a page."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    require(blocks, f"{page} has no Python block")
    return blocks[0]


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints; ends the check where it fails. The checkout is not on its path."""
    name = " ".join(Path(part).name for part in command)
    print(f"$ {name}", flush=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["VESALIUS_CACHE"] = str(cwd / "cache")
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    require(done.returncode == 0, f"{name} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def require(fact: object, problem: str) -> None:
    """End with one message where something is wrong."""
    if not fact:
        sys.exit(f"release check failed: {problem}")


if __name__ == "__main__":
    main()
