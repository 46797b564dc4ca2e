"""Every command that writes, as cheap as it can be: what `benchmarks.kills` kills, and what
`tests/cli/test_no_room.py` gives a full disk and a place that is read-only.

In the words of a command, `{in}` is the folder of what it reads and `{out}` the place where it writes. `INPUTS` are
made in their order by commands too; `make_files` writes the files that those need. `tests/cli/test_no_room.py` also
holds the tables against the command line: a command that is in none of them fails it.
"""

import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPEC = """
from vesalius.rasp import Map, tokens

vocab = ["a", "b", "c"]
max_len = 4
causal = True


def program():
    return Map({"a": "one", "b": "two", "c": "three"}.get, tokens, name="spelt")
"""
CLAIM = """
specimen = "41"
n = 16
prediction = "supported"

[claim]
kind = "necessary"
component = "L0_MLP"
replacement = "resample"
"""
RATINGS = "specimen,component,rater,measure,score\n41,L0_MLP,anna,description_quality,2\n"
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Austria": "Vienna"}
#: A generated task of seed 62001 with one component, trained before.
TRAINED = "generated_62001_000"
TRANSCODERS = "transcoders arithmetic --text {in}/sums.txt --layers 2 --latents 8 --k 2 --steps 2 --batch 16 --n 8"
SEALED = "--passphrase-file {in}/secret.txt"


@dataclass(frozen=True)
class Writing:
    """A command that writes: its words after `vesalius`, and the inputs that it needs.

    `copied` is the input that `{out}` begins as a copy of; with `folder` the command writes a file into `{out}`, which
    is made for it. `slow` commands take more than a few seconds, so that only the benchmark runs them.
    """

    words: str
    needs: tuple[str, ...] = ()
    copied: str = ""
    folder: bool = False
    slow: bool = False

    def command(self, place: Path, out: Path) -> list[str]:
        """The words, with the folder of inputs and the place to write to."""
        return [word.replace("{in}", str(place)).replace("{out}", str(out)) for word in self.words.split()]

    def begin(self, place: Path, out: Path) -> None:
        """What lies at `out` before the command is first given."""
        if self.copied:
            shutil.copytree(place / self.copied, out)
        elif self.folder:
            out.mkdir()


#: What commands read, in the order in which it is made: the folder or file in `{in}`, and the command that makes it.
INPUTS = {
    "explained": "explain 41 --out {in}/explained",
    "found": "discover 41 --method eap --n 4 --quick --out {in}/found",
    "swept": "sweep 41 --n 4 --out {in}/swept",
    "again": "sweep 41 --n 4 --seed 1 --out {in}/again",
    "asked": "bench functions --category strings --count 1 --grading-seed 5 --jobs 1 --out {in}/asked",
    "coded": f"{TRANSCODERS} --out {{in}}/coded",
    "claim.json": "claims register {in}/claim.toml --out {in}/claim.json",
    "running": "explain {in}/inducer -b induction -c L0H0,L1H0 --n 4 --out {in}/running",
    "league": f"league make --specimens {{in}}/trained --circuits 1 --functions 0 {SEALED} --out {{in}}/league",
    "submitted": "league submit {in}/submitted --scientist builtin",
}
#: Inputs that begin as a copy of others.
BEGUN = {"submitted": "league"}

