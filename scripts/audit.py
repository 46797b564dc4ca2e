"""Audit what is installed, without a network: versions against the pins, files against the hashes of their packages.

    python scripts/audit.py                   # every package: the pins of constraints.txt, the RECORD of its files
    python scripts/audit.py --packages mcp    # these alone
    python scripts/audit.py --lock            # asks the package index, and writes the hashes anew

A package lists the SHA-256 of every file that it installs in its RECORD. A file that differs was changed after it was
installed; whether what was installed is what was published is what `pip install --require-hashes -r
requirements-network.txt` checks, which has the hashes of every platform's files.
"""

import argparse
import base64
import csv
import hashlib
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS, LOCK = ROOT / "constraints.txt", ROOT / "requirements-network.txt"
#: What listens on a port, or checks signatures, and what that needs: the extras workbench, mcp and sealing.
EXPOSED = ("fastapi", "uvicorn", "mcp", "cryptography")
HEAD = """# Hashes of what the extras workbench, mcp and sealing bring, of every platform's files.
# pip install --require-hashes --no-deps -r requirements-network.txt; written by: python scripts/audit.py --lock
"""
JSON = "application/vnd.pypi.simple.v1+json"


def normal(name: str) -> str:
    """A name of a package as the index writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """The versions of constraints.txt."""
    found = re.findall(r"^([\w.-]+)==(\S+)", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    return {normal(name): version for name, version in found}


def installed() -> dict[str, metadata.Distribution]:
    """Every installed package; of two of one name the first, which is the one that is imported."""
    found: dict[str, metadata.Distribution] = {}
    for one in metadata.distributions():
        if one.metadata["Name"]:
            found.setdefault(normal(one.metadata["Name"]), one)
    return found


def wrong_version(name: str, version: str, pinned: dict[str, str]) -> str | None:
    """What is wrong with a version; a local part such as `+cpu` names a build of it."""
    wanted = pinned.get(name)
    return None if wanted in (None, version, version.partition("+")[0]) else f"{name} {version}: {wanted} is pinned"


def changed_files(package: metadata.Distribution) -> Iterator[str]:
    """The files of a package that are not what its RECORD says."""
    record = package.read_text("RECORD")
    if record is None:
        yield "has no RECORD"
        return
    for row in csv.reader(record.splitlines()):
        if len(row) != 3 or not row[1].startswith("sha256="):
            continue
        path = Path(str(package.locate_file(row[0])))
        try:
            found = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        except OSError:
            yield f"{row[0]} is missing"
            continue
        if found != row[1].removeprefix("sha256="):
            yield f"{row[0]} was changed"


def audit(names: Iterable[str] = ()) -> list[str]:
    """Everything that is wrong, one line each."""
    pinned, found, faults = pins(), installed(), []
    for name in sorted(set(map(normal, names)) or set(found)):
        if name not in found:
            faults.append(f"{name}: is not installed")
            continue
        faults += [line for line in [wrong_version(name, found[name].version, pinned)] if line]
        faults += [f"{name}: {fault}" for fault in changed_files(found[name])]
    return faults


def needed(names: Iterable[str]) -> list[str]:
    """These packages and all that they need, as far as it is installed here."""
    found, reached, waiting = installed(), set[str](), [normal(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in found:
            continue
        reached.add(name)
        for line in found[name].requires or ():
            if "extra ==" not in line:
                waiting.append(normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]))
    return sorted(reached)


def listed(answer: str) -> dict[str, str]:
    """The files of a package with their hashes; indexes answer in JSON, or with a page of links."""
    try:
        return {one["filename"]: one["hashes"]["sha256"] for one in json.loads(answer)["files"] if one["hashes"]}
    except ValueError:
        return dict(re.findall(r'/([^/"#]+)#sha256=([0-9a-f]{64})', answer))


def lock() -> str:
    """The pinned packages with the hashes of all their files, as the index that pip uses lists them."""
    from pip._internal.models.index import PyPI  # the index of pip where none is configured

    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    index = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or PyPI.simple_url
    found, lines = installed(), [HEAD]
    for name in needed(EXPOSED):
        version = found[name].version
        request = urllib.request.Request(f"{index.rstrip('/')}/{name}/", headers={"accept": JSON})
        with urllib.request.urlopen(request, timeout=60) as answer:
            files = listed(answer.read().decode())
        stems = tuple(f"{spelt}-{version}".lower() for spelt in {name, name.replace("-", "_"), name.replace("-", ".")})
        begins = tuple(f"{stem}{end}" for stem in stems for end in ("-", ".tar.gz"))
        hashes = sorted(digest for file, digest in files.items() if file.lower().startswith(begins))
        if not hashes:
            raise SystemExit(f"{name} {version}: the index lists no file of it")
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{one}" for one in hashes)]) + "\n")
    return "".join(lines)


def main() -> None:
    """Audit, or write the lock."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lock", action="store_true", help="ask the index, and write requirements-network.txt")
    parser.add_argument("--packages", nargs="*", default=[], help="these packages alone")
    options = parser.parse_args()
    if options.lock:
        LOCK.write_text(lock(), encoding="utf-8")
        return print(f"{LOCK.name} written")
    faults = audit(options.packages)
    for line in faults:
        print(line)
    count = len(options.packages) or len(installed())
    print(f"{count} packages, {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
