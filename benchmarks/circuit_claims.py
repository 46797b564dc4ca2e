"""Claims about circuits judged again: plain hooks, fresh inputs, and the answer key open.

    python -m benchmarks.circuit_claims RUN --out benchmarks/results/circuit_claims.json
    python -m benchmarks.circuit_claims RUN --specimens DIR --out ...     (a folder with answer keys)

reads every explanation of a run of `bench circuits`. What is judged are the claims that say what a component computes
(`computes`, `copies`, `aggregates`) and that it is `necessary`. Nothing of the claims, the laboratory or the
intervention engine is used, and no input that a claim has seen.

*Supported* claims are held against the weights. A hook gives the component the output that it has in another input, the
explanation's own program is run with the variables exchanged that the component carries, and `followed` is the share of
the changed answers (by either) that are the program's. A claim is *false* below 0.9, *borderline* below 0.95. A
component is necessary unless zeros, its mean and its outputs in other inputs each change less than 1% of the answers.

*Refuted* claims are held against the key: is the variable that is claimed the one that the key names, up to the names
of its values (one to one on fresh inputs)? Then the claim is *true*. So a claim may be judged that a wrong program
elsewhere has refuted. Claims of dependence are counted, not judged.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benchmarks.key_of_weights import Keyed, answers_after, draw_moves, of_directory, of_the_benchmark
from vesalius.components import Component
from vesalius.documents.claims import ClaimRecord
from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.files import write_json
from vesalius.model.hooks import Hook
from vesalius.rasp import Program
from vesalius.rasp.document import from_document
from vesalius.statistics import share_interval
from vesalius_truth.training.setting import model_tokens

SEED, PAIRS, LONG_PAIRS, LONG = 727_272, 400, 80, 30
FALSE_BELOW, HOLDS_FROM, LEAST_EFFECT, TOLERANCE = 0.9, 0.95, 0.01, 0.05
#: Fewer changed answers than this say nothing.
FEWEST = 24
COMPUTES = ("computes", "copies", "aggregates")
DEPENDS = ("depends_only_on", "independent_of", "combines", "reads_from")


class Judge:
    """One circuit with its key, fresh inputs, and the program of one explanation of it."""

    def __init__(self, keyed: Keyed, explanation: Explanation) -> None:
        self.keyed, self.executable = keyed, explanation.executable
        self.moves = draw_moves(keyed.draw, LONG_PAIRS if keyed.program.max_len >= LONG else PAIRS, seed=SEED).aligned
        self.real = self.moves.base >= 0
        self.clean = self._answers(None)
        self.program: Program | None = None
        if self.executable is not None:
            self.program = from_document(self.executable.program)

    def outcome(self, part: ComponentExplanation, claim: ClaimRecord) -> tuple[str, float | None]:
        """What a claim turns out to be, and the figure that says so."""
        if claim.kind == "necessary":
            effect = self._effect(Component.parse(part.id))
            return ("holds" if effect >= LEAST_EFFECT else "false"), effect
        if claim.kind not in COMPUTES or self.program is None or self.executable is None:
            return "not judged", None
        carried = self.executable.carriers.get(part.id, ())
        if not carried:
            return "not judged", None
        if claim.verdict == "supported":
            followed = self._followed(Component.parse(part.id), set(carried))
            if followed is None:
                return "not judged", None
            return ("false" if followed < FALSE_BELOW else "borderline" if followed < HOLDS_FROM else "holds"), followed
        share = self._one_to_one(part.id, carried)
        return ("not judged", None) if share is None else ("true" if share == 1 else "not the key's", share)

    def _answers(self, component: Component | None) -> Float[Tensor, "row pos"]:
        if component is not None:
            return answers_after(self.keyed, component, self.moves)
        with torch.no_grad():
            return self._read(self.keyed.model(model_tokens(self.keyed.program, self.moves.base)))

    def _read(self, logits: Tensor) -> Float[Tensor, "row pos"]:
        return logits[:, 1:, 0] if self.keyed.program.numerical else logits[:, 1:].argmax(-1).float()

    def _differ(self, first: Tensor, second: Tensor) -> Bool[Tensor, "row pos"]:
        differ = ~((first - second).abs() < TOLERANCE) if self.keyed.program.numerical else first != second
        return differ & self.real

    def _effect(self, component: Component) -> float:
        """The largest share of answers that one of three replacements changes."""
        answers = [self._answers(component), *(self._replaced(component, mean=mean) for mean in (False, True))]
        return max(float(self._differ(each, self.clean).sum() / self.real.sum()) for each in answers)

    def _replaced(self, component: Component, *, mean: bool) -> Tensor:
        head = component.head
        name = f"blocks.{component.layer}." + ("hook_mlp_out" if head is None else "attn.hook_z")

        def replace(value: Tensor, _: object) -> Tensor:
            new = value.clone()
            mine = (slice(None), slice(None)) if head is None else (slice(None), slice(None), head)
            new[mine] = value[mine][:, 1:][self.real].mean(0) if mean else 0.0
            return new

        hooks: list[Hook] = [(name, replace)]
        with torch.no_grad():
            tokens = model_tokens(self.keyed.program, self.moves.base)
            return self._read(self.keyed.model.run_with_hooks(tokens, fwd_hooks=hooks))

    def _followed(self, component: Component, carried: set[str]) -> float | None:
        """The share of changed answers that the explanation's program gives when it takes the carried variables."""
        assert self.program is not None
        plain, exchanged = (self._predicted(carried if exchange else set()) for exchange in (False, True))
        answers = self._answers(component)
        changed = self._differ(exchanged, plain) | self._differ(answers, self.clean)
        if int(changed.sum()) < FEWEST:
            return None
        return float((~self._differ(answers, exchanged))[changed].float().mean())

    def _predicted(self, exchanged: set[str]) -> Float[Tensor, "row pos"]:
        """The explanation's program on the bases, with some variables taken from the sources, as the key's answers."""
        program, moves = self.program, self.moves
        assert program is not None
        source = program.run(self._codes(moves.source), moves.source_lengths).values
        places = torch.arange(moves.base.shape[1])
        attendable = self.real[:, None, :].expand(-1, len(places), -1)
        if program.causal:
            attendable = attendable & (places[None, :] <= places[:, None])
        values = {"tokens": self._codes(moves.base).clamp(min=0), "indices": places.expand_as(moves.base)}
        for step in program.steps_on(torch.device("cpu")):
            value = step(values, attendable)
            values[step.name] = (
                torch.where(moves.reads >= 0, source[step.name], value) if step.name in exchanged else value
            )
        output = values[program.name_of(program.output)]
        key = self.keyed.program
        if program.numerical:
            return output.float()
        if key.numerical:
            numbers = [float(value) if isinstance(value, int | float) else torch.nan for value in program.outputs]
            return torch.tensor([*numbers, torch.nan])[output]  # what a table does not list comes last
        code_of = {value: code for code, value in enumerate(key.outputs)}
        return torch.tensor([*(code_of.get(value, -1) for value in program.outputs), -1]).float()[output]

    def _codes(self, tokens: Tensor) -> Tensor:
        """Codes of the key's vocabulary in that of the explanation."""
        assert self.program is not None
        code_of = {token: code for code, token in enumerate(self.program.vocab)}
        table = torch.tensor([*(code_of[token] for token in self.keyed.program.vocab), -1])
        return table[tokens]

    def _one_to_one(self, name: str, carried: Sequence[str]) -> float | None:
        """The share of places at which the carried variables and the key's belong together one to one."""
        program, key, moves = self.program, self.keyed.program, self.moves
        assert program is not None
        column = next((i for i, part in enumerate(self.keyed.circuit) if str(part) == name), None)
        if column is None:
            return None
        ours = program.run(self._codes(moves.base), moves.base_lengths).values
        theirs = key.run(moves.base, moves.base_lengths).values
        names = key.components[column].variables
        sides = [
            torch.stack([values[name][self.real].double() for name in some], 1).unique(dim=0, return_inverse=True)[1]
            for values, some in ((ours, carried), (theirs, names))
        ]
        pairs = torch.stack(sides, 1).unique(dim=0)
        single = [torch.bincount(pairs[:, side])[sides[side]] == 1 for side in (0, 1)]
        return float((single[0] & single[1]).float().mean())


