"""From verdicts to a role: the name of a component, by rule.

A role has two halves. Where a head attends: *induction head*, *previous-token head*, *duplicate-token head*, *reads X*
(a token role of the behaviour; *attends to X* where it was not shown to use what is there) or *BOS sink*, if the claim
that it attends there is supported. What part it plays:

    inhibits the answer          replacing it helps
    primary mover of X           of the heads that move X it costs most when replaced at the answer position
    primary mover                a head that is necessary, mostly at the answer position, and was shown to use what is
                                 where it attends or to move a role
    necessary at the answer      the same, where neither was shown, where it is also a backup of others, or was tested
                                 and is not the primary one
    necessary upstream           a head that is necessary, mostly elsewhere
    necessary                    a head that is necessary; where it acts is undecided
    writes the answer            an MLP that is necessary, mostly on its direct path to the logits
    builds features              an MLP that is necessary, mostly through later components or undecided
    backup mover, backup MLP     not needed alone, but it matters once its group is replaced; of X, where it moves X;
                                 a backup head, where it was shown neither to move a role nor where it attends
    mover of X, not needed alone it moves X, and zeros or its mean in its place cost next to nothing
    mover of X                   it moves X; whether it is needed is undecided
    lens-positive but redundant  its output favours the answer, and replacing it costs next to nothing
    no effect alone              it attends to a role, and replacing it costs next to nothing

A head that moves a role is *not needed alone* where zeros or its mean, at every position, can stand in for it: values
of other prompts may disturb what reads them even where nothing would be missed. Neither half: *no role established*.
"""

from dataclasses import dataclass

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Tag, Verdict
from vesalius.explanations.claims.base import MIN_EFFECT, join_names
from vesalius.explanations.laboratory.attention import NAMES, SINKS, AttentionPort

NO_ROLE = "no role established"


@dataclass(frozen=True)
class Findings:
    """The claims about one component and what follows from them.

    `own` holds the claims about the component alone, `incoming` those about the components that write its queries and
    keys (sender, port, claim), `outgoing` those about the components it feeds (receiver, claim), `grouped` those about
    the roles it moves and the heads that move them too (role, claim).
    """

    component: Component
    looks_at: str | None
    own: tuple[ClaimRecord, ...]
    incoming: tuple[tuple[Component, AttentionPort, ClaimRecord], ...] = ()
    outgoing: tuple[tuple[Component, ClaimRecord], ...] = ()
    grouped: tuple[tuple[str, ClaimRecord], ...] = ()

    @property
    def claims(self) -> tuple[ClaimRecord, ...]:
        """Every claim, those about the component alone first; one that is made for two roles once."""
        paths = (*(claim for _, _, claim in self.incoming), *(claim for _, claim in self.outgoing))
        grouped = {(claim.kind, claim.text): claim for _, claim in reversed(self.grouped)}
        return (*self.own, *reversed(grouped.values()), *paths)

    def roles(self, *kinds: str) -> list[str]:
        """The roles of the prompts that a supported claim of these kinds about heads that move them is about."""
        found = [role for role, claim in self.grouped if claim.kind in kinds and claim.verdict == "supported"]
        return list(dict.fromkeys(found))

    def verdict(self, kind: str) -> Verdict | None:
        """The verdict of the first claim of a kind, None if there is none."""
        return next((claim.verdict for claim in self.own if claim.kind == kind), None)

    def supported(self, kind: str) -> bool:
        """Whether there is a claim of this kind and it is supported."""
        return self.verdict(kind) == "supported"

    @property
    def pattern(self) -> str | None:
        """Where it attends, if that was established."""
        if self.looks_at is None or not self.supported("attends"):
            return None
        if self.looks_at in SINKS:
            return f"{self.looks_at} sink"
        verb = "reads" if self.supported("uses") else "attends to"
        return NAMES.get(self.looks_at, f"{verb} {self.looks_at}")

    @property
    def part(self) -> str | None:
        """The part it plays for the answer, if one was established."""
        head = self.component.is_head
        if self.supported("inhibits"):
            return "inhibits the answer"
        if self.roles("primary"):
            return f"primary mover{self._of(self.roles('primary'))}"
        backed = [role for role in self.roles("backs_up") if role in self.roles("moves_role")]
        shared = self.supported("not_needed_alone") and bool(self.roles("backs_up", "moves_role"))
        if self.supported("necessary") and not shared:
            if not head:
                return "writes the answer" if self.supported("acts_directly") else "builds features"
            second = self.roles("backs_up") or any(
                claim.kind == "primary" and claim.verdict == "refuted" for _, claim in self.grouped
            )
            moves = self.roles("moves_role") or (self._attends_elsewhere and self.supported("uses"))
            at_answer = "primary mover" if moves and not second else "necessary at the answer"
            where = self.verdict("acts_at_answer")
            return {"supported": at_answer, "refuted": "necessary upstream"}.get(where or "", "necessary")
        if backed:
            return f"backup mover{self._of(backed)}"
        if self.roles("backs_up") or self.supported("covers"):
            moves = self.roles("moves_role") or self._attends_elsewhere  # alone it need not use what is there
            return f"backup {'mover' if moves else 'head'}" if head else "backup MLP"
        if self.supported("lens_only"):
            return "lens-positive but redundant"
        if self.roles("moves_role"):
            alone = ", not needed alone" if self.supported("not_needed_alone") else ""
            return f"mover{self._of(self.roles('moves_role'))}{alone}"
        if not _costs_nothing(self):
            return None
        if self.supported("writes_answer"):
            return "lens-positive but redundant"
        return "no effect alone" if self._attends_elsewhere else None

    @property
    def _attends_elsewhere(self) -> bool:
        """Whether it was shown to attend to another position that is not a sink."""
        return self.pattern is not None and self.looks_at not in SINKS

    def _of(self, roles: list[str]) -> str:
        """Which roles it moves, unless where it attends says so already."""
        named = self.pattern is not None and self.looks_at in NAMES
        return "" if named else f" of {join_names(roles)}"

    @property
    def role(self) -> str:
        """Both halves, or that neither was established."""
        return ", ".join(half for half in (self.pattern, self.part) if half) or NO_ROLE

    @property
    def tag(self) -> Tag:
        """The tag by experiment; without one AGGREGATOR for heads and MAPPER for MLPs, which the note says."""
        return self.tag_by_experiment or ("AGGREGATOR" if self.component.is_head else "MAPPER")

    @property
    def tag_by_experiment(self) -> Tag | None:
        """ROUTER for a head whose attention was shown to lie on one token role; nothing else settles a tag."""
        return "ROUTER" if self.component.is_head and self._attends_elsewhere else None


def _costs_nothing(findings: Findings) -> bool:
    """Whether the whole interval of its single effect lies below the smallest effect that counts, however it was
    replaced.
    """
    claim = next((claim for claim in findings.own if claim.kind == "necessary"), None)
    return claim is not None and all(one.high is not None and one.high < MIN_EFFECT for one in claim.evidence)
