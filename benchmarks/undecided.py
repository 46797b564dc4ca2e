"""How many claims of explanations of natural models stay open, of the claims made and of all questions.

    python -m benchmarks.undecided DIRECTORY --out benchmarks/results/undecided.json

reads every explanation of a natural model under the directory. A claim is *open* where it is undecided or untested. A
question that the prompts of the selection left too close to its bar is not asked but listed with its component
(`not_asked`): the share of claims falls by asking less, so the share of all questions is given beside it, in which
these count as open.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.plain_claims import natural_explanations
from vesalius.files import write_json
from vesalius.statistics import share_interval

OPEN = ("undecided", "untested")


def counts(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Claims by verdict, those open and those not asked by kind, and the two shares with Wilson intervals."""
    verdicts, open_kinds, kinds, left = (Counter[str]() for _ in range(4))
    for document in documents:
        for part in document["components"]:
            left.update(one["kind"] for one in part.get("not_asked", ()))
            for claim in part["claims"]:
                verdicts[claim["verdict"]] += 1
                kinds[claim["kind"]] += 1
                open_kinds[claim["kind"]] += claim["verdict"] in OPEN
    claims, still_open = verdicts.total(), sum(verdicts[word] for word in OPEN)
    return {
        "claims": claims,
        "verdicts": dict(verdicts),
        "open": _share(still_open, claims),
        "not_asked": left.total(),
        "open_of_all_questions": _share(still_open + left.total(), claims + left.total()),
        "open_by_kind": {kind: [n, kinds[kind]] for kind, n in open_kinds.most_common() if n},
        "not_asked_by_kind": dict(left.most_common()),
    }


def _share(some: int, n: int) -> dict[str, Any]:
    low, high = share_interval(some, n)
    return {"n": some, "of": n, "share": some / max(1, n), "low": low, "high": high}


def _line(name: str, row: Mapping[str, Any]) -> str:
    asked, every = row["open"], row["open_of_all_questions"]
    return (
        f"{name:14} {asked['n']:4} of {asked['of']:4} claims open ({asked['share']:.3f}); "
        f"{every['n']:4} of {every['of']:4} questions ({every['share']:.3f})"
    )


def main() -> None:
    """Print one line a behaviour and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    documents = list(natural_explanations(given.directory))
    rows = [
        {"behaviour": one["behaviour"], "seed": one["seed"], "passes": one.get("rows"), "seconds": one.get("seconds")}
        | counts([one])
        for one in documents
    ]
    for name in dict.fromkeys(one["behaviour"] for one in documents):
        print(_line(name, counts(one for one in documents if one["behaviour"] == name)))
    whole = counts(documents)
    print(_line("all", whole))
    print("open by kind:", ", ".join(f"{kind} {n} of {of}" for kind, (n, of) in whole["open_by_kind"].items()))
    print("not asked:", ", ".join(f"{kind} {n}" for kind, n in whole["not_asked_by_kind"].items()))
    if given.out:
        write_json(given.out, {"benchmark": "undecided", "all": whole, "explanations": rows})


if __name__ == "__main__":
    main()