def judged(run: Path, circuits: Iterator[Keyed]) -> Iterator[dict[str, Any]]:
    """Every claim of every explanation of a run, with its outcome."""
    known = {keyed.name: keyed for keyed in circuits}
    for path in sorted((run / "explanations").glob("*.json")):
        keyed, explanation = known[path.stem], Explanation.read(path)
        judge = Judge(keyed, explanation)
        for part in explanation.components:
            for claim in part.claims:
                outcome, figure = judge.outcome(part, claim)
                yield {
                    "circuit": path.stem,
                    "component": part.id,
                    "kind": claim.kind,
                    "verdict": claim.verdict,
                    "outcome": outcome,
                    "figure": figure,
                }
        print(path.stem, file=sys.stderr, flush=True)


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many supported claims are false, refuted ones true, and claims undecided."""

    def share(hits: int, n: int) -> dict[str, Any]:
        low, high = share_interval(hits, n) if n else (None, None)
        return {"hits": hits, "n": n, "share": hits / n if n else None, "low": low, "high": high}

    def count(kinds: Sequence[str]) -> dict[str, Any]:
        supported = [row["outcome"] for row in rows if row["kind"] in kinds and row["verdict"] == "supported"]
        refuted = [row["outcome"] for row in rows if row["kind"] in kinds and row["verdict"] == "refuted"]
        tested = [row for row in rows if row["kind"] in kinds]
        return {
            "supported and false": share(supported.count("false"), len(supported) - supported.count("not judged")),
            "supported and borderline": supported.count("borderline"),
            "refuted and true": share(refuted.count("true"), len(refuted) - refuted.count("not judged")),
            "undecided": share(sum(row["verdict"] == "undecided" for row in tested), len(tested)),
        }

    verdicts = Counter((row["kind"], row["verdict"]) for row in rows)
    return {
        "circuits": len({row["circuit"] for row in rows}),
        "all but dependence": count([*COMPUTES, "necessary"]),
        "what components compute": count(COMPUTES),
        "dependence, by verdict": {
            kind: {verdict: n for (k, verdict), n in sorted(verdicts.items()) if k == kind} for kind in DEPENDS
        },
        "false": [row for row in rows if row["verdict"] == "supported" and row["outcome"] == "false"],
        "true": [row for row in rows if row["verdict"] == "refuted" and row["outcome"] == "true"],
    }


def main() -> None:
    """Judge every claim of a run and write one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the directory of a run of bench circuits")
    parser.add_argument("--specimens", type=Path, help="a folder of trained specimens instead of the 84 circuits")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    circuits = of_directory(given.specimens, []) if given.specimens else of_the_benchmark([])
    result = summary(list(judged(given.run, circuits)))
    print(json.dumps(result, indent=2))
    if given.out:
        write_json(given.out, result)


if __name__ == "__main__":
    main()