#: Commands that write and end, by name.
WRITING = {
    "sweep": Writing("sweep 41 --n 4 --out {out}"),
    "discover": Writing("discover 41 --method eap --n 4 --quick --out {out}"),
    "explain": Writing("explain 41 --out {out}"),
    "atlas": Writing("atlas 41 --out {out}"),
    "align": Writing("align arithmetic --n 4 --held-out 8 --role end --layers 2 --out {out}", slow=True),
    "what-if": Writing("what-if 41 -c L0_MLP --n 8 --out {out}"),
    "complete": Writing("complete {in}/inducer --prompt the --edits L0H0 --tokens 1 --out {out}"),
    "neurons": Writing("neurons 41 --keep 0.5 --n 8 --out {out}"),
    "transcoders": Writing(f"{TRANSCODERS} --out {{out}}"),
    "latents": Writing(
        "latents arithmetic -b addition:signs=-+,high=99,shots=0 --features {in}/coded --n 4 --out {out}", ("coded",)
    ),
    "sets": Writing("sets {in}/inducer -b induction --n 8 --search pairs --out {out}"),
    "faithfulness": Writing("faithfulness 41 -c L0_MLP --n 8 --out {out}"),
    "retest": Writing("retest {in}/explained -c L0_MLP --seed 5 --out {out}", ("explained",)),
    "ladder": Writing("ladder {in}/running --n 4 --out {out}", ("running",), slow=True),
    "improve": Writing("improve {in}/running --n 4 --passes 200 --out {out}", ("running",), slow=True),
    "diff": Writing("diff {in}/swept {in}/again --out {out}", ("swept", "again")),
    "compare": Writing("compare {in}/asked --out {out}", ("asked",)),
    "convert": Writing("convert {in}/found --out {out}/graph.json", ("found",), folder=True),
    "report": Writing("report {out}", ("explained",), copied="explained"),
    "behaviours": Writing("behaviours {in}/inducer -b {in}/rows.jsonl --propose {out}/new.jsonl", folder=True),
    "train": Writing("train {in}/spelt.py --out {out}", slow=True),
    "generate": Writing("generate --seed 7 --count 1 --depth 2 --out {out}"),
    "bench circuits": Writing("bench circuits --ids 41 --jobs 1 --out {out}"),
    "bench natural": Writing(
        "bench natural planted --n 8 --claims 8 --top 2 --scientist scripted --jobs 1 --out {out}", slow=True
    ),
    "bench discovery": Writing("bench discovery --methods eap --ids 41 --n 4 --jobs 1 --out {out}"),
    "bench functions": Writing(
        "bench functions --category strings --count 2 --grading-seed 5 --jobs 1 --out {out}", slow=True
    ),
    "bench mechrl": Writing(
        "bench mechrl {in}/inducer --training induction --held-out ioi --control {in}/articles.txt --picks 4 --seeds 1 "
        "--steps 64 --episodes 1 --jobs 1 --out {out}",
        slow=True,
    ),
    "claims register": Writing("claims register {in}/claim.toml --out {out}/claim.json", folder=True),
    "claims verify": Writing("claims verify {in}/claim.json --out {out}/verdict.json", ("claim.json",), folder=True),
    "claims key": Writing("claims key {out}/key.pem", folder=True),
    "functions reliability": Writing(
        "functions reliability --category relations --count 1 --inputs 2 --jobs 1 --out {out}"
    ),
    "functions unit-tests": Writing(
        "functions unit-tests {in}/asked --count 1 --export {out}/sheet.csv", ("asked",), folder=True
    ),
    "functions evaluator-data": Writing("functions evaluator-data --category strings --tests 4 --out {out}"),
    "functions evaluator-train": Writing(
        "functions evaluator-train {in}/taken --base {in}/base --forms single --rank 2 --epochs 1 --batch 8 "
        "--device cpu --out {out}",
        slow=True,
    ),
    "league make": Writing(
        f"league make --seed 7 --specimens {{in}}/trained --circuits 1 --functions 0 {SEALED} --out {{out}}"
    ),
    "league submit": Writing("league submit {out} --scientist always-MAPPER", ("league",), copied="league"),
    "league score": Writing(
        f"league score {{out}} builtin {SEALED}", ("league", "submitted"), copied="submitted", slow=True
    ),
    "mib write": Writing("mib write {in}/found --out {out}", ("found",)),
    "mib align": Writing("mib align arithmetic --at resid3@end --n 4 --held-out 8 --out {out}"),
    "paper": Writing("paper find --table 2 {in}/asked --out {out}", ("asked",)),
    "ratings": Writing("ratings {in}/ratings.csv --out {out}"),
    "study": Writing("study af1 --model arithmetic --circuit {in}/sum.json --n 4 --out {out}", slow=True),
    "survey": Writing("survey {in}/inducer -b induction --n 4 --out {out}", slow=True),
}
#: Commands that write for as long as they run: `benchmarks.kills` drives `open` and `mcp` by programs of its own.
SERVING = ("open", "mcp", "functions serve")
#: Commands that write nothing but what they print, and why those that could are here.
READING = {
    **dict.fromkeys(("check", "show", "predict", "look", "runs", "schema", "specimens", "models"), ""),
    **dict.fromkeys(
        ("claims show", "functions sample", "league table", "mib check", "mib score", "mib interchange"), ""
    ),
    "replay": "what it repeats is written to a temporary directory, which goes with it",
    "plugins": "--trust writes one private file of a few lines, tested in tests/test_consent.py",
}


def make_files(place: Path) -> None:
    """The files that commands and inputs need; everything is small and made by hand."""
    from tests.behaviours.word_tokenizer import word_tokenizer
    from tests.explanations.induction_model import as_specimen, induction_model
    from tests.functions.evaluator_base import write_base, write_data

    from vesalius.components import Component
    from vesalius.documents.circuit import Circuit
    from vesalius.intervene.edges import EdgeGraph

    place.mkdir(parents=True, exist_ok=True)
    for name, text in {"spelt.py": SPEC, "claim.toml": CLAIM, "ratings.csv": RATINGS}.items():
        (place / name).write_text(text)
    (place / "secret.txt").write_text("a long passphrase\n")
    parts = dict.fromkeys(map(Component.parse, ("L0H3", "L1H0", "L2_MLP")), 1.0)
    Circuit.scored(EdgeGraph(3, 6), 192, parts, {}).write(place / "sum.json")  # of `arithmetic`
    rows = [{"prompt": f"The capital of {one} is", "answer": f" {city}"} for one, city in CAPITALS.items()]
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    as_specimen(induction_model(word_tokenizer().size)).save(place / "inducer")
    cities = list(CAPITALS.values())
    articles = [" ".join(cities[(i * number) % len(cities)] for i in range(40)) for number in range(1, 9)]
    (place / "articles.txt").write_text("\n\n".join(articles))
    sums = "\n\n".join(f"{a} - {b} + {a + b} =" for a in range(10, 40) for b in range(10, 20))
    (place / "sums.txt").write_text(sums)
    write_base(place / "base")
    write_data(place / "taken")
    with tarfile.open(ROOT / "benchmarks" / "fresh_62001.tgz") as archive:
        members = [one for one in archive.getmembers() if TRAINED in Path(one.name).parts]
        archive.extractall(place / "trained", members, filter="data")


def make_inputs(place: Path, names: tuple[str, ...], run: Callable[[list[str]], None]) -> None:
    """Run the commands that make these inputs where they are not there yet."""
    for name, words in INPUTS.items():
        if name in names and not (place / name).exists():
            if name in BEGUN:
                shutil.copytree(place / BEGUN[name], place / name)
            run(words.replace("{in}", str(place)).split())
