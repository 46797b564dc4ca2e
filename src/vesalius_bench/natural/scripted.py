"""A scripted agent on the one agent session, which no language model moves: looks at attention, and proposes.

1. In the sandbox, measure how much of each head's attention, at the last token and where tokens were seen before, goes
   to the token before, the token after an earlier copy, the copy itself, the first token, and each role of the prompts.
2. Give each head the rule that finds most of it, and put the whole to the session as a claim of the kind `runs`, with
   an algorithm as Python text where the roles are those of one that it knows.
3. Of heads with the same rule in one layer, claim that they are redundant; name those of which the session says so.

It is an example of what an agent may do, and the middle of three scientists of the benchmark: right or wrong, every
figure that it earns is the engine's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.documents.proposal import RUNS
from vesalius.errors import BadInput
from vesalius.explanations.scientists import Backbone, Explained, Scientist, Task
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius_session.findings import Statement
from vesalius_session.session import Session

#: What the sandbox measures: for each head the share of attention that a rule finds, over the queries that matter.
LOOKING = """
real = torch.tensor([list(row) for row in tokens.tolist()])
batch, length = real.shape
end = torch.tensor(roles["end"])
names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(len(model.blocks))]
cache = model.run_with_cache(real, names=names)[1]
rows = torch.arange(batch)
same = (real[:, :, None] == real[:, None, :]) & (torch.arange(length)[None, :] < torch.arange(length)[:, None])
seen = same.any(-1)
after = torch.zeros_like(same); after[:, :, 1:] = same[:, :, :-1]
after = after & (torch.arange(length)[None, :] <= torch.arange(length)[:, None])
targets = {"BOS": torch.zeros_like(same), "self": torch.eye(length, dtype=torch.bool).expand(batch, -1, -1)}
targets["BOS"] = targets["BOS"].clone(); targets["BOS"][:, :, 0] = True
targets["earlier copy"], targets["after earlier copy"] = same, after
for k in range(1, 7):
    targets[f"{k} back"] = (torch.arange(length)[:, None] - torch.arange(length)[None, :] == k).expand(batch, -1, -1)
result = {}
for layer, name in enumerate(names):
    for head in range(cache[name].shape[1]):
        pattern = cache[name][:, head].double()
        shares = {}
        for rule, where in targets.items():
            found = (pattern * where).sum(-1)
            at_end = float(found[rows, end].mean())
            anywhere = float(found[:, 2:].mean())
            shares[rule] = max(at_end, anywhere)
        result[f"L{layer}H{head}"] = shares
"""
LEAST = 0.3
#: The most prompts that one of its claims draws.
CLAIMED = 16
#: Programs that it knows, by the roles that prompts must have; and the place of each variable before each layer.
KNOWN: Mapping[tuple[str, ...], tuple[str, Sequence[tuple[str, str]]]] = {
    ("operand A", "operand B", "operand C"): (
        "def difference(A, B):\n    return A - B\n\n\ndef answer(difference, C):\n    return difference + C\n",
        (("difference", "B"), ("difference", "end")),
    ),
    ("first A", "B"): (
        "VARIABLES = ['copied']\n\n\ndef copied(tokens):\n    return tokens[tokens.index(tokens[-1]) + 1]\n\n\n"
        "def answer(copied):\n    return copied\n\n\ndef choices(tokens):\n    return tokens\n",
        (("copied", "B"), ("copied", "end")),
    ),
}


@dataclass(frozen=True)
class Scripted(Scientist):
    """The scripted agent, by name."""

    name = "scripted"
    meaning = "A script on the one agent session: a rule for each head by what it attends to."
    asks = "never"

    def require(self, specimen: Specimen, *, force: bool = False) -> None:
        """It knows natural models only."""
        if not isinstance(specimen.vocabulary, TextVocabulary):
            raise BadInput(
                f"specimen {specimen.name!r} has a listed vocabulary; the scripted agent is for models of text"
            )

    def explain(self, task: Task, backbone: Backbone | None) -> Explained:
        """Explain a natural model by the script."""
        specimen = task.specimen()
        self.require(specimen)
        with Session.open(specimen, task.components, seed=task.seed, unsafe=task.sandbox_unsafe, n=CLAIMED) as session:
            return Explained(_explained(session, [*map(str, session.circuit)]))


def _explained(session: Session, circuit: Sequence[str]) -> Explanation:
    outcome = session.execute(LOOKING)
    looks = outcome.result if isinstance(outcome.result, dict) else {}
    heads = [name for name in circuit if Component.parse(name).is_head]
    programs = {head: rule_of(looks.get(head, {})) for head in heads}
    claim: dict[str, Any] = {
        "kind": RUNS,
        "programs": programs,
        "mlps": [name for name in circuit if name not in heads],
        "stand_ins": _stand_ins(session, programs),
    }
    if claim["programs"] or claim["mlps"]:
        session.check(claim)
        session.check(claim | _variables(session))
    words = {name: f"looks at {programs[name]}" for name in heads}
    return session.submit(
        Statement({}, "; ".join(f"{name} {text}" for name, text in words.items()) or "-", "-"), scientist="scripted"
    )


def rule_of(shares: Mapping[str, float]) -> str:
    """The rule that finds most of a head's attention beside the first token; that one where none finds enough."""
    others = {rule: share for rule, share in shares.items() if rule != "BOS"}
    best = max(others, key=lambda rule: others[rule], default=None)
    return "BOS" if best is None or others[best] < LEAST else best


def _stand_ins(session: Session, programs: Mapping[str, str]) -> list[list[str]]:
    """Pairs of heads of one layer that look at the same, where the session says that they are redundant."""
    found = []
    for one, other in combinations(programs, 2):
        alike = programs[one] == programs[other] != "BOS"
        if alike and Component.parse(one).layer == Component.parse(other).layer:
            decided = session.check({"kind": "redundant", "component": one, "others": [other]})
            if decided.verdict == "supported":
                found.append([one, other])
    return found


def _variables(session: Session) -> dict[str, Any]:
    """The algorithm that fits the roles, with each variable halfway up; of its places the one that does best."""
    roles = set(getattr(session.setting.briefing, "facts", {}).get("token_roles", ()))
    text, places = next((known for needed, known in KNOWN.items() if roles >= set(needed)), ("", ()))
    middle = session.setting.briefing.specimen.model.config.n_layers // 2
    best: tuple[float, dict[str, Any]] = (-1.0, {})
    for name, role in places:
        claim = {"kind": RUNS, "algorithm": text, "variables": {name: f"resid{middle}@{role}"}}
        record = session.check(claim).records[0]
        value = next((one.value for one in record.evidence if one.experiment.startswith(f"{name} exchanged")), None)
        best = max(
            best, (value or 0.0, {key: claim[key] for key in ("algorithm", "variables")}), key=lambda one: one[0]
        )
    return best[1]
