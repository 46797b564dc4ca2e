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
from vesalius.documents.explanation import ComponentExplanation
from vesalius.files import write_json
from vesalius.model.specimen import Specimen
from vesalius_agents.hyve import explain_hyve
from vesalius_backbones import Scripted, open_backbone
from vesalius_truth.key.other_keys import established_roles

PROMPTS = 64
LATE = tuple(f"L2H{head}" for head in range(6))
SCRIPT = Path(__file__).parents[1] / "examples" / "hyve_natural.py"
#: Circuits that the scripted agent is given: heads of layer 0, as two circuits, the other heads by layer, and the MLPs.
CIRCUITS = (
    ("L0H0", "L0H3", "L0H5"),
    ("L0H1", "L0H2", "L0H4"),
    tuple(f"L1H{head}" for head in range(6)),
    LATE,
    ("L0_MLP", "L1_MLP", "L2_MLP"),
)


def built_in(n: int = PROMPTS) -> list[ComponentExplanation]:
    """The default selection, then the heads of layer 2 by name."""
    specimen = load("arithmetic", device="cpu")
    return [*explain(specimen, n=n).components, *explain(specimen, list(LATE), n=n).components]


def scripted(specimen: Specimen, circuits: Sequence[Sequence[str]], n: int = PROMPTS) -> list[ComponentExplanation]:
    """What the scripted agent says of some circuits."""
    found: list[ComponentExplanation] = []
    for circuit in circuits:
        backbone = open_backbone(Scripted(runpy.run_path(str(SCRIPT))["reply"]))
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
    """What was decided about a component, in short: an agent's hypotheses that were not supported, then the claims."""
    before = [f"{one['hypothesis'].removeprefix('We hypothesise that ')} {one['verdict']}" for one in part.refuted]
    return [*before, *(f"{one.kind} {one.verdict}" for one in part.claims if one.verdict in ("supported", "refuted"))]


def rows_of(own: Sequence[ComponentExplanation], said: Sequence[ComponentExplanation]) -> list[dict[str, Any]]:
    """One row for each component: established role, what the built-in scientist and the agent say."""
    key = established_roles()["components"]
    by_agent = {part.id: part for part in said}
    return [
        {
            "component": part.id,
            "established": key[part.id]["role"] if part.id in key else "planted",
            "built-in": part.role,
            "claims": claims_of(part),
            "scripted agent": claims_of(by_agent[part.id]) if part.id in by_agent else [],
        }
        for part in own
    ]


def report() -> dict[str, Any]:
    """The table and the counts."""
    specimen, planted = load("arithmetic", device="cpu"), arithmetic_with_planted_head()
    own, said = built_in(), scripted(specimen, CIRCUITS)
    lens = explain(planted, [PLANTED, "L3H1"], n=PROMPTS).components
    lens_said = scripted(planted, [[PLANTED, "L3H1"]])
    plain, plain_planted = PlainCheck(specimen), PlainCheck(planted)
    return {
        "prompts": PROMPTS,
        "components": rows_of(own, said),
        "planted": rows_of(lens, lens_said),
        "built-in claims": checked(own, plain),
        "scripted claims": checked(said, plain),
        "built-in claims, planted": checked(lens, plain_planted),
        "scripted claims, planted": checked(lens_said, plain_planted),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    found = report()
    for row in (*found["components"], *found["planted"]):
        print(f"{row['component']:7} | {row['established']} | {row['built-in']} | {', '.join(row['scripted agent'])}")
    for name, one in found.items():
        if "claims" in name:
            false = one["false support"]
            print(f"{name}: {one['supported']} supported, {one['checked']} measured again, {len(false)} false", *false)
    if out is not None:
        write_json(out, found)


if __name__ == "__main__":
    main()
