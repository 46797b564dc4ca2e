"""The built-in scientist and a scripted agent on the arithmetic model, against its established roles.

    OMP_NUM_THREADS=1 python -m benchmarks.addition_roles --out benchmarks/results/addition_roles.json

For every component: the role that `scripts/study_arithmetic.py` established by intervening on sets of heads, the role
that the built-in scientist names on 64 held-out prompts, and the claims of `examples/hyve_natural.py`. Heads of layer 2
are not selected by default; they are studied by name. Beside it a model with a planted layer, one head of which the
logit lens shows and nothing needs (`benchmarks.planted_lens`).

Every supported claim is measured again by `benchmarks.plain_claims`, which uses hooks alone, on 256 other prompts.
*False support* is a supported claim whose effect is there not above the least that counts.
"""

import argparse
import runpy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.plain_claims import PlainCheck
from benchmarks.planted_lens import PLANTED, arithmetic_with_planted_head
from vesalius.api import explain, load
from vesalius.backbones import Scripted, open_backbone
from vesalius.circuits.key.arithmetic import established_roles
from vesalius.documents.explanation import ComponentExplanation
from vesalius.explanations.hyve import explain_hyve
from vesalius.files import write_json

PROMPTS = 64
LATE = tuple(f"L2H{head}" for head in range(6))
SCRIPT = Path(__file__).parents[1] / "examples" / "hyve_natural.py"
#: Circuits that the scripted agent is given: the heads that move B, two for C with a third that is said to be primary
#: first, and the heads that move A.
CIRCUITS = (("L0H0", "L0H3", "L0H5"), ("L0H1", "L0H2", "L0H4"), tuple(f"L1H{head}" for head in range(6)))


def built_in(n: int = PROMPTS) -> list[ComponentExplanation]:
    """The default selection, then the heads of layer 2 by name."""
    specimen = load("arithmetic", device="cpu")
    return [*explain(specimen, n=n).components, *explain(specimen, list(LATE), n=n).components]


def scripted(circuits: Sequence[Sequence[str]] = CIRCUITS, n: int = PROMPTS) -> list[ComponentExplanation]:
    """What the scripted agent says of some circuits."""
    found: list[ComponentExplanation] = []
    for circuit in circuits:
        backbone = open_backbone(Scripted(runpy.run_path(str(SCRIPT))["reply"]))
        specimen = load("arithmetic", device="cpu")
        found += explain_hyve(specimen, backbone=backbone, components=list(circuit), n=n).explanation.components
    return found


def supported(parts: Iterable[ComponentExplanation]) -> list[tuple[str, str]]:
    """Kind and text of every supported claim."""
    return [(claim.kind, claim.text) for part in parts for claim in part.claims if claim.verdict == "supported"]


def checked(parts: Sequence[ComponentExplanation], check: PlainCheck) -> dict[str, Any]:
    """How many supported claims hold in the plain measurement, and those that do not."""
    verdicts = {(kind, text): check.holds(kind, text) for kind, text in supported(parts)}
    return {
        "supported": len(verdicts),
        "checked": sum(holds is not None for holds in verdicts.values()),
        "false support": [text for (_, text), holds in verdicts.items() if holds is False],
    }


def claims_of(part: ComponentExplanation) -> list[str]:
    """The decided claims of a component, in short."""
    return [f"{claim.kind} {claim.verdict}" for claim in part.claims if claim.verdict != "untested"]


def report(*, agent: bool = True) -> dict[str, Any]:
    """The table and the counts."""
    key = established_roles()["components"]
    own, plain = built_in(), PlainCheck(load("arithmetic", device="cpu"))
    said = scripted() if agent else []
    by_agent = {part.id: part for part in said}
    planted_specimen = arithmetic_with_planted_head()
    planted = explain(planted_specimen, [PLANTED, "L3H1", "L2_MLP"], n=PROMPTS).components
    rows = [
        {
            "component": part.id,
            "established": key[part.id]["role"],
            "built-in": part.role,
            "claims": claims_of(part),
            "scripted agent": claims_of(by_agent[part.id]) if part.id in by_agent else [],
        }
        for part in own
    ]
    return {
        "prompts": PROMPTS,
        "components": rows,
        "planted": [{"component": part.id, "built-in": part.role, "claims": claims_of(part)} for part in planted],
        "built-in claims": checked(own, plain),
        "scripted claims": checked(said, plain),
        "planted claims": checked(planted, PlainCheck(planted_specimen)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    found = report()
    for row in (*found["components"], *found["planted"]):
        print(f"{row['component']:7} | {row.get('established', 'planted')} | {row['built-in']}")
        print(f"        | agent: {', '.join(row.get('scripted agent', [])) or '-'}")
    for name in ("built-in claims", "scripted claims", "planted claims"):
        one = found[name]
        print(
            f"{name}: {one['supported']} supported, {one['checked']} measured again, {len(one['false support'])} false"
        )
        print("\n".join(f"  {text}" for text in one["false support"]))
    if out is not None:
        write_json(out, found)


if __name__ == "__main__":
    main()
